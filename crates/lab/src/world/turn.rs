//! A replica's loop: drain what has arrived, turn, let leave what came of it.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use raft::eraftpb::{Entry, EntryType, MessageType};
use regent_election::store::StoreError;
use regent_election::{Command, Group, Moment, SessionId, Term};
use regent_replica::Role;
use regent_replica::io::{Input, Outputs, PeerMessage, Request, Response};
use regent_replica::replicated::{Payload, payload};

use super::net::Address;
use super::parcel::{Ask, Item, Parcel};
use super::replica::{Asked, InboxItem, Replica, Running, Served};
use super::{Happening, World, replica_id};
use crate::fnv::print;
use crate::history::{Proc, What};
use crate::plan::Sabotage;

/// How often a watch says that everything was delivered.
const MARK_EVERY_NS: u64 = 300_000_000;
/// Items of one watch in one turn; the rest comes in the next.
const ITEMS_PER_TURN: usize = 32;
/// A loop that was away for longer is noted in the history: a quarter of the smallest ttl there is.
const GAP_NS: u64 = 125_000_000;
/// How soon a full disk is written to again.
const NO_ROOM_AGAIN_AFTER_NS: u64 = 100_000_000;
/// Entries between two prints of a replica's whole state.
const HASH_EVERY: u64 = 32;

impl World {
    pub(super) fn arrive_at_replica(&mut self, from: Address, id: u64, parcel: Parcel) {
        let Some(replica) = self.replicas.get(&id) else { return };
        let Some(run) = replica.run() else {
            self.refuse_connection(from, id, &parcel);
            self.lost(from, Address::Replica(id), &parcel);
            return;
        };
        let told = match (parcel, from) {
            (Parcel::Peer { bytes, snapshot, run: meant }, Address::Replica(from)) => {
                if meant.is_some_and(|meant| meant != run) {
                    return;
                }
                if snapshot.is_some() {
                    self.report_snapshot(from, id);
                }
                InboxItem::Peer { from, bytes, snapshot }
            }
            (Parcel::Ask { call, ask }, Address::Client(client)) => {
                InboxItem::Ask { client, call, ask }
            }
            (Parcel::Watch { watch, scope, cursor }, Address::Client(client)) => {
                self.serve_watch(id, client, watch, scope, cursor);
                return;
            }
            (Parcel::Unwatch { watch }, Address::Client(_)) => {
                if let Some(running) = self.running(id) {
                    running.watches.remove(&watch);
                }
                return;
            }
            (
                Parcel::Peer { .. }
                | Parcel::Ask { .. }
                | Parcel::Watch { .. }
                | Parcel::Unwatch { .. }
                | Parcel::Reply { .. }
                | Parcel::Item { .. }
                | Parcel::Write { .. }
                | Parcel::Question { .. }
                | Parcel::Told { .. }
                | Parcel::Refused { .. },
                _,
            ) => return,
        };
        self.tell(id, told);
    }

    /// A dead process's machine refuses connections; a dead machine says nothing.
    fn refuse_connection(&mut self, from: Address, id: u64, parcel: &Parcel) {
        if let Parcel::Ask { call, .. } = parcel
            && self.dice.once_in(2)
        {
            let error = StoreError::Unavailable { why: "refused".into(), retry_after: None };
            let response = Box::new(Response::Error(error));
            self.send(Address::Replica(id), from, Parcel::Reply { call: *call, response });
        }
    }

    /// The sender of a snapshot learns that it has arrived.
    fn report_snapshot(&mut self, sender: u64, to: u64) {
        let Some(run) = self.replicas.get(&sender).and_then(Replica::run) else { return };
        let told = InboxItem::SnapshotSent { to: replica_id(to), arrived: true };
        self.queue.push(self.now + 1_000_000, Happening::Tell { replica: sender, run, told });
    }

    /// Puts something into a replica's inbox.
    pub(super) fn tell(&mut self, id: u64, told: InboxItem) {
        let now = self.now;
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let Some(running) = &mut replica.running else { return };
        running.inbox.push_back((now, told));
        let at = now + 20_000 + self.dice.skewed(0..=100_000);
        self.wake_replica(id, at);
    }

    /// Sees to it that a replica's loop comes round at `at` or earlier.
    pub(super) fn wake_replica(&mut self, id: u64, at: u64) {
        let at = at.max(self.now);
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        if replica.pauses > 0 {
            return;
        }
        let Some(running) = &mut replica.running else { return };
        let at = at.max(running.busy_until);
        if running.turn_at.is_none_or(|before| at < before) {
            running.turn_at = Some(at);
            let run = running.run;
            self.queue.push(at, Happening::Turn { replica: id, run });
        }
    }

