//! What is told to the core by clients and the disk; what peers say is in `hearing`.

use std::sync::Arc;
use std::time::Duration;

use raft::SnapshotStatus;
use regent_election::access::AccessTable;
use regent_election::mutant::{self, Mutant};
use regent_election::state::{Lens, Query, View};
use regent_election::store::StoreError;
use regent_election::{Group, Moment, Refusal, SessionNo};

use super::heartbeats::{ArrivedHeartbeat, Unproven};
use super::proposals::Submission;
use super::rounds::Waits;
use super::{Away, Core, Role, unavailable};
use crate::io::{HeartbeatAnswer, Input, PeerMessage, Request, Response, Token};
use crate::limits::{FORWARDED_MAX, LOG_BYTES_KEPT, LOG_ENTRIES_KEPT};
use crate::member::ReplicaId;

/// Somebody who is answered once a round is confirmed and applied.
#[derive(Debug)]
pub(super) enum Waiter {
    /// A client of this replica reads.
    Read(Token, Query),
    /// A client of this replica reads whatever there is, as soon as no entry is half applied.
    Stale(Token, Query),
    /// A client of this replica keeps its session alive.
    Heartbeat(Token, ArrivedHeartbeat),
    /// The same, of another replica's client.
    Remote { replica: ReplicaId, boot: u64, number: u64 },
    /// One of these two at the Raft leader, before it is counted: by what is applied here it does not
    /// prove its tenure. A round shows whether this replica is behind.
    Unproven(Box<Self>, Unproven),
    /// A client of this replica whose heartbeat the Raft leader did not count, for want of that proof.
    Uncounted(Token, ArrivedHeartbeat),
    /// A client of this replica looks at a group; what only the leader knows is beside it.
    Look(Token, Group, Option<LeaderKnowledge>),
    /// The same, of another replica's client.
    RemoteLook { replica: ReplicaId, boot: u64, number: u64, group: Group },
    /// Confirms that this replica still leads.
    LeadershipCheck,
}

impl Waits for Waiter {
    fn member(&self) -> Option<ReplicaId> {
        match self {
            Self::Remote { replica, .. } | Self::RemoteLook { replica, .. } => Some(*replica),
            Self::Unproven(waiter, _) => waiter.member(),
            Self::Read(..)
            | Self::Stale(..)
            | Self::Heartbeat(..)
            | Self::Uncounted(..)
            | Self::Look(..)
            | Self::LeadershipCheck => None,
        }
    }
}

/// What the Raft leader knows of a group beside its state.
#[derive(Debug)]
pub(super) struct LeaderKnowledge {
    pub(super) remaining: Option<Duration>,
    pub(super) silent: Vec<SessionNo>,
}

impl Core {
    /// Takes notice of something; what follows from it happens in the next turn.
    pub fn on(&mut self, now: Moment, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::Message { from, message } => self.on_message(from, message),
            Input::Snapshot { from, message, bytes, replicated } => {
                self.on_snapshot(from, *message, bytes, replicated);
            }
            Input::Unreachable { replica } => self.node.report_unreachable(replica.get()),
            Input::SnapshotSent { to, arrived } => {
                let status = if arrived { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
                self.node.report_snapshot(to.get(), status);
            }
            Input::Request { token, request } => self.on_request(token, request),
            Input::Persisted { batch } => self.on_persisted(batch),
            Input::SnapshotKept { place } => {
                self.snapshot_task = None;
                self.try_snapshots_again();
                // Where snapshots are frequent, so little is kept that they are also used.
                let kept = LOG_ENTRIES_KEPT.min(self.config.snapshot_every / 10);
                let index = place.index;
                let log = self.node.mut_store();
                let keep_after = log.keep_after(index, kept, LOG_BYTES_KEPT);
                log.compact(place, keep_after);
                self.snapshot_is_kept(index);
            }
            Input::SnapshotNotMade => {
                self.snapshot_task = None;
                self.put_snapshot_off();
                for (_, token) in std::mem::take(&mut self.snapshot_waiters) {
                    self.refuse(token, unavailable("a snapshot could not be made"));
                }
            }
            Input::Room { is_there } => self.has_room = is_there,
        }
    }

