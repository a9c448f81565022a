//! Which sessions are due, and when: the store's side of every lease.
//!
//! A session is due when a whole ttl has passed since it was last heard. Heartbeats are frequent and
//! expiries rare, so the work is put where the rare things are: every session has one queued check;
//! being heard only moves the session's own numbers and touches no queue; a check that comes up
//! early looks at those numbers and queues itself again. At one check every half ttl, a million
//! sessions cost a few pops per heartbeat interval each, whatever their heartbeats are.
//!
//! ```text
//!   heard                  silent                   due
//!     |-------- ttl/2 --------|-------- ttl/2 --------|
//!                             ^ check                 ^ check -> expiring, for good
//! ```
//!
//! What only ever lengthens a lease:
//! - **Promotion** ([`Deadlines::promote`]): a store that has just begun to count, or that slept, knows
//!   nothing of heartbeats it did not see. Everybody gets a full ttl from that moment, and those not
//!   heard since get a small spread on top, so that a crash of many is not one burst. This is one
//!   number, applied when a check looks; no session is touched.
//! - **A gap in the loop** ([`Deadlines::turn`]) is a promotion: a store that slept must not expire the
//!   living (semantics 8).
//! - **A changed ttl**: the larger of old and new holds for one old ttl (semantics 7).
//!
//! Road not taken: a timer wheel, or a heap that is re-ordered on every heartbeat. Both pay on the
//! frequent side for what a lazy check gets for nothing.
//!
//! Left to the driver: to drain heartbeats before it asks who is due (semantics 5), to confirm by a
//! quorum round begun after a gap that it still may expire anybody (semantics 8), and to propose.

mod checks;
mod lease;
mod waits;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use checks::{Checks, Tick};
use lease::{Lease, Promotion};
use waits::Waits;

use crate::command::WaitKind;
use crate::limits::LOOP_GAP_MS_MAX;
use crate::moment::Moment;
use crate::mutant::{self, Mutant};
use crate::name::{Group, SessionNo};
use crate::term::Revision;

/// What became of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeartbeatOutcome {
    /// The session has a full ttl from this arrival.
    Extended,
    /// Its expiry is being proposed: the answer waits for the outcome. If that is a refusal, this
    /// arrival counts ([`Deadlines::spare`]).
    Expiring,
    /// No such session.
    Unknown,
    /// The number is not above the last one seen (semantics 10). It counted for nothing.
    NotNewer {
        /// The last number seen.
        last: u64,
    },
}

/// What a turn of the driver's loop found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The loop is on time.
    Steady,
    /// The loop was away too long to know who was silent: all deadlines were restarted.
    Restarted {
        /// How long it was away.
        away: Duration,
    },
}

/// The deadlines of all sessions, and the waits of all groups.
#[derive(Clone, Debug, Default)]
pub struct Deadlines {
    leases: BTreeMap<SessionNo, Lease>,
    checks: Checks,
    /// How many sessions have each ttl: the smallest one bounds the loop's gap.
    ttls: BTreeMap<u64, usize>,
    silent: BTreeSet<SessionNo>,
    waits: Waits,
    promotion: Option<Promotion>,
    turned_at: Option<Moment>,
}

impl Deadlines {
    /// Nothing to count.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts to count a session's ttl. For one that is counted already it is a sign of life.
    pub fn open(&mut self, session: SessionNo, ttl_ms: u64, now: Moment) {
        self.wake(now);
        match self.leases.entry(session) {
            Entry::Vacant(place) => {
                let lease = place.insert(Lease::open(ttl_ms, now, self.promotion));
                self.checks.schedule(session, lease, self.promotion);
                *self.ttls.entry(ttl_ms).or_default() += 1;
            }
            Entry::Occupied(_) => {
                self.change_ttl(session, ttl_ms, now);
                self.heartbeat(session, None, now);
            }
        }
    }