    pub(super) fn turn(&mut self, id: u64, run: u64) {
        let now = self.now;
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        if replica.pauses > 0 {
            return;
        }
        // One that was called earlier has made this one void.
        let is_due = |r: &Running| r.run == run && r.turn_at == Some(now);
        let Some(mut running) = replica.running.take_if(|running| is_due(running)) else { return };
        running.turn_at = None;
        self.stats.turns += 1;
        let clock = replica.clock;
        let own_now = clock.read(now);
        let proc = Proc::Replica { id, run };
        let away = running
            .turned_at
            .replace(own_now)
            .map_or(0, |at| u64::try_from(own_now.since(at).as_nanos()).unwrap_or(u64::MAX));
        if away > GAP_NS && running.is_serving {
            self.note(proc, What::Gap { clock: own_now.as_nanos(), away });
        }
        if self.plan.sabotage == Some(Sabotage::ExpiriesFirst) {
            let outputs = running.core.turn(own_now);
            self.act(id, &mut running, outputs);
        }
        while let Some((arrived_at, told)) = running.inbox.pop_front() {
            self.drain(id, &mut running, arrived_at, told);
        }
        let outputs = running.core.turn(own_now);
        self.act(id, &mut running, outputs);
        let next_at = clock.when(running.core.next_at()).max(now + 10_000);
        if let Some(replica) = self.replicas.get_mut(&id) {
            running.busy_until = now + self.dice.skewed(0..=replica.lag_ns);
            replica.running = Some(running);
        }
        self.wake_replica(id, next_at);
        self.begin_sync(id);
    }

    fn drain(&mut self, id: u64, running: &mut Running, arrived_at: u64, told: InboxItem) {
        let Some(clock) = self.replicas.get(&id).map(|replica| replica.clock) else { return };
        let own_now = clock.read(self.now);
        let arrived = clock.read(arrived_at).as_nanos();
        let proc = Proc::Replica { id, run: running.run };
        let input = match told {
            InboxItem::Peer { from, bytes, snapshot } => {
                let message = PeerMessage::decode(&bytes).expect("what was put can be taken");
                self.note_heard(proc, running, sign_of_peer(&message), arrived, own_now);
                from_peer(running, from, message, snapshot)
            }
            InboxItem::Ask { client, call, ask } => {
                self.note_heard(proc, running, sign_of(&ask), arrived, own_now);
                ask_core(running, client, call, ask)
            }
            InboxItem::Persisted { batch } => Input::Persisted { batch },
            InboxItem::SnapshotKept { place } => Input::SnapshotKept { place },
            InboxItem::SnapshotNotMade => Input::SnapshotNotMade,
            InboxItem::SnapshotSent { to, arrived } => Input::SnapshotSent { to, arrived },
            InboxItem::Unreachable { replica } => Input::Unreachable { replica },
            InboxItem::Room { is_there } => Input::Room { is_there },
        };
        running.core.on(own_now, input);
    }

    /// Tells the history that a session was heard by the Raft leader: when it arrived, and now that
    /// the loop takes it.
    fn note_heard(
        &mut self,
        proc: Proc,
        running: &mut Running,
        sign: Option<Sign>,
        clock: u64,
        own_now: Moment,
    ) {
        let Some(Sign { session, sequence, is_heartbeat, tenure }) = sign else { return };
        if running.core.role() != Role::Leader {
            return;
        }
        // One that does not prove its tenure by now may be refused, and a refused one is no sign of life.
        let is_sure = match tenure {
            None => true,
            Some(tenure) if !running.is_proved(session, &tenure) => return,
            Some(_) => running.core.applied() >= running.core.status().committed,
        };
        let taken = own_now.as_nanos();
        self.note(proc, What::Hear { is_heartbeat, is_sure, session, sequence, clock, taken });
    }