    fn on_request(&mut self, token: Token, request: Request) {
        // A message told before may have ended this replica's leadership: what it may do follows from
        // what it is, not from what it was at its last turn.
        self.notice_role();
        match request {
            Request::Submit { .. } | Request::Heartbeat { .. } | Request::Read { .. }
                if self.config.is_witness =>
            {
                // Every answer comes from one's own state, and a witness has none.
                let why = "this replica is a witness: it votes and keeps no state; ask another";
                self.refuse(token, unavailable(why));
            }
            Request::Submit { .. } | Request::Heartbeat { .. } | Request::Read { .. }
                if let Some(why) = self.removal_refusal() =>
            {
                self.refuse(token, why);
            }
            Request::Submit { command, request, query } => {
                self.submissions.push_back(Submission::Local {
                    token,
                    command: Box::new(command),
                    request,
                    query,
                    since: self.now,
                });
            }
            Request::Heartbeat { session, sequence, tenure } => {
                self.take_heartbeat(token, ArrivedHeartbeat { session, sequence, tenure });
            }
            Request::Read { query: Query::Group(group), linearizable: true }
                if self.role != Role::Leader =>
            {
                let waiter = Waiter::Look(token, group.clone(), None);
                match self.leader() {
                    Some(leader) if self.may_forward() => {
                        self.numbers += 1;
                        let (boot, number) = (self.config.boot, self.numbers);
                        self.away.insert(number, Away { sent_at: self.now, to: leader, waiter });
                        self.out.sends.push((leader, PeerMessage::Look { boot, number, group }));
                    }
                    Some(_) | None => self.give_up(waiter),
                }
            }
            Request::Read { query, linearizable: true } => {
                let waiter = Waiter::Read(token, query);
                if mutant::is(Mutant::ReadWithoutRound) {
                    self.rounds.confirm_one(self.now, self.applied, waiter);
                    return;
                }
                if let Err(waiter) = self.rounds.queue(self.now, waiter) {
                    self.give_up(waiter);
                }
            }
            Request::Read { query, linearizable: false } if self.applying.is_some() => {
                // Half an entry bears the revision of the whole: a watch from there would never
                // hear of the other half (semantics 24, S5).
                self.rounds.confirm_one(self.now, self.applied, Waiter::Stale(token, query));
            }
            Request::Read { query, linearizable: false } => self.answer_stale(token, &query),
            Request::Members(change) => self.change_members(token, change),
            Request::Transfer { to } => self.transfer(token, to),
            Request::Snapshot => {
                if self.node.store().snapshot_place().index >= self.applied {
                    self.answer(token, Response::Done);
                } else {
                    self.try_snapshots_again();
                    self.node.store().want_snapshot();
                    self.snapshot_waiters.push((self.applied, token));
                }
            }
        }
    }

    fn answer_stale(&mut self, token: Token, query: &Query) {
        let response = match self.read(query) {
            Ok(view) => Response::View { view, stale_ms: Some(self.stale_ms()) },
            Err(refusal) => Response::Error(refusal.into()),
        };
        self.answer(token, response);
    }

    /// A snapshot up to this index is durable, whoever made it.
    pub(super) fn snapshot_is_kept(&mut self, index: u64) {
        for (_, token) in self.snapshot_waiters.extract_if(.., |(at, _)| *at <= index) {
            self.out.answers.push((token, Response::Done));
        }
    }

    /// Those whom the leader has confirmed and this replica cannot answer yet wait, too.
    pub(super) fn may_forward(&self) -> bool {
        self.away.len() + self.rounds.confirmed() < FORWARDED_MAX
    }

    /// Tells somebody that it could not be confirmed. A heartbeat that arrived stays counted.
    pub(super) fn give_up(&mut self, waiter: Waiter) {
        self.give_up_for(waiter, &unavailable("no quorum has confirmed this replica in time"));
    }

    /// The same, for this reason.
    pub(super) fn give_up_for(&mut self, waiter: Waiter, why: &StoreError) {
        match waiter {
            Waiter::Read(token, _)
            | Waiter::Stale(token, _)
            | Waiter::Heartbeat(token, _)
            | Waiter::Uncounted(token, _)
            | Waiter::Look(token, ..) => {
                self.refuse(token, why.clone());
            }
            Waiter::Remote { replica, boot, number }
            | Waiter::RemoteLook { replica, boot, number, .. } => {
                let answer = HeartbeatAnswer::Unavailable;
                self.out
                    .sends
                    .push((replica, PeerMessage::HeartbeatAnswer { boot, number, answer }));
            }
            Waiter::Unproven(waiter, unproven) => self.give_up_unproven(*waiter, unproven),
            Waiter::LeadershipCheck => {
                // The gate opens only by a round, so one is tried for as long as it is closed.
                if self.ledger.is_serving() && self.expiry_gate.is_some() {
                    let _ = self.rounds.queue(self.now, Waiter::LeadershipCheck);
                }
            }
        }
    }

