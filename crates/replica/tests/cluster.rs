//! A whole cluster of cores in one thread: instant disks, a network of one millisecond, virtual time.
//!
//! The lab does this with faults; here the roads without them are walked, so that a failure points at
//! the core and not at the weather.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use raft::eraftpb::{ConfState, HardState, MessageType, SnapshotMetadata};
use regent_election::state::{Query, View};
use regent_election::store::{OfficeState, StoreError};
use regent_election::{
    Answer, Command, Entry, Group, IfLost, Metadata, Moment, Node, Policy, Refusal, SessionId,
    Settings, State, Term,
};
use regent_replica::io::{Input, PeerMessage, Request, Response, Token};
use regent_replica::{
    Core, CoreConfig, Member, MemberChange, Members, Recovered, ReplicaId, Replicated, Role,
};

const LINK: Duration = Duration::from_millis(1);

/// What one replica has on disk. Writes are instant and never fail.
#[derive(Clone)]
struct Disk {
    hard_state: HardState,
    place: SnapshotMetadata,
    snapshot: Arc<[u8]>,
    entries: Vec<raft::eraftpb::Entry>,
    boot: u64,
}

struct Cluster {
    now: Moment,
    cores: BTreeMap<ReplicaId, Core>,
    disks: BTreeMap<ReplicaId, Disk>,
    mail: VecDeque<(Moment, ReplicaId, ReplicaId, PeerMessage)>,
    cut: BTreeSet<(ReplicaId, ReplicaId)>,
    answers: BTreeMap<Token, Response>,
    tokens: u64,
    snapshot_every: u64,
}

fn id(number: u64) -> ReplicaId {
    ReplicaId::new(number).unwrap()
}

fn member(number: u64) -> Member {
    Member {
        peer_address: format!("peer-{number}"),
        client_address: format!("client-{number}"),
        is_witness: false,
    }
}

fn witness(number: u64) -> Member {
    Member { is_witness: true, ..member(number) }
}

impl Cluster {
    fn new(voters: u64) -> Self {
        Self::of((1..=voters).map(|n| (id(n), member(n))).collect())
    }

