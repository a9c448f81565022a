//! What Raft wants sent, written and applied.
//!
//! The order is the library's contract: entries are in the log before the batch is acknowledged to
//! Raft; what a follower says about them leaves only when the disk has confirmed them.
//!
//! A leader speaks while its entries are being written, but never in a Raft term that its disk may
//! still forget. The library sees to that by asking for votes only when its own is durable, save for a
//! voter that is alone: that one wins at once, and after a power cut would win the same term again and
//! say other things in it, to learners that remember what it said first.

use raft::eraftpb::{Entry, HardState, Message, MessageType};
use regent_election::{Group, Ledger, Moment};

use super::{Core, Unconfirmed};
use crate::io::{Batch, HeartbeatAnswer, PeerMessage};
use crate::limits::APPEND_BYTES_MAX;
use crate::log::weight;
use crate::member::ReplicaId;

use super::requests::Waiter;

/// Rounds of Raft's own demands in one turn: messages it makes while being served come next turn.
const READIES_PER_TURN: usize = 8;

impl Core {
    pub(super) fn handle_ready(&mut self) {
        for _ in 0..READIES_PER_TURN {
            if !self.node.has_ready() {
                return;
            }
            let mut ready = self.node.ready();
            let number = ready.number();
            self.note_vote(number, ready.hs());
            let mut later = ready.take_persisted_messages();
            let at_once = ready.take_messages();
            if self.unkept_vote.is_none() {
                self.send(at_once);
            } else {
                later.extend(at_once);
            }
            for state in ready.take_read_states() {
                self.confirm(&state.request_ctx, state.index);
            }
            let snapshot = self.install(ready.snapshot());
            let entries = ready.take_entries();
            let hard_state = ready.hs().cloned();
            let log = self.node.mut_store();
            log.append(&entries);
            if let Some(hard_state) = &hard_state {
                log.set_hard_state(hard_state.clone());
            }
            self.committed.extend(ready.take_committed_entries());
            let later: Vec<(ReplicaId, PeerMessage)> =
                later.into_iter().flat_map(|message| self.addressed(message)).collect();
            let must_sync = ready.must_sync();
            let is_installed = snapshot.is_some();
            let is_empty =
                snapshot.is_none() && entries.is_empty() && hard_state.is_none() && !must_sync;
            self.node.advance_append_async(ready);
            if is_empty {
                self.nothing_to_keep(number, later);
                continue;
            }
            let holds_log = is_installed || !entries.is_empty();
            self.unconfirmed.push_back(Unconfirmed {
                number,
                ready: number,
                since: self.now,
                holds_log,
                last: entries.last().map_or(0, |entry| entry.index),
                messages: later,
            });
            self.out.batches.push(Batch { number, snapshot, entries, hard_state, must_sync });
            if is_installed {
                self.installing = Some((number, self.applied));
            }
        }
    }

    /// Nothing is as durable as everything before it: it is confirmed at once, or with the last batch
    /// that the disk still has. A round of heartbeats never waits for the disk's thread.
    fn nothing_to_keep(&mut self, ready: u64, messages: Vec<(ReplicaId, PeerMessage)>) {
        match self.unconfirmed.back_mut() {
            Some(before) => {
                before.ready = ready;
                before.messages.extend(messages);
            }
            None => {
                self.out.sends.extend(messages);
                self.node.on_persist_ready(ready);
            }
        }
    }

    fn note_vote(&mut self, batch: u64, hard_state: Option<&HardState>) {
        let kept = self.node.store().hard_state();
        if hard_state.is_some_and(|it| (it.term, it.vote) != (kept.term, kept.vote)) {
            self.unkept_vote = Some(batch);
        }
    }

    /// The disk has confirmed everything up to this batch.
    pub(super) fn on_persisted(&mut self, batch: u64) {
        // One sync may confirm several batches: how long it took is told by the first, what it confirmed by the last.
        let confirmed = self.unconfirmed.iter().take_while(|it| it.number <= batch);
        let mut confirmed = confirmed.filter(|it| it.last > 0);
        if let Some(first) = confirmed.next() {
            let (since, last) = (first.since, confirmed.last().unwrap_or(first).last);
            self.note_sync(since, last);
        }
        while let Some(kept) = self.unconfirmed.pop_front_if(|it| it.number <= batch) {
            self.out.sends.extend(kept.messages);
            self.node.on_persist_ready(kept.ready);
        }
        self.unkept_vote.take_if(|number| *number <= batch);
        if let Some((_, index)) = self.installing.take_if(|(number, _)| *number <= batch) {
            // Raft must not look for entries that the snapshot has replaced.
            self.node.advance_apply_to(index);
            self.snapshot_is_kept(index);
        }
    }

    fn send(&mut self, messages: Vec<Message>) {
        for message in messages {
            let addressed = self.addressed(message);
            self.out.sends.extend(addressed);
        }
    }

    /// A message on its way. The library gathers entries in a message without any that it made before, though that one
    /// may name another place than the one they follow: it is made to name the right one. It also gathers without end:
    /// what is too long for a frame becomes several messages.
    fn addressed(&self, message: Message) -> Vec<(ReplicaId, PeerMessage)> {
        let Some(to) = ReplicaId::new(message.to) else { return Vec::new() };
        let parts = self.placed(message).map(split).unwrap_or_default();
        parts.into_iter().map(|part| (to, PeerMessage::Raft(Box::new(part)))).collect()
    }