    /// Does what a turn wants done.
    fn act(&mut self, id: u64, running: &mut Running, outputs: Outputs) {
        let Outputs { sends, batches, answers, events, snapshot, installed, refused, .. } = outputs;
        self.refuses_nobody(id, &refused);
        self.note_role(id, running);
        for batch in batches {
            self.note_appended(id, running, &batch.entries);
            let chain = running.arriving_chain(&batch);
            running.mirror(&batch, chain);
            if let Some(hard_state) = &batch.hard_state {
                running.commits.push_back((batch.number, hard_state.commit));
            }
            if let Some(replica) = self.replicas.get_mut(&id) {
                replica.disk.write(batch, chain);
            }
        }
        self.note_applied(id, running);
        for (to, message) in sends {
            self.address(id, running, to.get(), &message);
        }
        if let Some(revision) = installed {
            running.hub.leap(revision);
        }
        for (revision, events) in events {
            running.hub.publish(revision, &events);
            if revision > self.changed {
                self.changed = revision;
                let at = self.now;
                self.changes.extend(events.into_iter().map(|change| (at, change)));
            }
        }
        self.pump(running);
        for (token, response) in answers {
            self.answer(id, running, token, response);
        }
        if let Some(task) = snapshot {
            let (bytes, chain) = running.make_snapshot(&task);
            if let Some(replica) = self.replicas.get_mut(&id) {
                replica.disk.write_snapshot(task, bytes, chain);
            }
        }
        if !running.outbox.is_empty() {
            let at = self.now + self.dice.skewed(1_000..=200_000);
            self.queue.push(at, Happening::Depart { replica: id, run: running.run });
        }
    }

    fn note_role(&mut self, id: u64, running: &mut Running) {
        let proc = Proc::Replica { id, run: running.run };
        let raft_term = running.core.raft_term();
        if running.core.role() == Role::Leader && running.led != raft_term {
            running.led = raft_term;
            self.note(proc, What::RaftLeader { raft_term });
        }
        let is_serving = running.core.is_serving();
        if std::mem::replace(&mut running.is_serving, is_serving) != is_serving {
            let clock = running.core.now().as_nanos();
            let what =
                if is_serving { What::Serving { clock } } else { What::ServingOver { clock } };
            self.note(proc, what);
        }
    }

    fn note_appended(&mut self, id: u64, running: &Running, entries: &[Entry]) {
        let raft_term = running.core.raft_term();
        if running.core.role() != Role::Leader {
            return;
        }
        let clock = running.core.now().as_nanos();
        let proc = Proc::Replica { id, run: running.run };
        for entry in entries.iter().filter(|entry| entry.term == raft_term) {
            let session = match payload(entry) {
                Ok(Payload::Proposal(_, proposal)) => proposal.command.session(),
                Ok(_) | Err(_) => None,
            };
            let index = entry.index;
            self.note(proc, What::Append { session, index, raft_term, clock });
        }
    }

    /// Tells the history what was applied: for the first time anywhere, and here.
    fn note_applied(&mut self, id: u64, running: &mut Running) {
        let applied = running.core.applied();
        let proc = Proc::Replica { id, run: running.run };
        if applied <= running.noted {
            return;
        }
        for index in running.noted.max(self.committed) + 1..=applied {
            let entry = running.log.entry(index).expect("what is applied was in the log");
            let is_conf = entry.entry_type != EntryType::EntryNormal;
            let (data, context) = (entry.data.to_vec(), entry.context.to_vec());
            if is_conf {
                self.note_members(index, &context);
            }
            let what = What::Commit { index, raft_term: entry.term, is_conf, data, context };
            self.committed = index;
            self.note(Proc::World, what);
        }
        running.noted = applied;
        let chain = running.log.chain_at(applied);
        let clock = running.core.now().as_nanos();
        self.note(proc, What::Apply { index: applied, chain, clock });
        if applied.is_multiple_of(HASH_EVERY) {
            self.note_state(proc, running);
        }
    }

    pub(super) fn note_state(&mut self, proc: Proc, running: &Running) {
        let has_state = !matches!(proc, Proc::Replica { id, .. } if self.is_witness(id));
        if running.core.is_between() || !has_state {
            return;
        }
        let replicated = running.core.replicated();
        let hash = print(replicated.encode());
        let (index, revision) = (running.core.applied(), replicated.state.revision());
        self.note(proc, What::StateHash { index, revision, hash });
    }

    /// Puts a message to a peer into the outbox, with the snapshot it announces.
    fn address(&mut self, id: u64, running: &mut Running, to: u64, message: &PeerMessage) {
        let mut bytes = Vec::with_capacity(64);
        message.put(&mut bytes);
        let bytes: Arc<[u8]> = bytes.into();
        let mut snapshot = None;
        let mut meant = None;
        if let PeerMessage::Raft(raft) = message
            && raft.msg_type == MessageType::MsgSnapshot
        {
            let index = raft.get_snapshot().get_metadata().index;
            let kept = self.replicas.get(&id).and_then(|r| r.disk.snapshot_at(index));
            let Some(kept) = kept else {
                // It was replaced, or is not durable yet: Raft asks again later.
                let told = InboxItem::SnapshotSent { to: replica_id(to), arrived: false };
                running.inbox.push_back((self.now, told));
                return;
            };
            snapshot = Some(kept);
        }
        if matches!(message, PeerMessage::Propose { .. }) {
            // A connection does not outlive its receiver.
            meant = Some(self.replicas.get(&to).and_then(Replica::run).unwrap_or(0));
        }
        let parcel = Parcel::Peer { bytes, snapshot, run: meant };
        running.outbox.push_back((Address::Replica(to), parcel));
    }