    fn of(members: Members) -> Self {
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
        };
        for number in 1..=voters {
            cluster.disks.insert(id(number), founding_disk(&members, voters));
            cluster.start(id(number));
        }
        cluster
    }

    fn start(&mut self, replica: ReplicaId) {
        let disk = self.disks.get_mut(&replica).unwrap();
        disk.boot += 1;
        let recovered = Recovered {
            hard_state: disk.hard_state.clone(),
            place: disk.place.clone(),
            whole: Replicated::decode(&disk.snapshot).unwrap(),
            entries: disk.entries.clone(),
        };
        let mut config = CoreConfig::new(replica, disk.boot, replica.get() * 7919 + disk.boot);
        config.snapshot_every = self.snapshot_every;
        config.is_witness =
            recovered.whole.members.get(&replica).is_some_and(|member| member.is_witness);
        self.cores.insert(replica, Core::new(config, recovered, self.now).unwrap());
    }

    fn stop(&mut self, replica: ReplicaId) {
        self.cores.remove(&replica);
    }

    fn step(&mut self) {
        self.now = self.now + LINK;
        let due = self.mail.iter().take_while(|(at, ..)| *at <= self.now).count();
        for (_, from, to, message) in self.mail.drain(..due).collect::<Vec<_>>() {
            self.deliver(from, to, message);
        }
        for replica in self.cores.keys().copied().collect::<Vec<_>>() {
            self.turn(replica);
        }
    }

    fn deliver(&mut self, from: ReplicaId, to: ReplicaId, message: PeerMessage) {
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
                let whole = Box::new(Replicated::decode(&bytes).unwrap());
                core.on(self.now, Input::Snapshot { from, message, bytes, whole });
                let sent = Input::SnapshotSent { to, arrived: true };
                self.cores.get_mut(&from).unwrap().on(self.now, sent);
                return;
            }
            message => Input::Message { from, message },
        };
        core.on(self.now, input);
    }

    fn turn(&mut self, replica: ReplicaId) {
        let core = self.cores.get_mut(&replica).unwrap();
        let outputs = core.turn(self.now);
        let disk = self.disks.get_mut(&replica).unwrap();
        for batch in outputs.batches {
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
            core.on(self.now, Input::Persisted { batch: batch.number });
        }
        if let Some(task) = outputs.snapshot {
            let mut whole = Replicated::decode(&disk.snapshot).unwrap();
            for entry in task.entries.iter().filter(|_| !task.is_bare) {
                whole.replay(entry).unwrap();
            }
            disk.entries.retain(|entry| entry.index > task.place.index);
            disk.place = task.place.clone();
            disk.snapshot = whole.encode().into();
            core.on(self.now, Input::SnapshotKept { place: task.place });
        }
        self.answers.extend(outputs.answers);
        for (to, message) in outputs.sends {
            self.mail.push_back((self.now + LINK, replica, to, message));
        }
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.step();
        }
    }

    fn leader(&self) -> Option<ReplicaId> {
        let mut leading: Vec<_> = self
            .cores
            .values()
            .map(Core::status)
            .filter(|status| status.role == Role::Leader)
            .collect();
        leading.sort_by_key(|status| status.raft_term);
        leading.last().map(|status| status.id)
    }

    fn await_leader(&mut self) -> ReplicaId {
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

    fn ask(&mut self, replica: ReplicaId, request: Request) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        let core = self.cores.get_mut(&replica).unwrap();
        core.on(self.now, Input::Request { token, request });
        token
    }

    fn answer(&mut self, replica: ReplicaId, request: Request) -> Response {
        let token = self.ask(replica, request);
        for _ in 0..10_000 {
            self.step();
            if let Some(response) = self.answers.remove(&token) {
                return response;
            }
        }
        panic!("no answer after ten seconds");
    }

    fn submit(&mut self, replica: ReplicaId, command: Command) -> Result<Answer, Refusal> {
        let request = Request::Submit { command, request: None, query: None };
        match self.answer(replica, request) {
            Response::Applied { answer, .. } => answer,
            other => panic!("{other:?}"),
        }
    }

    fn leader_of(&mut self, replica: ReplicaId, group: &str) -> (Option<String>, u64, OfficeState) {
        let query = Query::Leader(Group::new(group).unwrap());
        match self.answer(replica, Request::Read { query, linearizable: true }) {
            Response::View { view: View::Leader(view), .. } => {
                (view.leader.map(|node| node.to_string()), view.term.get(), view.state)
            }
            other => panic!("{other:?}"),
        }
    }
}

fn founding_disk(members: &Members, voters: u64) -> Disk {
    let mut place = SnapshotMetadata::default();
    (place.index, place.term) = (1, 1);
    let mut conf = ConfState::default();
    conf.voters = (1..=voters).collect();
    place.set_conf_state(conf);
    let mut hard_state = HardState::default();
    (hard_state.term, hard_state.commit) = (1, 1);
    let whole = Replicated::found(Settings::default(), members.clone());
    Disk { hard_state, place, snapshot: whole.encode().into(), entries: Vec::new(), boot: 0 }
}

fn session(number: u128) -> SessionId {
    SessionId::new(number).unwrap()
}

fn open(number: u128, ttl_ms: u64) -> Command {
    let node = Node::new(&format!("node-{number}")).unwrap();
    Command::Open { session: session(number), node, ttl_ms }
}

fn campaign(number: u128, group: &str) -> Command {
    Command::Campaign {
        group: Group::new(group).unwrap(),
        session: session(number),
        opening: None,
        if_lost: IfLost::Stand,
        priority: 0,
        metadata: Metadata::NONE,
    }
}

fn heartbeat(number: u128) -> Request {
    Request::Heartbeat { session: session(number), sequence: None, tenure: None }
}