    /// Counts another ttl; the larger of old and new holds until one old ttl after `now`.
    ///
    /// The change itself is lived time: a heartbeat that arrived before it may be answered with the
    /// larger ttl after it, so the deadline moves to `now` plus the larger.
    pub fn change_ttl(&mut self, session: SessionNo, ttl_ms: u64, now: Moment) {
        let Some(lease) = self.leases.get_mut(&session) else { return };
        let old_ms = lease.ttl_ms();
        lease.change_ttl(session, ttl_ms, now, self.promotion);
        self.checks.schedule(session, lease, self.promotion);
        self.forget_ttl(old_ms);
        *self.ttls.entry(ttl_ms).or_default() += 1;
    }

    /// Forgets a session.
    pub fn close(&mut self, session: SessionNo) {
        let Some(lease) = self.leases.remove(&session) else { return };
        self.checks.abandon(&lease);
        self.forget_ttl(lease.ttl_ms());
        if lease.is_silent {
            self.silent.remove(&session);
        }
        self.checks.sweep(&self.leases);
    }

    /// A heartbeat arrived. Its arrival alone extends the deadline; the answer is the driver's.
    ///
    /// One look-up; no queue is touched unless the session had been silent or had another ttl.
    pub fn heartbeat(
        &mut self,
        session: SessionNo,
        sequence: Option<u64>,
        now: Moment,
    ) -> HeartbeatOutcome {
        let Some(lease) = self.leases.get_mut(&session) else { return HeartbeatOutcome::Unknown };
        if let Err(last) = lease.heartbeat(sequence, now, self.promotion) {
            return HeartbeatOutcome::NotNewer { last };
        }
        if lease.is_expiring {
            return HeartbeatOutcome::Expiring;
        }
        let was_silent = std::mem::take(&mut lease.is_silent);
        if was_silent || lease.has_changed() {
            self.checks.schedule(session, lease, self.promotion);
        }
        if was_silent {
            self.silent.remove(&session);
        }
        HeartbeatOutcome::Extended
    }

    /// Gives every session a full ttl from `now`, and those not heard after it a spread on top.
    /// Waits restart in full. Touches no session.
    ///
    /// Who was silent stays so until it is heard; who was not is silent half a ttl from `now`.
    pub fn promote(&mut self, now: Moment) {
        let number = self.promotion.map_or(1, |last| last.number + 1);
        self.promotion = Some(Promotion { at: now, number });
        self.turned_at = Some(now);
    }

    /// To be called once per turn of the driver's loop, after draining heartbeats and before asking
    /// who is due. A loop that was away for more than 500 ms, or a quarter of the smallest ttl, is
    /// treated as promoted.
    pub fn turn(&mut self, now: Moment) -> Turn {
        let away = self.turned_at.map_or(Duration::ZERO, |turned_at| now.since(turned_at));
        self.turned_at = if self.is_idle() { None } else { Some(now) };
        if away <= self.gap_max() || self.is_idle() {
            return Turn::Steady;
        }
        self.promote(now);
        Turn::Restarted { away }
    }

    /// Sessions whose deadline has passed. Each is *expiring* from here on and is never revived:
    /// end it with [`Deadlines::close`] when its expiry is applied, or [`Deadlines::spare`] it when
    /// the proposal was definitely refused.
    ///
    /// Looks at no more than `checks_max` queued checks, so that one turn stays short; there may be
    /// more to do while [`Deadlines::next_at`] is not after `now`.
    pub fn due(&mut self, now: Moment, checks_max: usize) -> Vec<SessionNo> {
        let mut due = Vec::new();
        for _ in 0..checks_max {
            let Some((tick, session)) = self.checks.next(now) else { break };
            if self.check(session, tick, now) {
                due.push(session);
            }
        }
        self.checks.sweep(&self.leases);
        due
    }

    /// Takes back that a session is expiring: its expiry was proposed and definitely refused. What
    /// was heard of it meanwhile counts.
    pub fn spare(&mut self, session: SessionNo) {
        let Some(lease) = self.leases.get_mut(&session) else { return };
        if !lease.is_expiring {
            return;
        }
        lease.is_expiring = false;
        if lease.is_silent && lease.heard_since_silent {
            lease.is_silent = false;
            self.silent.remove(&session);
        }
        self.checks.schedule(session, lease, self.promotion);
    }

