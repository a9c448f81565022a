//! The bench: cores, instant disks that may also stall, a network of one millisecond, virtual time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use raft::eraftpb::{ConfState, HardState, MessageType, SnapshotMetadata};
use regent_election::state::{Query, View};
use regent_election::store::OfficeState;
use regent_election::{
    Answer, Command, Event, Group, IfLost, Metadata, Moment, Node, Refusal, Revision, SessionId,
    Settings, StateBudget,
};
use regent_replica::core::Refused;
use regent_replica::disk::snapshot::advance;
use regent_replica::io::{Batch, HandOverCause, Input, PeerMessage, Request, Response, Token};
use regent_replica::{
    Core, CoreConfig, Member, Members, Recovered, ReplicaId, ReplicatedState, Role,
};

pub(crate) const LINK: Duration = Duration::from_millis(1);

/// What one replica has on disk. Writes are instant and never fail.
#[derive(Clone)]
pub(crate) struct Disk {
    pub(crate) hard_state: HardState,
    pub(crate) place: SnapshotMetadata,
    pub(crate) snapshot: Arc<[u8]>,
    pub(crate) entries: Vec<raft::eraftpb::Entry>,
    pub(crate) boot: u64,
}

pub(crate) struct Cluster {
    pub(crate) now: Moment,
    pub(crate) cores: BTreeMap<ReplicaId, Core>,
    pub(crate) disks: BTreeMap<ReplicaId, Disk>,
    pub(crate) mail: VecDeque<(Moment, ReplicaId, ReplicaId, PeerMessage)>,
    pub(crate) cut: BTreeSet<(ReplicaId, ReplicaId)>,
    pub(crate) answers: BTreeMap<Token, Response>,
    pub(crate) tokens: u64,
    pub(crate) snapshot_every: u64,
    /// Who is told to be a witness, until the members say what it is.
    pub(crate) joins_as_witness: BTreeSet<ReplicaId>,
    /// Who has another budget for the state than the default, in bytes.
    pub(crate) budgets: BTreeMap<ReplicaId, StateBudget>,
    /// Disks that confirm nothing: what waits for each.
    pub(crate) stalled: BTreeMap<ReplicaId, Vec<Batch>>,
    /// Disks without room for a snapshot.
    pub(crate) without_room: BTreeSet<ReplicaId>,
    /// When each replica tried to make a snapshot.
    pub(crate) snapshots_tried: Vec<(ReplicaId, Moment)>,
    /// Who handed Raft leadership over because of its disk, to whom, and why.
    pub(crate) handed_over: Vec<(ReplicaId, ReplicaId, HandOverCause)>,
    /// Everything that was published to watchers of a replica since its start.
    pub(crate) events: BTreeMap<ReplicaId, Vec<(Revision, Event)>>,
    /// The last revision that watchers of a replica know of: it only rises.
    published: BTreeMap<ReplicaId, Revision>,
    /// Who was refused, by whom, and why: nobody who is in order.
    pub(crate) refused: Vec<(ReplicaId, ReplicaId, Refused)>,
    /// Whether some of what is sent is forged.
    pub(crate) is_attacked: bool,
}

pub(crate) fn id(number: u64) -> ReplicaId {
    ReplicaId::new(number).unwrap()
}

pub(crate) fn member(number: u64) -> Member {
    Member {
        peer_address: format!("peer-{number}"),
        client_address: format!("client-{number}"),
        is_witness: false,
    }
}

pub(crate) fn witness(number: u64) -> Member {
    Member { is_witness: true, ..member(number) }
}

impl Cluster {
    pub(crate) fn new(voters: u64) -> Self {
        Self::of((1..=voters).map(|n| (id(n), member(n))).collect())
    }

    pub(crate) fn of(members: Members) -> Self {
        let voters = members.len() as u64;
        let mut cluster = Self {
            now: Moment::from_millis(1000),
            cores: BTreeMap::new(),
            disks: BTreeMap::new(),
            mail: VecDeque::new(),
            cut: BTreeSet::new(),
            answers: BTreeMap::new(),
            tokens: 0,
            snapshot_every: 100_000,
            joins_as_witness: BTreeSet::new(),
            budgets: BTreeMap::new(),
            stalled: BTreeMap::new(),
            without_room: BTreeSet::new(),
            snapshots_tried: Vec::new(),
            handed_over: Vec::new(),
            events: BTreeMap::new(),
            published: BTreeMap::new(),
            refused: Vec::new(),
            is_attacked: false,
        };
        for number in 1..=voters {
            cluster.disks.insert(id(number), founding_disk(&members, voters));
            cluster.start(id(number));
        }
        cluster
    }

