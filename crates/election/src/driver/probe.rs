//! Whether the application is alive (semantics 31).
//!
//! Heartbeats come from a thread of their own, so that an application that is merely busy keeps its
//! lease. But one that hangs for ever must not lead for ever: its runtime is asked for a sign of life
//! a few times per ttl, and half a ttl without one holds heartbeats back. What is left of the lease
//! then runs out, and every promise about lost leases holds as if the network had failed.

use std::time::Duration;

use crate::{Budget, Moment};

/// Asks, and judges the silence. Only one question is ever open: a hung runtime must not be buried
/// under them.
#[derive(Clone, Debug)]
pub struct RuntimeProbe {
    silence_max: Duration,
    every: Duration,
    /// When the application last gave a sign of life.
    alive_at: Moment,
    is_asked: bool,
    ask_at: Moment,
}

impl RuntimeProbe {
    /// A probe for a session with this budget: asks eight times per ttl, waits for half of it.
    #[must_use]
    pub fn new(budget: &Budget) -> Self {
        let (silence_max, every) = (budget.ttl() / 2, budget.ttl() / 8);
        let (alive_at, ask_at) = (Moment::ZERO, Moment::ZERO);
        Self { silence_max, every, alive_at, is_asked: false, ask_at }
    }

    /// Begins to count, with the application known to live.
    pub(super) fn begin(&mut self, now: Moment) {
        self.alive_at = self.alive_at.max(now);
        self.ask_at = self.ask_at.min(now + self.every);
    }

    pub(super) fn answered(&mut self, now: Moment, at: Moment) {
        self.alive_at = self.alive_at.max(at);
        self.is_asked = false;
        self.ask_at = now + self.every;
    }

    /// Whether to ask, and notes that it is done. Without a session there is nothing to hold back.
    pub(super) fn is_due(&mut self, now: Moment, is_idle: bool) -> bool {
        let is_due = !is_idle && !self.is_asked && self.ask_at <= now;
        self.is_asked |= is_due;
        is_due
    }

    pub(super) fn next_at(&self, is_idle: bool) -> Option<Moment> {
        (!is_idle && !self.is_asked).then_some(self.ask_at)
    }

    /// For how long the application has been silent, if that is too long.
    pub(super) fn hung_for(&self, now: Moment) -> Option<Duration> {
        let silent_for = now.since(self.alive_at);
        (silent_for > self.silence_max).then_some(silent_for)
    }
}
