//! The queue of checks: one live one per session that is not expiring, and some stale ones.
//!
//! Checks lie in buckets of one millisecond, rounded up: a session is looked at up to a millisecond
//! late and never early. A bucket is a plain list, so that a million sessions that fall due together
//! are one list and not a million steps down a tree.

use std::collections::BTreeMap;
use std::time::Duration;

use super::lease::{Lease, Promotion};
use crate::moment::Moment;
use crate::name::SessionNo;

/// Stale checks that may lie in the queue beside the live ones before it is swept.
const STALE_MIN: usize = 1024;

/// Milliseconds since the start of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tick(u64);

impl Tick {
    /// The first tick that is not before `at`.
    const fn not_before(at: Moment) -> Self {
        Self(at.as_nanos().div_ceil(1_000_000))
    }

    fn at(self) -> Moment {
        Moment::ZERO + Duration::from_millis(self.0)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Checks {
    buckets: BTreeMap<Tick, Vec<SessionNo>>,
    stale: usize,
    made: u64,
}

impl Checks {
    /// How many were taken from the queue so far.
    pub(super) const fn made(&self) -> u64 {
        self.made
    }

    /// When the next check comes up.
    pub(super) fn next_at(&self) -> Option<Moment> {
        self.buckets.first_key_value().map(|(tick, _)| tick.at())
    }

    /// Takes the next check that has come up.
    pub(super) fn next(&mut self, now: Moment) -> Option<(Tick, SessionNo)> {
        let mut bucket = self.buckets.first_entry().filter(|bucket| bucket.key().at() <= now)?;
        let tick = *bucket.key();
        let session = bucket.get_mut().pop();
        if bucket.get().is_empty() {
            bucket.remove();
        }
        self.made += 1;
        Some((tick, session?))
    }

    /// Sees to it that a check is queued no later than the session's next change of condition.
    pub(super) fn schedule(
        &mut self,
        session: SessionNo,
        lease: &mut Lease,
        promotion: Option<Promotion>,
    ) {
        if lease.is_expiring {
            return;
        }
        let wanted = Tick::not_before(lease.next_check_at(session, promotion));
        match lease.queued {
            Some(queued) if queued <= wanted => return,
            Some(_) => self.stale += 1,
            None => {}
        }
        lease.queued = Some(wanted);
        self.buckets.entry(wanted).or_default().push(session);
    }

    /// The session of this lease is forgotten: its check, if any, is stale.
    pub(super) fn abandon(&mut self, lease: &Lease) {
        self.stale += usize::from(lease.queued.is_some());
    }

    /// The check that was taken last meant nothing.
    pub(super) fn was_stale(&mut self) {
        self.stale = self.stale.saturating_sub(1);
    }

    /// Drops stale checks once they outnumber the live ones: sessions that come and go within a long
    /// ttl must not fill the queue. Constant work per check that became stale.
    pub(super) fn sweep(&mut self, leases: &BTreeMap<SessionNo, Lease>) {
        if self.stale <= leases.len() + STALE_MIN {
            return;
        }
        self.buckets.retain(|tick, sessions| {
            sessions.retain(|session| {
                leases.get(session).is_some_and(|lease| lease.queued == Some(*tick))
            });
            !sessions.is_empty()
        });
        self.stale = 0;
    }
}