    pub(crate) fn start(&mut self, replica: ReplicaId) {
        let disk = self.disks.get_mut(&replica).unwrap();
        disk.boot += 1;
        let recovered = Recovered {
            hard_state: disk.hard_state.clone(),
            place: disk.place.clone(),
            replicated: ReplicatedState::decode(&disk.snapshot).unwrap(),
            entries: disk.entries.clone(),
        };
        self.published.insert(replica, recovered.replicated.state.revision());
        let mut config = CoreConfig::new(replica, disk.boot, replica.get() * 7919 + disk.boot);
        config.snapshot_every = self.snapshot_every;
        config.is_witness = self.joins_as_witness.contains(&replica);
        if let Some(budget) = self.budgets.get(&replica) {
            config.state_budget = *budget;
        }
        self.cores.insert(replica, Core::new(config, recovered, self.now).unwrap());
    }

    /// The process is gone, and with it whatever its disk had not confirmed.
    pub(crate) fn stop(&mut self, replica: ReplicaId) {
        self.cores.remove(&replica);
        self.events.remove(&replica);
        if let Some(unwritten) = self.stalled.get_mut(&replica) {
            unwritten.clear();
        }
    }

    /// From here on the disk of a replica confirms nothing.
    pub(crate) fn stall(&mut self, replica: ReplicaId) {
        self.stalled.insert(replica, Vec::new());
    }

    /// The disk writes what waited and goes on.
    pub(crate) fn unstall(&mut self, replica: ReplicaId) {
        for batch in self.stalled.remove(&replica).unwrap_or_default() {
            self.write(replica, batch);
        }
    }

    /// The disk writes the first batch that waits, and stalls again.
    pub(crate) fn write_first(&mut self, replica: ReplicaId) {
        let waiting = self.stalled.get_mut(&replica).unwrap();
        let first = waiting.remove(0);
        self.write(replica, first);
    }

    fn write(&mut self, replica: ReplicaId, batch: Batch) {
        let disk = self.disks.get_mut(&replica).unwrap();
        if let Some((place, bytes)) = batch.snapshot {
            (disk.place, disk.snapshot, disk.entries) = (place, bytes, Vec::new());
        }
        if let Some(first) = batch.entries.first() {
            disk.entries.retain(|entry| entry.index < first.index);
            disk.entries.extend(batch.entries);
        }
        if let Some(hard_state) = batch.hard_state {
            disk.hard_state = hard_state;
        }
        let core = self.cores.get_mut(&replica).unwrap();
        core.on(self.now, Input::Persisted { batch: batch.number });
    }

    pub(crate) fn step(&mut self) {
        self.now = self.now + LINK;
        let due = self.mail.iter().take_while(|(at, ..)| *at <= self.now).count();
        for (_, from, to, message) in self.mail.drain(..due).collect::<Vec<_>>() {
            self.deliver(from, to, message);
        }
        for replica in self.cores.keys().copied().collect::<Vec<_>>() {
            self.turn(replica);
        }
    }

    pub(crate) fn deliver(&mut self, from: ReplicaId, to: ReplicaId, message: PeerMessage) {
        if self.cut.contains(&(from, to)) {
            return;
        }
        // Everything that travels goes through its bytes.
        let mut bytes = Vec::new();
        message.put(&mut bytes);
        let message = PeerMessage::decode(&bytes).unwrap();
        let Some(core) = self.cores.get_mut(&to) else { return };
        let input = match message {
            PeerMessage::Raft(message) if message.msg_type == MessageType::MsgSnapshot => {
                let bytes = Arc::clone(&self.disks[&from].snapshot);
                let replicated = Box::new(ReplicatedState::decode(&bytes).unwrap());
                core.on(self.now, Input::Snapshot { from, message, bytes, replicated });
                let sent = Input::SnapshotSent { to, arrived: true };
                // Its sender may have ended while it was under way.
                if let Some(sender) = self.cores.get_mut(&from) {
                    sender.on(self.now, sent);
                }
                return;
            }
            message => Input::Message { from, message },
        };
        core.on(self.now, input);
    }