    fn placed(&self, mut message: Message) -> Option<Message> {
        if message.msg_type == MessageType::MsgAppend
            && let Some(first) = message.entries.first()
            && message.index + 1 != first.index
        {
            let raft = &self.node.raft;
            message.index = first.index - 1;
            message.log_term = raft.raft_log.term(message.index).ok()?;
            let is_known = message.log_term > 0 || message.index == 0;
            if !is_known || message.term != raft.term {
                return None;
            }
        }
        Some(message)
    }

    /// A round is confirmed: remote heartbeats are told at once, the rest when it is applied.
    fn confirm(&mut self, context: &[u8], index: u64) {
        let Some(round) = self.rounds.confirm(self.now, context, index) else { return };
        self.open_gate(round);
        for remote in self.rounds.take_remote(remote_of) {
            self.tell_remote(index, remote);
        }
    }

    /// Somebody's outcome is known as of `index`, without a round of its own.
    pub(super) fn confirm_one(&mut self, index: u64, waiter: Waiter) {
        match remote_of(&waiter) {
            Some(remote) => self.tell_remote(index, remote),
            None => self.rounds.confirm_one(self.now, index, waiter),
        }
    }

    fn tell_remote(&mut self, index: u64, (replica, boot, number, looks_at): Remote) {
        let message = match looks_at {
            None => {
                let answer = HeartbeatAnswer::Confirmed { index };
                PeerMessage::HeartbeatAnswer { boot, number, answer }
            }
            Some(group) => {
                let (remaining_ms, silent) = self.sight(&group);
                PeerMessage::Seen { boot, number, index, remaining_ms, silent }
            }
        };
        self.out.sends.push((replica, message));
    }

    /// Takes the state of a snapshot that Raft has accepted.
    fn install(
        &mut self,
        snapshot: &raft::eraftpb::Snapshot,
    ) -> Option<(raft::eraftpb::SnapshotMetadata, std::sync::Arc<[u8]>)> {
        let place = snapshot.get_metadata();
        if place.index == 0 {
            return None;
        }
        let (index, bytes, replicated) =
            self.arriving.take().expect("Raft accepts a snapshot only in the step that brought it");
        assert_eq!(index, place.index, "Raft accepted another snapshot than the one that came");
        self.node.mut_store().restore(place.clone());
        // What the members say counts more than what this replica was told when it joined: if it
        // were wrong about itself, it would one day take no state for an empty one.
        self.config.is_witness = replicated.makes_witness(self.config.id, self.config.is_witness);
        self.node.mut_store().may_send_snapshots(!self.config.is_witness);
        let (replicated, bytes) = if self.config.is_witness {
            let bare = replicated.without_state();
            let bytes = bare.encode().into();
            (bare, bytes)
        } else {
            (*replicated, bytes)
        };
        self.out.installed = Some(replicated.state.revision());
        self.ledger = Ledger::new(replicated, self.config.incarnation, self.now)
            .with_budget(self.config.state_budget);
        self.committed.clear();
        self.applying = None;
        self.applied = index;
        self.snapshot_task = None;
        Some((place.clone(), bytes))
    }

    /// The wall clock of this replica, as a note for people in what it proposes.
    pub fn note_wall_clock(&mut self, wall_ms: u64) {
        self.wall_ms = wall_ms;
    }

    /// The moment of the last turn.
    #[must_use]
    pub const fn now(&self) -> Moment {
        self.now
    }
}

/// The entries of a message in several of at most [`APPEND_BYTES_MAX`], or of one entry, each of which follows the one
/// before.
fn split(mut message: Message) -> Vec<Message> {
    let mut rest: Vec<Entry> = message.take_entries().into_iter().collect();
    let mut parts = Vec::new();
    loop {
        let mut bytes = 0;
        let fits = rest.iter().take_while(|entry| {
            bytes += weight(entry) as u64;
            bytes <= APPEND_BYTES_MAX
        });
        let count = fits.count().max(1).min(rest.len());
        let later = rest.split_off(count);
        let end = rest.last().map(|entry| (entry.index, entry.term));
        let mut part = message.clone();
        part.set_entries(rest.into());
        parts.push(part);
        if later.is_empty() {
            return parts;
        }
        rest = later;
        (message.index, message.log_term) = end.unwrap_or((message.index, message.log_term));
    }
}

/// Another replica's client: its replica, that replica's run, its number, and what it looks at.
type Remote = (ReplicaId, u64, u64, Option<Group>);

fn remote_of(waiter: &Waiter) -> Option<Remote> {
    match waiter {
        Waiter::Remote { replica, boot, number } => Some((*replica, *boot, *number, None)),
        Waiter::RemoteLook { replica, boot, number, group } => {
            Some((*replica, *boot, *number, Some(group.clone())))
        }
        Waiter::Read(..)
        | Waiter::Stale(..)
        | Waiter::Heartbeat(..)
        | Waiter::Unproven(..)
        | Waiter::Uncounted(..)
        | Waiter::Look(..)
        | Waiter::LeadershipCheck => None,
    }
}
