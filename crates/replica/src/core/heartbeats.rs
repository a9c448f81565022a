//! Heartbeats at a replica: its clients' and those that other replicas forward.
//!
//! The Raft leader alone counts them. One that must prove a tenure is counted when it is proved, from its
//! arrival; a refused one extends nothing. A leader that has not applied everything cannot judge yet: the
//! heartbeat waits for a round, and what it came before, the expiry of its session, waits for it (`leases`).

use regent_election::ledger::HeartbeatOutcome;
use regent_election::mutant::{self, Mutant};
use regent_election::store::OfficeState;
use regent_election::{Group, Moment, Refusal, SessionId, SessionNo, Term};

use super::requests::Waiter;
use super::{Away, Core, Role, unavailable};
use crate::io::{HeartbeatAnswer, PeerMessage, Response, Token};
use crate::member::ReplicaId;

/// A heartbeat.
#[derive(Clone, Debug)]
pub(super) struct ArrivedHeartbeat {
    pub(super) session: SessionId,
    pub(super) sequence: Option<u64>,
    /// The tenure that it must prove before it counts: a refused renewal extends nothing.
    pub(super) tenure: Option<(Group, Term)>,
}

/// A heartbeat that is not proved yet. Once it is, it counts from its arrival (semantics 5).
#[derive(Debug)]
pub(super) struct Unproven {
    heartbeat: ArrivedHeartbeat,
    arrived_at: Moment,
    /// Whose it is, by what was applied then.
    session: Option<SessionNo>,
}

impl Core {
    /// Whether a heartbeat of this session proves the tenure it must prove, by what is applied here. While anything that
    /// is committed waits to be applied here, nothing is proved: others may have applied it. That includes entries that
    /// Raft has not handed out yet, because a majority has them and this replica's own disk does not.
    fn is_proved(&self, session: SessionId, tenure: Option<&(Group, Term)>) -> bool {
        let Some((group, term)) = tenure else { return true };
        let is_applied = self.applied >= self.node.raft.raft_log.committed;
        let state = self.ledger.state();
        let may_renew = |no| state.may_renew(group, no, *term).is_ok();
        is_applied && state.find_session(session).is_some_and(may_renew)
    }

    /// Counts a heartbeat of this replica's client, or sends it to the Raft leader, which alone judges it:
    /// a follower may not know yet that the tenure is over, or has begun.
    pub(super) fn take_heartbeat(&mut self, token: Token, heartbeat: ArrivedHeartbeat) {
        match (self.role, self.leader()) {
            (Role::Leader, _) => {
                self.count_heartbeat(Waiter::Heartbeat(token, heartbeat.clone()), heartbeat)
            }
            (Role::Follower | Role::Candidate, Some(leader)) => {
                self.send_heartbeat(leader, token, heartbeat);
            }
            (Role::Follower | Role::Candidate, None) => {
                self.give_up(Waiter::Heartbeat(token, heartbeat));
            }
        }
    }

    /// A heartbeat has arrived at the Raft leader. Arrival alone extends the session, if no tenure is to
    /// be proved first; the answer waits for a round that begins after it (semantics 5, 6).
    pub(super) fn count_heartbeat(&mut self, waiter: Waiter, heartbeat: ArrivedHeartbeat) {
        if self.role != Role::Leader || self.config.is_witness {
            self.give_up(waiter);
            return;
        }
        let waiter = if self.is_proved(heartbeat.session, heartbeat.tenure.as_ref()) {
            let Some(waiter) = self.count(self.now, waiter, &heartbeat) else { return };
            if mutant::is(Mutant::HeartbeatWithoutRound) {
                self.confirm_one(self.applied, waiter);
                return;
            }
            waiter
        } else {
            let session = self.ledger.state().find_session(heartbeat.session);
            if let Some(no) = session {
                self.unproven.entry(no).or_default().push(self.now);
            }
            Waiter::Unproven(
                Box::new(waiter),
                Unproven { heartbeat, arrived_at: self.now, session },
            )
        };
        if let Err(waiter) = self.rounds.queue(self.now, waiter) {
            self.give_up(waiter);
        }
    }

    /// Counts a heartbeat from its arrival and gives back who waits for its answer; none if that is
    /// decided elsewhere.
    fn count(
        &mut self,
        at: Moment,
        waiter: Waiter,
        heartbeat: &ArrivedHeartbeat,
    ) -> Option<Waiter> {
        match self.ledger.heartbeat(at, heartbeat.session, heartbeat.sequence) {
            HeartbeatOutcome::Extended | HeartbeatOutcome::Unknown => Some(waiter),
            HeartbeatOutcome::Expiring if mutant::is(Mutant::ExpiringRevived) => Some(waiter),
            HeartbeatOutcome::Expiring => match self.ledger.state().find_session(heartbeat.session)
            {
                Some(no) => {
                    self.held.entry(no).or_default().push(waiter);
                    None
                }
                None => Some(waiter),
            },
            HeartbeatOutcome::NotNewer { last } => {
                self.not_newer(waiter, last);
                None
            }
        }
    }