    /// Answers a client, or goes on with a heartbeat that gives terms up first.
    fn answer(
        &mut self,
        id: u64,
        running: &mut Running,
        token: regent_replica::io::Token,
        response: Response,
    ) {
        let (client, call, response) = match running.asked.remove(&token) {
            None => return,
            Some(Asked::Plain { client, call }) => (client, call, response),
            Some(Asked::Disown { client, call, rest }) => match response {
                Response::Applied { .. } => {
                    running.inbox.push_back((self.now, InboxItem::Ask { client, call, ask: rest }));
                    let at = self.now + 20_000;
                    self.queue.push(at, Happening::Turn { replica: id, run: running.run });
                    running.turn_at = Some(at);
                    return;
                }
                Response::Error(_)
                | Response::Heartbeat { .. }
                | Response::View { .. }
                | Response::Done => (client, call, response),
            },
        };
        let parcel = Parcel::Reply { call, response: Box::new(response) };
        running.outbox.push_back((Address::Client(client), parcel));
    }

    /// What a replica has to say leaves; if it stands still, when it goes on.
    pub(super) fn depart(&mut self, id: u64, run: u64) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        if replica.pauses > 0 || replica.run() != Some(run) {
            return;
        }
        let Some(running) = &mut replica.running else { return };
        for (to, parcel) in std::mem::take(&mut running.outbox) {
            self.send(Address::Replica(id), to, parcel);
        }
    }

    /// Begins a sync if something waits for one.
    pub(super) fn begin_sync(&mut self, id: u64) {
        let now = self.now;
        let sync_ns = self.plan.disk.sync_ns.clone();
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let Some(run) = replica.run() else { return };
        let is_skipped = self.plan.sabotage == Some(Sabotage::FsyncSkipped);
        let may_confirm = replica.disk.may_confirm_early() && self.dice.once_in(2);
        if (is_skipped || may_confirm)
            && let Some(batch) = replica.disk.last_written()
        {
            let told = InboxItem::Persisted { batch };
            self.queue.push(now, Happening::Tell { replica: id, run, told });
        }
        if !replica.disk.begin_sync() {
            return;
        }
        let slowness = if is_skipped { 2_000_000_000 } else { 0 };
        let at = (now + self.dice.skewed(sync_ns) + slowness).max(replica.stalled_until);
        self.queue.push(at, Happening::Synced { replica: id, run });
    }

    /// Tells a replica what was found out about the room on its disk, if it does not know.
    fn note_room(&mut self, id: u64, room: Option<bool>) {
        let Some(is_there) = room else { return };
        let Some(running) = self.running(id) else { return };
        if std::mem::replace(&mut running.has_room, is_there) != is_there {
            self.tell(id, InboxItem::Room { is_there });
        }
    }

    pub(super) fn synced(&mut self, id: u64, run: u64) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        if replica.run() != Some(run) {
            return;
        }
        let synced = replica.disk.end_sync();
        if synced.is_fatal {
            // Nobody knows what is on the disk: whoever starts again reads what is.
            self.note_fault(format!("the disk of replica {id} failed"), false);
            self.end_process(id);
            self.start_later(id);
            return;
        }
        if let Some(batch) = synced.batch {
            if let Some(running) = self.running(id) {
                while let Some((_, commit)) = running.commits.pop_front_if(|it| it.0 <= batch) {
                    running.kept_commit = running.kept_commit.max(commit);
                }
            }
            self.tell(id, InboxItem::Persisted { batch });
        }
        for place in synced.snapshots {
            self.tell(id, InboxItem::SnapshotKept { place });
        }
        if synced.not_made {
            self.tell(id, InboxItem::SnapshotNotMade);
        }
        self.note_room(id, synced.room);
        if synced.is_refused {
            let at = self.now + NO_ROOM_AGAIN_AFTER_NS;
            self.queue.push(at, Happening::Synced { replica: id, run });
            return;
        }
        self.begin_sync(id);
    }

    fn serve_watch(
        &mut self,
        id: u64,
        client: u32,
        watch: u64,
        scope: regent_election::store::Scope,
        cursor: Option<regent_election::Cursor>,
    ) {
        let now = self.now;
        let Some(running) = self.running(id) else { return };
        let state = &running.core.replicated().state;
        let incarnation = running.hub.newest().incarnation;
        let replay = match (&scope, cursor) {
            (regent_election::store::Scope::Group(group), Some(cursor))
                if !running.core.is_between() =>
            {
                state.replay(group, cursor, incarnation)
            }
            _ => None,
        };
        let watching = running.hub.subscribe(scope, cursor, replay);
        running
            .watches
            .insert(watch, Served { client, watch: watching, number: 0, marked_at: now });
        self.wake_replica(id, now + 50_000);
    }

    /// Hands out what watches have, and marks.
    fn pump(&mut self, running: &mut Running) {
        let now = self.now;
        let mut context = Context::from_waker(Waker::noop());
        for (watch, served) in &mut running.watches {
            for _ in 0..ITEMS_PER_TURN {
                let item = match served.watch.poll_next(&mut context) {
                    Poll::Ready(Some(item)) => Item::Hub(item),
                    Poll::Ready(None) => break,
                    Poll::Pending if now >= served.marked_at + MARK_EVERY_NS => {
                        served.marked_at = now;
                        Item::Mark(regent_election::store::Watch::cursor(&served.watch))
                    }
                    Poll::Pending => break,
                };
                served.number += 1;
                let parcel = Parcel::Item { watch: *watch, number: served.number, item };
                running.outbox.push_back((Address::Client(served.client), parcel));
            }
        }
    }

    pub(super) fn running(&mut self, id: u64) -> Option<&mut Running> {
        self.replicas.get_mut(&id)?.running.as_deref_mut()
    }
}