#[test]
fn one_replica_elects_itself_and_serves() {
    let mut cluster = Cluster::new(1);
    let leader = cluster.await_leader();
    assert!(cluster.submit(leader, open(1, 10_000)).is_ok());
    let elected = cluster.submit(leader, campaign(1, "billing"));
    assert!(matches!(elected, Ok(Answer::Elected { term, .. }) if term == Term::new(1).unwrap()));
    let office = cluster.leader_of(leader, "billing");
    assert_eq!(office, (Some("node-1".into()), 1, OfficeState::Leading));
}

#[test]
fn requests_on_any_replica_are_answered_from_its_own_state() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    for number in 1..=3 {
        assert!(cluster.submit(id(number), open(number.into(), 10_000)).is_ok());
        assert!(cluster.submit(id(number), campaign(number.into(), "billing")).is_ok());
    }
    for number in 1..=3 {
        let office = cluster.leader_of(id(number), "billing");
        assert_eq!(office, (Some("node-1".into()), 1, OfficeState::Leading));
        assert!(matches!(
            cluster.answer(id(number), heartbeat(number.into())),
            Response::Heard { ttl_ms: 10_000, .. }
        ));
    }
    assert_eq!(cluster.leader(), Some(leader), "no fault, no change of Raft leader");
    let hashes: BTreeSet<Vec<u8>> =
        cluster.cores.values().map(|core| core.whole().encode()).collect();
    cluster.run(200);
    assert_eq!(hashes.len(), 1, "replicas agree (S8)");
}

#[test]
fn a_silent_session_expires_and_a_heard_one_does_not() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 1000)).unwrap();
    cluster.submit(leader, open(2, 1000)).unwrap();
    cluster.submit(leader, campaign(1, "billing")).unwrap();
    cluster.submit(leader, campaign(2, "billing")).unwrap();
    for _ in 0..5 {
        cluster.run(300);
        assert!(matches!(cluster.answer(id(1), heartbeat(1)), Response::Heard { .. }));
        assert!(matches!(cluster.answer(id(2), heartbeat(2)), Response::Heard { .. }));
    }
    for _ in 0..4 {
        assert_eq!(cluster.leader_of(id(3), "billing").1, 1, "node-1 was heard all the time");
        cluster.run(240);
        cluster.answer(id(2), heartbeat(2));
    }
    cluster.run(300);
    let office = cluster.leader_of(id(3), "billing");
    assert_eq!(office, (Some("node-2".into()), 2, OfficeState::Elected));
    assert_eq!(
        cluster.answer(id(1), heartbeat(1)),
        Response::Error(StoreError::Refused(Refusal::SessionUnknown))
    );
}

#[test]
fn a_change_of_raft_leader_ends_no_tenure() {
    let mut cluster = Cluster::new(3);
    let first = cluster.await_leader();
    cluster.submit(first, open(1, 1000)).unwrap();
    cluster.submit(first, campaign(1, "billing")).unwrap();
    cluster.run(900);
    cluster.stop(first);
    let second = cluster.await_leader();
    assert_ne!(first, second);
    // 900 ms of silence before, 900 after: the session has had a full ttl from the new leader.
    cluster.run(800);
    assert!(matches!(cluster.answer(second, heartbeat(1)), Response::Heard { .. }));
    assert_eq!(cluster.leader_of(second, "billing").1, 1);
    cluster.start(first);
    cluster.run(1000);
    let stale =
        Request::Read { query: Query::Leader(Group::new("billing").unwrap()), linearizable: false };
    assert!(matches!(cluster.answer(first, stale), Response::View { stale_ms: Some(_), .. }));
    let status = cluster.cores[&first].status();
    assert_eq!(status.applied, cluster.cores[&second].status().applied, "it caught up");
}

