//! The Raft leader's duties: to judge every session's time and propose what time brings.
//!
//! The ledger counts and says what is due; here is what a cluster adds. Only the leader judges, and only
//! after it has applied its first own entry: from that moment everybody has a full ttl. One that slept
//! proves by a round that it still leads before it expires anybody. A restored cluster grants nothing
//! before the leases of its earlier life are over.

use std::time::Duration;

use regent_election::ledger::Turn;
use regent_election::limits::TTL_MS_CEILING;
use regent_election::store::StoreError;
use regent_election::{Command, SessionNo};

use super::requests::Waiter;
use super::{Core, Role};
use crate::limits::CHECKS_PER_TURN;

impl Core {
    /// Begins to judge: everybody has a full ttl from this moment, every wait starts again.
    pub(super) fn start_serving(&mut self) {
        self.ledger.serve(self.now);
        self.expiry_gate = None;
        // Nobody knows what was granted before the restore, so the longest lease there can be counts,
        // and from the start with every leader.
        self.released_at =
            self.ledger.kept().grants_paused.then(|| self.now + self.longest_lease());
    }

    /// The longest lease of the life before a restore.
    fn longest_lease(&self) -> Duration {
        let kept = self.ledger.kept();
        let by_settings = self.ledger.state().settings().ttl_ms_ceiling;
        Duration::from_millis(kept.pause_ms.unwrap_or(by_settings).min(TTL_MS_CEILING))
    }

    /// See [`Status::grants_paused_for`](super::Status::grants_paused_for).
    pub(super) fn grants_paused_for(&self) -> Option<Duration> {
        if !self.ledger.kept().grants_paused {
            return None;
        }
        let until = match self.released_at {
            Some(at) => at,
            // The end is proposed and not applied.
            None if self.ledger.is_serving() => self.now,
            None if self.led_by.0 == 0 => self.now + self.longest_lease(),
            None => self.led_by.1 + self.longest_lease(),
        };
        Some(self.now.until(until))
    }

    /// Ends the hold after a restore when the longest lease of the earlier life is over.
    fn release(&mut self) {
        if self.released_at.is_some_and(|at| at <= self.now) && self.propose_release() {
            self.released_at = None;
        }
    }

    /// Stops judging: expiries under way may or may not come true, and somebody else will see.
    pub(super) fn stop_serving(&mut self) {
        self.ledger.stop_serving();
        self.released_at = None;
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
        if self.role != Role::Leader || !self.ledger.is_serving() || self.applying.is_some() {
            return;
        }
        match self.ledger.turn(self.now) {
            Turn::Steady => {}
            Turn::Restarted { .. } => {
                // A leader that slept may have been deposed: nobody expires before a round begun
                // after the gap has shown otherwise (semantics 8).
                self.expiry_gate = Some(self.rounds.last_begun());
                let _ = self.rounds.queue(self.now, Waiter::LeadershipCheck);
            }
        }
        if self.expiry_gate.is_some() {
            return;
        }
        self.release();
        for command in self.ledger.due(self.now, CHECKS_PER_TURN) {
            if let Some(command) = self.hold_back(command) {
                self.propose_own(command);
            }
        }
    }

    /// Leaves out of an expiry those whose renewal came in time and is not judged yet: if it is proved, it
    /// counts from its arrival. What comes after the deadline holds nothing back, so this ends when the last
    /// one before it is judged or given up.
    fn hold_back(&mut self, command: Command) -> Option<Command> {
        let Command::Expire { sessions } = command else { return Some(command) };
        let (awaited, due): (Vec<_>, Vec<_>) =
            sessions.into_iter().partition(|session| self.came_in_time(*session));
        if !awaited.is_empty() {
            self.ledger.not_proposed(&Command::Expire { sessions: awaited });
        }
        (!due.is_empty()).then_some(Command::Expire { sessions: due })
    }

    /// Whether something arrived of a session before its deadline that must prove its tenure first.
    fn came_in_time(&self, session: SessionNo) -> bool {
        let Some(arrivals) = self.unproven.get(&session) else { return false };
        let deadline = self.ledger.deadline(session);
        deadline.is_some_and(|deadline| arrivals.iter().any(|at| *at <= deadline))
    }

    /// A round was confirmed: expiries may go on if it began after the gap.
    pub(super) fn open_gate(&mut self, round: u64) {
        if self.expiry_gate.is_some_and(|gate| round > gate) {
            self.expiry_gate = None;
        }
    }
}