    /// Begins one round for everybody who waits, if a round could be confirmed at all.
    pub(super) fn begin_round(&mut self) {
        if !self.rounds.is_wanted() {
            return;
        }
        let can_begin = match self.role {
            // Before its first commit a leader does not know what was committed before it.
            Role::Leader => self.node.raft.commit_to_current_term(),
            Role::Follower | Role::Candidate => self.leader().is_some(),
        };
        if can_begin {
            let context = self.rounds.begin(self.now);
            self.node.read_index(context);
        }
    }

    /// Answers everybody whose round is confirmed and applied.
    pub(super) fn settle(&mut self) {
        if self.applying.is_some() {
            return;
        }
        for waiter in self.rounds.settled(self.applied) {
            match waiter {
                Waiter::Read(token, query) => {
                    let response = match self.read(&query) {
                        Ok(view) => Response::View { view, stale_ms: None },
                        Err(refusal) => Response::Error(refusal.into()),
                    };
                    self.answer(token, response);
                }
                Waiter::Stale(token, query) => self.answer_stale(token, &query),
                Waiter::Heartbeat(token, heartbeat) => {
                    let response = self.heartbeat_response(heartbeat.session, heartbeat.tenure);
                    self.answer(token, response);
                }
                Waiter::Unproven(waiter, unproven) => self.judge(*waiter, &unproven),
                Waiter::Uncounted(token, heartbeat) => self.tell_uncounted(token, heartbeat),
                Waiter::Look(token, group, sight) => {
                    let response = match self.look(&group, sight) {
                        Ok(view) => Response::View { view, stale_ms: None },
                        Err(refusal) => Response::Error(refusal.into()),
                    };
                    self.answer(token, response);
                }
                Waiter::Remote { .. } | Waiter::RemoteLook { .. } | Waiter::LeadershipCheck => {}
            }
        }
    }

    /// A group as an operator sees it, with what the Raft leader knew of it.
    fn look(&self, group: &Group, sight: Option<LeaderKnowledge>) -> Result<View, Refusal> {
        let query = Query::Group(group.clone());
        let Some(LeaderKnowledge { remaining, silent }) = sight else { return self.read(&query) };
        let lens = Lens {
            incarnation: self.config.incarnation,
            remaining: &|_| remaining,
            is_silent: &|no| silent.contains(&no),
        };
        self.ledger.state().query(&query, lens)
    }

    /// What this Raft leader knows of a group beside its state.
    pub(super) fn sight(&self, group: &Group) -> (Option<u64>, Vec<SessionNo>) {
        let (remaining, silent) = self.ledger.sight(self.now, group);
        (remaining.map(|remaining| remaining.as_millis() as u64), silent)
    }

    /// Reads from applied state.
    pub(super) fn read(&self, query: &Query) -> Result<View, Refusal> {
        self.ledger.read(self.now, query)
    }

    /// Who may do what, as far as it is applied.
    pub(crate) fn access(&self) -> &Arc<AccessTable> {
        self.ledger.state().access()
    }

    fn stale_ms(&self) -> u64 {
        if self.ledger.is_serving() {
            return 0;
        }
        let since = self.contact_at.map(|at| self.now.since(at));
        since.map_or(u64::MAX, |since| since.as_millis() as u64)
    }

    /// Ends what has waited too long.
    pub(super) fn time_out(&mut self) {
        for waiter in self.rounds.time_out(self.now) {
            self.give_up(waiter);
        }
        let patience = Duration::from_millis(2 * self.timing.election_ms_max());
        let now = self.now;
        while let Some(entry) = self.away.first_entry()
            && now.since(entry.get().sent_at) >= patience
        {
            let Away { waiter, .. } = entry.remove();
            self.give_up(waiter);
        }
        self.time_out_proposals();
    }
}