    pub(crate) fn turn(&mut self, replica: ReplicaId) {
        let outputs = self.cores.get_mut(&replica).unwrap().turn(self.now);
        for batch in outputs.batches {
            match self.stalled.get_mut(&replica) {
                Some(waiting) => waiting.push(batch),
                None => self.write(replica, batch),
            }
        }
        if let Some(task) = outputs.snapshot {
            let disk = self.disks.get_mut(&replica).unwrap();
            self.snapshots_tried.push((replica, self.now));
            let is_full = self.without_room.contains(&replica);
            let made = (!is_full).then(|| advance((&disk.place, &disk.snapshot), &task).ok());
            let input = match made.flatten() {
                Some(bytes) => {
                    disk.entries.retain(|entry| entry.index > task.place.index);
                    (disk.place, disk.snapshot) = (task.place.clone(), bytes.into());
                    Input::SnapshotKept { place: task.place }
                }
                None => Input::SnapshotNotMade,
            };
            self.cores.get_mut(&replica).unwrap().on(self.now, input);
        }
        self.handed_over.extend(outputs.hands_over.map(|(to, cause)| (replica, to, cause)));
        for (from, why) in outputs.refused {
            assert!(self.is_attacked, "{replica} refused {from}, which is in order: {why}");
            self.refused.push((replica, from, why));
        }
        let published = self.published.entry(replica).or_default();
        *published = outputs.installed.unwrap_or_default().max(*published);
        for (revision, _) in &outputs.events {
            assert!(*revision > *published, "revision {revision} was published after {published}");
            *published = *revision;
        }
        let told = outputs
            .events
            .into_iter()
            .flat_map(|(revision, events)| events.into_iter().map(move |event| (revision, event)));
        self.events.entry(replica).or_default().extend(told);
        self.answers.extend(outputs.answers);
        for (to, message) in outputs.sends {
            self.mail.push_back((self.now + LINK, replica, to, message));
        }
    }

    pub(crate) fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.step();
        }
    }

    pub(crate) fn leader(&self) -> Option<ReplicaId> {
        let mut leading: Vec<_> = self
            .cores
            .values()
            .map(Core::status)
            .filter(|status| status.role == Role::Leader)
            .collect();
        leading.sort_by_key(|status| status.raft_term);
        leading.last().map(|status| status.id)
    }

    pub(crate) fn await_leader(&mut self) -> ReplicaId {
        for _ in 0..5000 {
            self.step();
            if let Some(leader) = self.leader()
                && self.cores[&leader].status().is_serving
            {
                return leader;
            }
        }
        panic!("nobody leads after five seconds");
    }

    pub(crate) fn ask(&mut self, replica: ReplicaId, request: Request) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        let core = self.cores.get_mut(&replica).unwrap();
        core.on(self.now, Input::Request { token, request });
        token
    }

    pub(crate) fn answer(&mut self, replica: ReplicaId, request: Request) -> Response {
        let token = self.ask(replica, request);
        for _ in 0..10_000 {
            self.step();
            if let Some(response) = self.answers.remove(&token) {
                return response;
            }
        }
        panic!("no answer after ten seconds");
    }

    pub(crate) fn submit(
        &mut self,
        replica: ReplicaId,
        command: Command,
    ) -> Result<Answer, Refusal> {
        let request = Request::Submit { command, request: None, query: None };
        match self.answer(replica, request) {
            Response::Applied { answer, .. } => answer,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn leader_of(
        &mut self,
        replica: ReplicaId,
        group: &str,
    ) -> (Option<String>, u64, OfficeState) {
        let query = Query::Leader(Group::new(group).unwrap());
        match self.answer(replica, Request::Read { query, linearizable: true }) {
            Response::View { view: View::Leader(view), .. } => {
                (view.leader.map(|node| node.to_string()), view.term.get(), view.state)
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn founding_disk(members: &Members, voters: u64) -> Disk {
    let mut place = SnapshotMetadata::default();
    (place.index, place.term) = (1, 1);
    let mut conf = ConfState::default();
    conf.voters = (1..=voters).collect();
    place.set_conf_state(conf);
    let mut hard_state = HardState::default();
    (hard_state.term, hard_state.commit) = (1, 1);
    let replicated = ReplicatedState::found(Settings::default(), members.clone());
    Disk { hard_state, place, snapshot: replicated.encode().into(), entries: Vec::new(), boot: 0 }
}

pub(crate) fn session(number: u128) -> SessionId {
    SessionId::new(number).unwrap()
}

pub(crate) fn open(number: u128, ttl_ms: u64) -> Command {
    let node = Node::new(&format!("node-{number}")).unwrap();
    Command::Open { session: session(number), node, ttl_ms }
}

pub(crate) fn campaign(number: u128, group: &str) -> Command {
    Command::Campaign {
        group: Group::new(group).unwrap(),
        session: session(number),
        opening: None,
        if_lost: IfLost::Stand,
        priority: 0,
        metadata: Metadata::NONE,
    }
}

pub(crate) fn heartbeat(number: u128) -> Request {
    Request::Heartbeat { session: session(number), sequence: None, tenure: None }
}

pub(crate) fn two_and_a_witness() -> Cluster {
    Cluster::of(Members::from([(id(1), member(1)), (id(2), member(2)), (id(3), witness(3))]))
}
