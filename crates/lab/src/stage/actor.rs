//! One node's process on the stage: its machine, its clock, its disk and its timers.

use std::collections::BTreeMap;

use regent_election::Moment;

use super::play::Happening;
use crate::clock::Clock;
use crate::protocols::{NodeId, Protocol, Setup};

/// A node.
#[derive(Debug)]
pub(super) struct Actor<P: Protocol> {
    pub(super) setup: Setup,
    pub(super) clock: Clock,
    /// None while it is dead.
    pub(super) machine: Option<P>,
    /// What is durable.
    pub(super) kept: Option<P::Kept>,
    /// How long its disk takes, in microseconds.
    pub(super) disk_us: std::ops::RangeInclusive<u64>,
    /// When its disk has done everything it was given.
    pub(super) disk_free_at: u64,
    pub(super) timers: BTreeMap<P::Timer, Moment>,
    /// Strikes that keep it paused.
    pub(super) pauses: u32,
    /// What came meanwhile, in order.
    pub(super) held: Vec<Happening<P>>,
    /// The tenure it holds or last held in this run, with its term.
    pub(super) tenure: Option<(u64, Option<u64>)>,
    /// Whether it acts as leader.
    pub(super) is_acting: bool,
    /// Whether a piece of its work is under way.
    pub(super) is_working: bool,
    /// Whom it follows, as the record knows.
    pub(super) follows: (Option<NodeId>, Option<u64>),
}

impl<P: Protocol> Actor<P> {
    pub(super) const fn is_up(&self) -> bool {
        self.machine.is_some()
    }
}