impl Replica {
    /// The number of the run, if it runs.
    pub(super) fn run(&self) -> Option<u64> {
        self.running.as_ref().map(|running| running.run)
    }
}

/// A sign of a session's life.
struct Sign {
    session: SessionId,
    sequence: Option<u64>,
    is_heartbeat: bool,
    /// What it must prove.
    tenure: Option<(Group, Term)>,
}

fn sign_of(ask: &Ask) -> Option<Sign> {
    match ask {
        Ask::Heartbeat { session, sequence, disowned, tenure } => {
            let (is_heartbeat, tenure) = (disowned.is_empty(), tenure.clone());
            Some(Sign { session: *session, sequence: *sequence, is_heartbeat, tenure })
        }
        Ask::Submit { command, .. } => sign_of_command(command),
        Ask::Read { .. } | Ask::Members(_) | Ask::RaftTransfer { .. } => None,
    }
}

fn sign_of_command(command: &Command) -> Option<Sign> {
    let session = command.session()?;
    Some(Sign { session, sequence: None, is_heartbeat: false, tenure: None })
}

fn sign_of_peer(message: &PeerMessage) -> Option<Sign> {
    match message {
        PeerMessage::Heartbeat { session, sequence, tenure, .. } => {
            let (session, sequence, tenure) = (*session, *sequence, tenure.clone());
            Some(Sign { session, sequence, is_heartbeat: true, tenure })
        }
        PeerMessage::Propose { command, .. } => sign_of_command(command),
        _ => None,
    }
}

/// What a peer said, as the core is told.
fn from_peer(
    running: &mut Running,
    from: u64,
    message: PeerMessage,
    snapshot: Option<(Arc<[u8]>, u64)>,
) -> Input {
    let from = replica_id(from);
    match (message, snapshot) {
        (PeerMessage::Raft(message), Some((bytes, chain))) => {
            let replicated = regent_replica::ReplicatedState::decode(&bytes)
                .expect("a snapshot arrives whole or not at all");
            let index = message.get_snapshot().get_metadata().index;
            running.arriving.insert(index, chain);
            Input::Snapshot { from, message, bytes, replicated: Box::new(replicated) }
        }
        (message, _) => Input::Message { from, message },
    }
}

/// A client's question, as the core is asked. Terms that a heartbeat gives up are resigned first, one
/// by one, as the store's server does.
fn ask_core(running: &mut Running, client: u32, call: u64, ask: Ask) -> Input {
    match ask {
        Ask::Heartbeat { session, sequence, tenure, mut disowned } if !disowned.is_empty() => {
            let (group, term) = disowned.remove(0);
            let rest = Ask::Heartbeat { session, sequence, tenure, disowned };
            let token = running.token(Asked::Disown { client, call, rest });
            let command = Command::Resign { group, session, term };
            let request = Request::Submit { command, request: None, query: None };
            Input::Request { token, request }
        }
        ask => {
            let token = running.token(Asked::Plain { client, call });
            Input::Request { token, request: ask.request() }
        }
    }
}
