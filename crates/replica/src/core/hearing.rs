//! What peers say: admitted first, then told to Raft or to the core.

use std::sync::Arc;
use std::time::Duration;

use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use regent_election::mutant::{self, Mutant};

use super::admission::{Admission, LocalRaft, Refused, admit, admit_snapshot};
use super::heartbeats::ArrivedHeartbeat;
use super::proposals::Submission;
use super::requests::{LeaderKnowledge, Waiter};
use super::{Core, Role};
use crate::io::{HeartbeatAnswer, PeerMessage};
use crate::limits::{TERM_LEAP_EVERY, TERM_LEAP_MAX};
use crate::member::ReplicaId;
use crate::replicated::{ReplicatedState, leaps};

impl Core {
    pub(super) fn on_message(&mut self, from: ReplicaId, message: PeerMessage) {
        match message {
            PeerMessage::Raft(message) => self.on_raft(from, *message),
            // Only members have clients whose wishes count.
            PeerMessage::Propose { .. }
            | PeerMessage::Heartbeat { .. }
            | PeerMessage::Look { .. }
                if !self.knows(from) => {}
            PeerMessage::Propose { boot, number, command, request } => {
                let last = self.ledger.kept().last_applied(from);
                let taken = self.taken.get(&from).copied().unwrap_or_default();
                if leaps(last.max(taken), boot, number) {
                    let why = "it numbers a proposal further ahead than it can have come";
                    self.out.refused.push((from, Refused(why)));
                    return;
                }
                self.submissions.push_back(Submission::Remote {
                    replica: from,
                    boot,
                    number,
                    command,
                    request,
                });
            }
            PeerMessage::Declined { boot, number, why } => {
                let is_asked = |pending: &super::Pending| pending.sent_to == Some(from);
                if boot == self.config.boot
                    && self.pending.get(&number).is_some_and(is_asked)
                    && let Some(pending) = self.pending.remove(&number)
                {
                    self.refuse(pending.token, why.into());
                }
            }
            PeerMessage::Heartbeat { boot, number, session, sequence, tenure } => {
                let waiter = Waiter::Remote { replica: from, boot, number };
                self.count_heartbeat(waiter, ArrivedHeartbeat { session, sequence, tenure });
            }
            PeerMessage::Look { boot, number, group } => {
                let waiter = Waiter::RemoteLook { replica: from, boot, number, group };
                if self.role != Role::Leader || self.rounds.queue(self.now, waiter).is_err() {
                    let answer = HeartbeatAnswer::Unavailable;
                    self.out
                        .sends
                        .push((from, PeerMessage::HeartbeatAnswer { boot, number, answer }));
                }
            }
            PeerMessage::Seen { boot, number, index, remaining_ms, silent } => {
                match self.take_away(from, boot, number) {
                    Some(Waiter::Look(token, group, _)) => {
                        let remaining = remaining_ms.map(Duration::from_millis);
                        let sight = LeaderKnowledge { remaining, silent };
                        let waiter = Waiter::Look(token, group, Some(sight));
                        self.rounds.confirm_one(self.now, index, waiter);
                    }
                    // It answers what was not asked.
                    Some(waiter) => self.give_up(waiter),
                    None => {}
                }
            }
            PeerMessage::Removed { members } => self.on_removed(from, members),
            PeerMessage::HeartbeatAnswer { boot, number, answer } => {
                let Some(waiter) = self.take_away(from, boot, number) else { return };
                match answer {
                    HeartbeatAnswer::Confirmed { index } => {
                        self.rounds.confirm_one(self.now, index, waiter);
                    }
                    HeartbeatAnswer::NotNewer { last } => self.not_newer(waiter, last),
                    HeartbeatAnswer::Unavailable => self.give_up(waiter),
                    HeartbeatAnswer::Unproven { index } => self.not_counted(waiter, index),
                }
            }
        }
    }

    fn on_raft(&mut self, from: ReplicaId, mut message: Message) {
        if self.config.is_witness && mutant::is(Mutant::StrippedWitness) {
            strip(&mut message);
        }
        if message.msg_type == MessageType::MsgSnapshot {
            let why = Refused("a snapshot was announced among messages, without its bytes");
            self.out.refused.push((from, why));
            return;
        }
        if matches!(message.msg_type, MessageType::MsgRequestVote | MessageType::MsgRequestPreVote)
        {
            self.tell_removed(from);
        }
        match self.judged(from, |local| admit(local, from.get(), &message)) {
            Ok(Admission::Step) => {}
            Ok(Admission::Ignore) => return,
            Err(why) => {
                self.out.refused.push((from, why));
                return;
            }
        }
        if !self.believes_term(&message) {
            return;
        }
        if matches!(message.msg_type, MessageType::MsgAppend | MessageType::MsgHeartbeat) {
            self.contact_at = Some(self.now);
        }
        self.note_answer(from, &message);
        if !self.may_commit_by_vote(&message) {
            (message.commit, message.commit_term) = (0, 0);
        }
        // A message of somebody who is no member any more is none of our business.
        let _ = self.node.step(message);
    }

    /// Notes that a member answered what this replica told it as Raft leader. What it says unasked shows one way only.
    fn note_answer(&mut self, from: ReplicaId, message: &Message) {
        let is_answer = matches!(
            message.msg_type,
            MessageType::MsgAppendResponse | MessageType::MsgHeartbeatResponse
        );
        if is_answer && message.term == self.node.raft.term && self.knows(from) {
            self.answered_at.insert(from, self.now);
        }
    }