    /// Sessions that were not heard for half their ttl, as of the last [`Deadlines::due`].
    #[must_use]
    pub const fn silent(&self) -> &BTreeSet<SessionNo> {
        &self.silent
    }

    /// When a session is due if it is not heard again; in the past while it is expiring.
    #[must_use]
    pub fn deadline(&self, session: SessionNo) -> Option<Moment> {
        self.leases.get(&session).map(|lease| lease.deadline(session, self.promotion))
    }

    /// How long a session lives if it is not heard again; zero while it is expiring.
    #[must_use]
    pub fn remaining(&self, session: SessionNo, now: Moment) -> Option<Duration> {
        let lease = self.leases.get(&session)?;
        if lease.is_expiring {
            return Some(Duration::ZERO);
        }
        Some(now.until(lease.deadline(session, self.promotion)))
    }

    /// Starts to time a wait. A later wait of the same kind in the same group takes its place, save for approvals, of
    /// which a group may have several.
    pub fn wait(
        &mut self,
        group: Group,
        kind: WaitKind,
        since: Revision,
        for_ms: u64,
        now: Moment,
    ) {
        self.wake(now);
        self.waits.begin(group, kind, since, for_ms, now);
    }

    /// Stops to time a wait that nothing needs any more.
    pub fn drop_wait(&mut self, group: Group, kind: WaitKind, since: Revision) {
        self.waits.drop_wait(group, kind, since);
    }

    /// Waits that are over, each told once. Looks at no more than `waits_max` of them.
    pub fn elapsed(&mut self, now: Moment, waits_max: usize) -> Vec<(Group, WaitKind, Revision)> {
        self.waits.elapsed(now, self.promotion.map(|last| last.at), waits_max)
    }

    /// Drops all waits: a driver that becomes responsible feeds them again from the state.
    pub fn forget_waits(&mut self) {
        self.waits = Waits::default();
    }

    /// When the next turn is needed at the latest; none while there is nothing to count. Never so
    /// far away that the pause itself would look like a gap.
    #[must_use]
    pub fn next_at(&self) -> Option<Moment> {
        if self.is_idle() {
            return None;
        }
        let turn_at = self.turned_at.map(|turned_at| turned_at + self.gap_max() / 2);
        [self.checks.next_at(), self.waits.next_at(), turn_at].into_iter().flatten().min()
    }

    /// How many sessions are counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Whether no session is counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// How many queued checks were looked at so far: the work done, for metrics and tests.
    #[must_use]
    pub const fn checks_made(&self) -> u64 {
        self.checks.made()
    }

    /// Whether a session is due at its check; if not, the check is queued again.
    fn check(&mut self, session: SessionNo, tick: Tick, now: Moment) -> bool {
        let Some(lease) = self.leases.get_mut(&session).filter(|l| l.queued == Some(tick)) else {
            self.checks.was_stale();
            return false;
        };
        lease.queued = None;
        if !lease.is_silent && lease.silent_at(self.promotion) <= now {
            lease.is_silent = true;
            lease.heard_since_silent = false;
            self.silent.insert(session);
        }
        if lease.deadline(session, self.promotion) <= now {
            lease.is_expiring = true;
            return true;
        }
        self.checks.schedule(session, lease, self.promotion);
        false
    }

    fn forget_ttl(&mut self, ttl_ms: u64) {
        if let Some(count) = self.ttls.get_mut(&ttl_ms) {
            *count -= 1;
            if *count == 0 {
                self.ttls.remove(&ttl_ms);
            }
        }
    }

    fn gap_max(&self) -> Duration {
        if mutant::is(Mutant::NoGapRule) {
            return Duration::MAX;
        }
        let smallest_ms = self.ttls.keys().next().copied().unwrap_or(u64::MAX);
        Duration::from_millis(LOOP_GAP_MS_MAX).min(Duration::from_millis(smallest_ms) / 4)
    }

    fn is_idle(&self) -> bool {
        self.leases.is_empty() && self.waits.is_empty()
    }

    /// The loop of an idle driver may rest for ever; its first gap is counted from here.
    fn wake(&mut self, now: Moment) {
        if self.is_idle() {
            self.turned_at = Some(now);
        }
    }
}