    /// Everything that was committed when this heartbeat arrived is applied: it is proved now, or refused
    /// without having counted. A round begun after it arrived is confirmed, so it needs no other.
    pub(super) fn judge(&mut self, waiter: Waiter, unproven: &Unproven) {
        self.is_judged(unproven);
        let Unproven { heartbeat, arrived_at, .. } = unproven;
        let response = self.heartbeat_response(heartbeat.session, heartbeat.tenure.clone());
        if matches!(response, Response::Heartbeat { .. }) {
            if self.role != Role::Leader {
                self.give_up(waiter);
            } else if let Some(waiter) = self.count(*arrived_at, waiter, heartbeat) {
                match waiter {
                    Waiter::Heartbeat(token, _) => self.answer(token, response),
                    waiter => self.confirm_one(self.applied, waiter),
                }
            }
            return;
        }
        match waiter {
            Waiter::Remote { replica, boot, number } => {
                let answer = HeartbeatAnswer::Unproven { index: self.applied };
                self.out
                    .sends
                    .push((replica, PeerMessage::HeartbeatAnswer { boot, number, answer }));
            }
            Waiter::Heartbeat(token, _) => self.answer(token, response),
            waiter => self.give_up(waiter),
        }
    }

    /// Nobody waits for the judgement of this one any more.
    fn is_judged(&mut self, unproven: &Unproven) {
        let Some(no) = unproven.session else { return };
        let Some(arrivals) = self.unproven.get_mut(&no) else { return };
        if let Some(at) = arrivals.iter().position(|at| *at == unproven.arrived_at) {
            arrivals.swap_remove(at);
        }
        if arrivals.is_empty() {
            self.unproven.remove(&no);
        }
    }

    /// The Raft leader refused a heartbeat as of `index`: its client is told why, from a state that has
    /// applied it.
    pub(super) fn not_counted(&mut self, waiter: Waiter, index: u64) {
        match waiter {
            Waiter::Heartbeat(token, heartbeat) => {
                self.rounds.confirm_one(self.now, index, Waiter::Uncounted(token, heartbeat));
            }
            waiter => self.give_up(waiter),
        }
    }

    fn send_heartbeat(&mut self, leader: ReplicaId, token: Token, heartbeat: ArrivedHeartbeat) {
        let waiter = Waiter::Heartbeat(token, heartbeat.clone());
        if !self.may_forward() {
            self.give_up(waiter);
            return;
        }
        self.numbers += 1;
        let number = self.numbers;
        self.away.insert(number, Away { sent_at: self.now, to: leader, waiter });
        let (boot, ArrivedHeartbeat { session, sequence, tenure }) = (self.config.boot, heartbeat);
        let message = PeerMessage::Heartbeat { boot, number, session, sequence, tenure };
        self.out.sends.push((leader, message));
    }

    /// Gives up one that could not be judged in time. It was not refused, so its arrival counts
    /// (semantics 9).
    pub(super) fn give_up_unproven(&mut self, waiter: Waiter, unproven: Unproven) {
        self.is_judged(&unproven);
        let Unproven { heartbeat, arrived_at, .. } = unproven;
        let _ = self.ledger.heartbeat(arrived_at, heartbeat.session, heartbeat.sequence);
        self.give_up(waiter);
    }

    /// Answers one that the Raft leader did not count.
    pub(super) fn tell_uncounted(&mut self, token: Token, heartbeat: ArrivedHeartbeat) {
        let response = match self.heartbeat_response(heartbeat.session, heartbeat.tenure) {
            // Acknowledged it would promise time that nobody has counted.
            Response::Heartbeat { .. } => Response::Error(unavailable(
                "the tenure began after its renewal was judged; renew again",
            )),
            refusal => refusal,
        };
        self.answer(token, response);
    }

    pub(super) fn not_newer(&mut self, waiter: Waiter, last: u64) {
        match waiter {
            Waiter::Heartbeat(token, heartbeat) => {
                let given = heartbeat.sequence.unwrap_or_default();
                self.refuse(token, Refusal::HeartbeatNotNewer { given, last }.into());
            }
            Waiter::Remote { replica, boot, number } => {
                let answer = HeartbeatAnswer::NotNewer { last };
                self.out
                    .sends
                    .push((replica, PeerMessage::HeartbeatAnswer { boot, number, answer }));
            }
            Waiter::Read(..)
            | Waiter::Stale(..)
            | Waiter::Unproven(..)
            | Waiter::Uncounted(..)
            | Waiter::Look(..)
            | Waiter::RemoteLook { .. }
            | Waiter::LeadershipCheck => {}
        }
    }

    /// The answer to a confirmed heartbeat, from applied state.
    pub(super) fn heartbeat_response(
        &self,
        session: SessionId,
        tenure: Option<(Group, Term)>,
    ) -> Response {
        let state = self.ledger.state();
        let Some(no) = state.find_session(session) else {
            return Response::Error(Refusal::SessionUnknown.into());
        };
        let mut must_accept = false;
        if let Some((group, term)) = tenure {
            if let Err(refusal) = state.may_renew(&group, no, term) {
                return Response::Error(refusal.into());
            }
            must_accept =
                state.holder(&group).is_some_and(|holder| holder.state == OfficeState::Elected);
        }
        Response::Heartbeat {
            ttl_ms: state.ttl_ms(no).unwrap_or_default(),
            epoch: state.epoch(no).unwrap_or_default(),
            revision: state.revision(),
            must_accept,
        }
    }
}
