//! A whole cluster of cores in one thread: instant disks, a network of one millisecond, virtual time.
//!
//! The lab does this with faults; here the roads without them are walked, so that a failure points at
//! the core and not at the weather.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

mod attacks;
mod bench;
mod budget;
mod flood;
mod fuzz;
mod health;
mod hostile;
mod patience;
mod pretenders;
mod quorum;
mod renewals;

use std::collections::BTreeSet;
use std::time::Duration;

use raft::eraftpb::HardState;
use regent_election::state::Query;
use regent_election::store::{OfficeState, StoreError};
use regent_election::{
    Answer, Command, Entry, Group, Home, Node, Policy, Refusal, Settings, State, Step, Term,
};
use regent_replica::io::{PeerMessage, Request, Response};
use regent_replica::{MemberChange, Members, ReplicatedState, Role};

use bench::{
    Cluster, campaign, founding_disk, heartbeat, id, member, open, session, two_and_a_witness,
};

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
            Response::Heartbeat { ttl_ms: 10_000, .. }
        ));
    }
    assert_eq!(cluster.leader(), Some(leader), "no fault, no change of Raft leader");
    let hashes: BTreeSet<Vec<u8>> =
        cluster.cores.values().map(|core| core.replicated().encode()).collect();
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
        assert!(matches!(cluster.answer(id(1), heartbeat(1)), Response::Heartbeat { .. }));
        assert!(matches!(cluster.answer(id(2), heartbeat(2)), Response::Heartbeat { .. }));
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
    assert!(matches!(cluster.answer(second, heartbeat(1)), Response::Heartbeat { .. }));
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
fn a_replica_with_nothing_to_do_makes_its_log_short() {
    let mut cluster = Cluster::new(3);
    cluster.snapshot_every = 100;
    for number in 1..=3 {
        cluster.stop(id(number));
        cluster.start(id(number));
    }
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 10_000)).unwrap();
    for number in 0..20 {
        cluster.submit(leader, campaign(1, &format!("group-{number}"))).unwrap();
    }
    let before = cluster.disks[&leader].place.index;
    cluster.run(2_000);
    assert_eq!(cluster.disks[&leader].place.index, before, "too little for a snapshot at once");
    cluster.run(3_000);
    for number in 1..=3 {
        let kept = cluster.disks[&id(number)].place.index;
        assert!(kept >= before + 20, "replica {number} has had time for one up to {kept}");
    }
    let after = cluster.disks[&leader].place.index;
    cluster.run(10_000);
    assert_eq!(cluster.disks[&leader].place.index, after, "and makes no other of nothing");
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
    assert_eq!(
        cluster.cores[&id(3)].replicated().state.census().groups,
        0,
        "a witness keeps no state"
    );
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
    let replicated = ReplicatedState::restored(state, members.clone());
    let mut restored = Cluster::new(3);
    for number in 1..=3 {
        restored.stop(id(number));
        let mut disk = founding_disk(&members, 3);
        disk.snapshot = replicated.encode().into();
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
    // By the longest ttl the wait is measured: it must not fall while that goes on.
    let settings = Box::new(Settings { ttl_ms_ceiling: 1_000, ..Settings::default() });
    let lower = Command::PutSettings { settings };
    let lowered =
        restored.answer(leader, Request::Submit { command: lower, request: None, query: None });
    assert!(matches!(lowered, Response::Error(StoreError::Unavailable { .. })), "{lowered:?}");
    // No group leaves meanwhile: its office looks vacant, though a lease of the old life may run.
    let to = Home::new("etcd://a").unwrap();
    let depart = Command::Move { group: Group::new("billing").unwrap(), step: Step::Depart { to } };
    let departed =
        restored.answer(leader, Request::Submit { command: depart, request: None, query: None });
    assert!(matches!(departed, Response::Error(StoreError::Unavailable { .. })), "{departed:?}");
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

/// The library gathers everything for a follower that is behind in one message, however long. A frame has an end.
#[test]
fn a_follower_far_behind_is_sent_messages_of_bounded_length() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let behind = (1..=3).map(id).find(|other| *other != leader).unwrap();
    for other in (1..=3).map(id) {
        cluster.cut.extend([(other, behind), (behind, other)]);
    }
    for number in 1..=60_000 {
        let node = Node::new(&format!("node-{number:050}")).unwrap();
        let command = Command::Open { session: session(number), node, ttl_ms: 60_000 };
        cluster.ask(leader, Request::Submit { command, request: None, query: None });
        if number % 1_000 == 0 {
            cluster.step();
        }
    }
    cluster.run(100);
    cluster.cut.clear();
    let mut longest = 0;
    for _ in 0..1_000 {
        cluster.step();
        for (.., message) in &cluster.mail {
            if let PeerMessage::Raft(message) = message {
                let bytes: usize = message.entries.iter().map(|entry| entry.data.len()).sum();
                longest = longest.max(bytes);
            }
        }
    }
    assert_eq!(cluster.cores[&behind].applied(), cluster.cores[&leader].applied());
    assert!(longest > 1 << 18, "{longest}: nothing was gathered");
    assert!(longest <= 1 << 20, "{longest}");
}