#[test]
fn a_minority_refuses_and_a_majority_goes_on() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 10_000)).unwrap();
    for other in (1..=3).map(id).filter(|other| *other != leader) {
        cluster.cut.insert((leader, other));
        cluster.cut.insert((other, leader));
    }
    cluster.run(2000);
    let next = cluster.leader().unwrap();
    assert_ne!(next, leader, "the majority has a leader of its own");
    assert_ne!(cluster.cores[&leader].status().role, Role::Leader, "the minority's stepped down");
    let query = Query::Leader(Group::new("billing").unwrap());
    let read = cluster.answer(leader, Request::Read { query, linearizable: true });
    assert!(matches!(read, Response::Error(StoreError::Unavailable { .. })), "{read:?}");
    let heard = cluster.answer(leader, heartbeat(1));
    assert!(matches!(heard, Response::Error(StoreError::Unavailable { .. })), "{heard:?}");
    let write = cluster
        .answer(leader, Request::Submit { command: campaign(1, "x"), request: None, query: None });
    assert!(matches!(write, Response::Error(StoreError::Unavailable { .. })), "{write:?}");
    assert!(cluster.submit(next, campaign(1, "billing")).is_ok());
    cluster.cut.clear();
    cluster.run(1000);
    assert_eq!(cluster.leader_of(leader, "billing").1, 1, "the healed one reads the majority's");
}

#[test]
fn everything_acknowledged_survives_the_death_of_all() {
    let mut cluster = Cluster::new(3);
    cluster.snapshot_every = 20;
    for number in 1..=3 {
        cluster.stop(id(number));
        cluster.start(id(number));
    }
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 10_000)).unwrap();
    for round in 0..60 {
        let won = cluster.submit(leader, campaign(1, "billing"));
        let Ok(Answer::Elected { term, .. }) = won else { panic!("{won:?}") };
        assert_eq!(term.get(), round + 1);
        let group = Group::new("billing").unwrap();
        cluster.submit(leader, Command::Resign { group, session: session(1), term }).unwrap();
    }
    assert!(cluster.disks[&leader].place.index > 100, "snapshots were made");
    for number in 1..=3 {
        cluster.stop(id(number));
    }
    for number in 1..=3 {
        cluster.start(id(number));
    }
    let leader = cluster.await_leader();
    assert_eq!(cluster.leader_of(leader, "billing"), (None, 60, OfficeState::Vacant));
    cluster.submit(leader, campaign(1, "billing")).unwrap();
    assert_eq!(cluster.leader_of(leader, "billing").1, 61, "terms rise through it all (S2)");
}

#[test]
fn members_come_and_go() {
    let mut cluster = Cluster::new(3);
    cluster.snapshot_every = 10;
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 10_000)).unwrap();
    for round in 0..30 {
        cluster.submit(leader, campaign(1, &format!("group-{round}"))).unwrap();
    }
    let add = MemberChange::Add { id: id(4), member: member(4) };
    assert_eq!(cluster.answer(leader, Request::Members(add.clone())), Response::Done);
    assert!(matches!(cluster.answer(leader, Request::Members(add)), Response::Error(_)));

    // A replica with an empty disk starts with no members and is told everything.
    let mut empty = founding_disk(&Members::new(), 0);
    (empty.place.index, empty.place.term) = (0, 0);
    empty.hard_state = HardState::default();
    cluster.disks.insert(id(4), empty);
    cluster.start(id(4));
    cluster.run(500);
    assert_eq!(cluster.cores[&id(4)].status().applied, cluster.cores[&leader].status().applied);
    assert_eq!(cluster.leader_of(id(4), "group-29").1, 1, "a learner answers too");

    let promote = MemberChange::Promote { id: id(4) };
    assert_eq!(cluster.answer(leader, Request::Members(promote)), Response::Done);
    assert_eq!(cluster.cores[&leader].status().voters.len(), 4);

    let own = MemberChange::Remove { id: leader };
    assert!(matches!(cluster.answer(leader, Request::Members(own.clone())), Response::Error(_)));
    assert_eq!(cluster.answer(leader, Request::Transfer { to: Some(id(4)) }), Response::Done);
    cluster.run(300);
    assert_eq!(cluster.leader(), Some(id(4)), "leadership was handed over");
    assert_eq!(cluster.answer(id(4), Request::Members(own)), Response::Done);
    assert_eq!(cluster.cores[&id(4)].status().voters.len(), 3);
    cluster.stop(leader);
    assert!(cluster.submit(id(4), campaign(1, "after")).is_ok());
}

