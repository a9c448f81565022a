//! The Raft leader's duties: to count every session's time and propose what time brings.
//!
//! Every replica knows which sessions are open, so that becoming responsible costs one number and not
//! a walk over a million of them. Only the leader judges, and only after it has applied its first
//! own entry: from that moment everybody has a full ttl.

use std::collections::BTreeSet;
use std::time::Duration;

use regent_election::deadlines::Turn;
use regent_election::mutant::{self, Mutant};
use regent_election::store::StoreError;
use regent_election::{Command, Effect, SessionNo};

use super::requests::Waiter;
use super::{Core, Role};
use crate::limits::CHECKS_PER_TURN;

/// How often stranded offices are looked at.
const REFILL_EVERY: Duration = Duration::from_millis(50);
/// How many of them are looked at.
const STRANDED_PER_LOOK: usize = 256;

impl Core {
    /// Counts every open session, as after a start or an installed snapshot.
    pub(super) fn count_sessions(&mut self) {
        self.deadlines = regent_election::deadlines::Deadlines::new();
        for (session, ttl_ms) in self.whole.state.sessions() {
            self.deadlines.open(session, ttl_ms, self.now);
        }
        self.expiring.clear();
    }

    /// Follows what the entry at `index` wants timed. It may still be under way here.
    pub(super) fn time(&mut self, index: u64, effects: impl Iterator<Item = Effect>) {
        for effect in effects {
            match effect {
                Effect::SessionOpened { session, ttl_ms } => {
                    self.deadlines.open(session, ttl_ms, self.now);
                }
                Effect::TtlChanged { session, ttl_ms } => {
                    self.deadlines.change_ttl(session, ttl_ms, self.now);
                }
                Effect::SessionEnded { session } => {
                    self.deadlines.close(session);
                    self.expiring.remove(&session);
                    // Whoever waited for the outcome of this expiry is answered from a state in which
                    // it is applied: on another replica, that may be later than here.
                    for waiter in self.held.remove(&session).unwrap_or_default() {
                        self.confirm_one(index, waiter);
                    }
                }
                Effect::Wait { group, kind, since, for_ms } => {
                    if self.is_serving {
                        self.deadlines.wait(group, kind, since, for_ms, self.now);
                    }
                }
            }
        }
    }

    /// Begins to judge: everybody has a full ttl from this moment, every wait starts again.
    pub(super) fn start_serving(&mut self) {
        self.is_serving = true;
        self.expiry_gate = None;
        if !mutant::is(Mutant::NoTtlAfterPromotion) {
            self.deadlines.promote(self.now);
        }
        self.feed_waits();
        // Nobody knows what was granted before the restore, so the longest lease there can be counts,
        // and from the start with every leader.
        let longest = Duration::from_millis(self.whole.state.settings().ttl_ms_ceiling);
        self.released_at = self.whole.is_held.then(|| self.now + longest);
    }

    /// Ends the hold after a restore when the longest lease of the earlier life is over.
    fn release(&mut self) {
        if self.released_at.is_some_and(|at| at <= self.now) && self.propose_release() {
            self.released_at = None;
        }
    }

    fn feed_waits(&mut self) {
        self.wants_waits = false;
        self.deadlines.forget_waits();
        for wait in self.whole.state.waits() {
            self.deadlines.wait(wait.group, wait.kind, wait.since, wait.for_ms, self.now);
        }
    }

    /// Stops judging: expiries under way may or may not come true, and somebody else will see.
    pub(super) fn stop_serving(&mut self) {
        self.is_serving = false;
        self.released_at = None;
        for session in std::mem::take(&mut self.expiring) {
            self.deadlines.spare(session);
        }
        self.deadlines.forget_waits();
        if let Some((Some(token), _)) = self.member_change.take() {
            // Whoever leads next may or may not know of it.
            let why = "this replica led the log and leads it no more; look at the members to see whether they changed".into();
            self.refuse(token, StoreError::Uncertain { why });
        }
        let held: Vec<Waiter> = std::mem::take(&mut self.held).into_values().flatten().collect();
        let waiting = self.rounds.give_up();
        for waiter in held.into_iter().chain(waiting) {
            self.give_up(waiter);
        }
    }

    /// Proposes what time has brought. Heartbeats of this turn have been counted on arrival.
    pub(super) fn do_duties(&mut self) {
        if self.role != Role::Leader || !self.is_serving || self.applying.is_some() {
            return;
        }
        match self.deadlines.turn(self.now) {
            Turn::Steady => {}
            Turn::Restarted { .. } => {
                // A leader that slept may have been deposed: nobody expires before a round begun
                // after the gap has shown otherwise (semantics 8).
                self.expiry_gate = Some(self.rounds.last_begun());
                let _ = self.rounds.queue(self.now, Waiter::Oneself);
            }
        }
        if self.wants_waits {
            self.feed_waits();
        }
        if self.expiry_gate.is_some() {
            return;
        }
        self.release();
        self.expire_due();
        self.end_waits();
        self.fill_for_audible();
    }

    /// A round was confirmed: expiries may go on if it began after the gap.
    pub(super) fn open_gate(&mut self, round: u64) {
        if self.expiry_gate.is_some_and(|gate| round > gate) {
            self.expiry_gate = None;
        }
    }

    fn expire_due(&mut self) {
        let due = self.deadlines.due(self.now, CHECKS_PER_TURN);
        if due.is_empty() {
            return;
        }
        if self.propose_own(Command::Expire { sessions: due.clone() }) {
            self.expiring.extend(due);
        } else {
            for session in due {
                self.deadlines.spare(session);
            }
        }
    }

    fn end_waits(&mut self) {
        for (group, kind, since) in self.deadlines.elapsed(self.now, CHECKS_PER_TURN) {
            if !self.propose_own(Command::Elapsed { group, kind, since }) {
                // Told once and not proposed: start all of them again rather than forget one.
                self.wants_waits = true;
            }
        }
    }

    /// Fills offices that stayed vacant because all who stand were silent, once one of them is heard.
    ///
    /// Who became audible is looked up from the state rather than remembered: a session may be heard
    /// between the proposal that passed it over and its apply.
    fn fill_for_audible(&mut self) {
        let _ = self.deadlines.audible();
        let is_early = self.refilled_at.is_some_and(|at| self.now.since(at) < REFILL_EVERY);
        if !self.whole.state.has_stranded() || is_early {
            return;
        }
        self.refilled_at = Some(self.now);
        let silent = self.deadlines.silent();
        let state = &self.whole.state;
        let audible: BTreeSet<SessionNo> = state
            .stranded()
            .take(STRANDED_PER_LOOK)
            .filter_map(|group| state.standbys(group).find(|session| !silent.contains(session)))
            .collect();
        for session in audible {
            self.propose_own(Command::Refill { session });
        }
    }
}