    pub(super) fn on_snapshot(
        &mut self,
        from: ReplicaId,
        message: Message,
        bytes: Arc<[u8]>,
        replicated: Box<ReplicatedState>,
    ) {
        let revision = self.ledger.state().revision();
        let admitted = self.judged(from, |local| {
            admit_snapshot(local, from.get(), &message, &replicated, revision)
        });
        match admitted {
            Ok(Admission::Step) => {}
            Ok(Admission::Ignore) => return,
            Err(why) => {
                self.out.refused.push((from, why));
                return;
            }
        }
        if !self.believes_term(&message) {
            return;
        }
        let index = message.get_snapshot().get_metadata().index;
        let _ = self.node.step(message);
        // Of several that arrive before a turn, Raft keeps one, and not always the last.
        let kept = self.node.snap().map(|kept| kept.get_metadata().index);
        if kept == Some(index) {
            self.arriving = Some((index, bytes, replicated));
        }
    }

    /// Whether Raft may commit entries because this message says that they are. Of leaders it must. What a candidate or a
    /// voter says is believed only where an election may hang on it: nobody leads, and a change of members is not known
    /// to be committed here. This replica might ask removed ones for their votes, and those who know better might have
    /// too short a log to win.
    fn may_commit_by_vote(&self, message: &Message) -> bool {
        let is_vote = matches!(
            message.msg_type,
            MessageType::MsgRequestVote
                | MessageType::MsgRequestPreVote
                | MessageType::MsgRequestVoteResponse
                | MessageType::MsgRequestPreVoteResponse
        );
        let raft = &self.node.raft;
        let said = || {
            let from = raft.raft_log.committed.saturating_add(1);
            self.node.store().slice(from, message.commit.saturating_add(1))
        };
        let is_change = |entry: &Entry| entry.entry_type == EntryType::EntryConfChangeV2;
        !is_vote || (raft.leader_id == 0 && said().iter().any(is_change))
    }

    /// Whether a peer is a member, or still counts in a change of members that is half done.
    pub(super) fn knows(&self, id: ReplicaId) -> bool {
        let is_counted = self.node.raft.prs().get(id.get()).is_some();
        is_counted || self.ledger.kept().members.contains_key(&id)
    }

    /// Lets somebody judge what `from` sent by the condition of the local Raft.
    fn judged<T>(&self, from: ReplicaId, judge: impl FnOnce(&LocalRaft<'_>) -> T) -> T {
        let raft = &self.node.raft;
        let log = &raft.raft_log;
        judge(&LocalRaft {
            id: raft.id,
            term: raft.term,
            is_leader: raft.state == raft::StateRole::Leader,
            leader: raft.leader_id,
            knows_sender: self.knows(from),
            has_voters: !self.node.store().members().voters.is_empty(),
            last: log.last_index(),
            committed: log.committed,
            is_durable: self.is_log_durable(),
            // A late call to campaign must not meet a snapshot that is not durable yet, and none gives back what was
            // just laid down.
            may_campaign: self.installing.is_none() && !self.makes_way(),
            read_rounds: self.read_rounds_of(from),
            term_of: &|index| log.term(index).unwrap_or(0),
        })
    }

    /// How many read rounds of a member wait here for a quorum. Each opens with its name, which admission checks.
    fn read_rounds_of(&self, member: ReplicaId) -> usize {
        let name = member.get().to_le_bytes();
        let waiting = &self.node.raft.read_only.read_index_queue;
        waiting.iter().filter(|context| context.starts_with(&name)).count()
    }

    /// Whether the disk has confirmed the whole log. Before that, this replica must not win an election: the library
    /// takes it for granted.
    ///
    /// What the library counts as persisted is not enough. If an entry is replaced and then comes back while the disk
    /// still writes it for the first time, the first writing counts, and the later two are not on disk yet.
    pub(super) fn is_log_durable(&self) -> bool {
        let log = &self.node.raft.raft_log;
        log.persisted == log.last_index() && !self.unconfirmed.iter().any(|batch| batch.holds_log)
    }

    /// Whether Raft may be told of this term. Messages raise the term by a bounded amount in a while, so that no member
    /// can use all terms up. One that is beyond raises it that far and is not heard otherwise: a replica that somebody
    /// has driven ahead must be reached again by the rest, or neither would ever hear the other. Only pre-votes raise no
    /// term, here as in Raft.
    ///
    /// A replica that knows of no voters has promised nothing in any term and believes all: it joins a cluster whose
    /// term somebody may have driven for days.
    fn believes_term(&mut self, message: &Message) -> bool {
        let (term, own) = (message.term, self.node.raft.term);
        if term <= own {
            return true;
        }
        if self.node.store().members().voters.is_empty() {
            self.term_since = (self.now, term);
            return true;
        }
        if self.now.since(self.term_since.0) >= TERM_LEAP_EVERY {
            self.term_since = (self.now, own);
        }
        let most = self.term_since.1.saturating_add(TERM_LEAP_MAX);
        if term <= most {
            return true;
        }
        let is_pre_vote = message.msg_type == MessageType::MsgRequestPreVote
            || (message.msg_type == MessageType::MsgRequestPreVoteResponse && !message.reject);
        if own < most && !is_pre_vote {
            self.node.raft.become_follower(most, 0);
        }
        false
    }

    /// Takes out who waits for an answer of `from`. Nobody else can give it.
    fn take_away(&mut self, from: ReplicaId, boot: u64, number: u64) -> Option<Waiter> {
        let is_asked = self.away.get(&number).is_some_and(|away| away.to == from);
        if boot != self.config.boot || !is_asked {
            return None;
        }
        self.away.remove(&number).map(|away| away.waiter)
    }
}

/// Takes everything out of entries: a planted mistake.
fn strip(message: &mut Message) {
    let is_normal = |entry: &&mut Entry| entry.entry_type == EntryType::EntryNormal;
    for entry in message.entries.iter_mut().filter(is_normal) {
        entry.data = Vec::new().into();
    }
}