fn two_and_a_witness() -> Cluster {
    Cluster::of(Members::from([(id(1), member(1)), (id(2), member(2)), (id(3), witness(3))]))
}

#[test]
fn two_replicas_and_a_witness_survive_the_loss_of_one() {
    let mut cluster = two_and_a_witness();
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 10_000)).unwrap();
    cluster.submit(leader, campaign(1, "billing")).unwrap();
    cluster.stop(leader);
    let next = cluster.await_leader();
    assert!(next != leader && next != id(3), "the other full replica leads");
    assert_eq!(cluster.leader_of(next, "billing").1, 1);
    cluster.submit(next, campaign(1, "ledger")).unwrap();
    assert_eq!(cluster.cores[&id(3)].whole().state.census().groups, 0, "a witness keeps no state");
}

#[test]
fn a_witness_leads_only_to_bring_a_replica_up_to_date_and_hand_over() {
    let mut cluster = two_and_a_witness();
    let leader = cluster.await_leader();
    let behind = if leader == id(1) { id(2) } else { id(1) };
    // One full replica is away while the other and the witness commit; then that other one dies.
    cluster.stop(behind);
    cluster.submit(leader, open(1, 10_000)).unwrap();
    for round in 0..20 {
        cluster.submit(leader, campaign(1, &format!("group-{round}"))).unwrap();
    }
    cluster.stop(leader);
    cluster.start(behind);
    let next = cluster.await_leader();
    assert_eq!(next, behind, "the witness knew what was committed and handed it over");
    assert_eq!(cluster.leader_of(behind, "group-19").1, 1, "nothing committed is lost");
    assert!(cluster.submit(behind, campaign(1, "after")).is_ok());
}

#[test]
fn a_restored_cluster_grants_nothing_before_the_longest_old_lease_is_over() {
    let ceiling_ms = 20_000;
    let default_policy = Policy { ttl_ms_max: ceiling_ms, ..Policy::default() };
    let settings = Settings { ttl_ms_ceiling: ceiling_ms, default_policy, ..Settings::default() };
    let mut backup = State::new(settings.check().unwrap());
    backup.apply(Entry::bare(open(1, 10_000)));
    backup.apply(Entry::bare(campaign(1, "billing")));

    let members: Members = (1..=3).map(|n| (id(n), member(n))).collect();
    let state = backup.reborn(1000, 2000, Term::NONE).unwrap();
    let whole = Replicated::restored(state, members.clone());
    let mut restored = Cluster::new(3);
    for number in 1..=3 {
        restored.stop(id(number));
        let mut disk = founding_disk(&members, 3);
        disk.snapshot = whole.encode().into();
        restored.disks.insert(id(number), disk);
        restored.start(id(number));
    }
    let leader = restored.await_leader();
    restored.submit(leader, open(2, 10_000)).unwrap();
    let early = restored.answer(
        leader,
        Request::Submit { command: campaign(2, "billing"), request: None, query: None },
    );
    let Response::Error(StoreError::Unavailable { retry_after: Some(wait), .. }) = early else {
        panic!("{early:?}");
    };
    assert!(wait <= Duration::from_millis(ceiling_ms));
    let reopened = restored.submit(leader, open(1, 10_000));
    assert_eq!(reopened, Err(Refusal::SessionUnknown), "the old life's sessions stay gone");
    // The clock leaps: the driver's turns are what counts, so walk in steps it can follow.
    for _ in 0..ceiling_ms / 300 {
        restored.now = restored.now + Duration::from_millis(250);
        restored.run(50);
        restored.answer(leader, heartbeat(2));
    }
    let term = restored.submit(leader, campaign(2, "billing"));
    let Ok(Answer::Elected { term, .. }) = term else { panic!("{term:?}") };
    assert!(term.get() > 1 << 32, "terms are ahead of everything granted before (S2)");
}
