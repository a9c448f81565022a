//! What a replica says of itself is true in the bad case: without a quorum, removed, restored, on a bad disk.

use std::time::Duration;

use regent_election::State;
use regent_election::state::Query;
use regent_election::store::StoreError;
use regent_election::{Answer, Policy, Settings, Term};
use regent_replica::io::{HandOverCause, PeerMessage, Request, Response};
use regent_replica::{MemberChange, Members, ReplicaId, ReplicatedState, Role};

use crate::bench::{Cluster, campaign, founding_disk, heartbeat, id, member, open};

/// The longest election time-out of these replicas.
const ELECTION_MS: u64 = 300;

fn others(leader: ReplicaId) -> [ReplicaId; 2] {
    let others: Vec<_> = (1..=3).map(id).filter(|other| *other != leader).collect();
    [others[0], others[1]]
}

#[test]
fn a_leader_knows_whom_it_hears_and_loses_its_quorum_with_them() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let [one, other] = others(leader);
    let elected = cluster.cores[&leader].status();
    assert!(elected.has_quorum);
    assert!(elected.voters.iter().all(|voter| elected.heard(*voter) != Some(false)), "nobody is");
    cluster.run(ELECTION_MS + 100);
    assert!(cluster.cores[&one].status().has_quorum, "it follows");

    cluster.stop(one);
    cluster.run(ELECTION_MS + 10);
    let status = cluster.cores[&leader].status();
    assert_eq!((status.heard(one), status.heard(other)), (Some(false), Some(true)));
    assert!(status.has_quorum);
    cluster.stop(other);
    cluster.run(ELECTION_MS + 10);
    let status = cluster.cores[&leader].status();
    assert_eq!(status.heard(other), Some(false));
    assert!(!status.has_quorum, "whether Raft has noticed or not");
}

#[test]
fn a_learner_whose_leader_is_gone_does_not_believe_in_it_for_ever() {
    let mut cluster = Cluster::new(1);
    let add = MemberChange::Add { id: id(2), member: member(2) };
    let leader = cluster.await_leader();
    assert_eq!(cluster.answer(leader, Request::Members(add)), Response::Done);
    cluster.disks.insert(id(2), crate::attacks::joining_disk());
    cluster.start(id(2));
    cluster.run(500);
    assert!(cluster.cores[&id(2)].status().has_quorum);
    cluster.stop(leader);
    cluster.run(4 * ELECTION_MS + 10);
    assert!(!cluster.cores[&id(2)].status().has_quorum);
}

/// Removes a replica that does not hear of it.
fn removed_unheard(cluster: &mut Cluster) -> (ReplicaId, ReplicaId) {
    let leader = cluster.await_leader();
    let [removed, stays] = others(leader);
    for other in [leader, stays] {
        cluster.cut.insert((other, removed));
        cluster.cut.insert((removed, other));
    }
    cluster.run(ELECTION_MS + 100);
    let change = Request::Members(MemberChange::Remove { id: removed });
    assert_eq!(cluster.answer(leader, change), Response::Done);
    cluster.run(500);
    (removed, leader)
}

fn refusal(response: Response) -> String {
    match response {
        Response::Error(StoreError::Unavailable { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_removed_replica_that_was_away_learns_it_within_an_election_and_refuses_at_once() {
    let mut cluster = Cluster::new(3);
    let (removed, leader) = removed_unheard(&mut cluster);
    assert_eq!(cluster.cores[&removed].status().removed_from, None, "how should it know?");
    // Its campaigns have become rare by then: as a process that starts again it is prompt.
    cluster.stop(removed);
    cluster.start(removed);
    cluster.cut.clear();
    cluster.run(ELECTION_MS + 10);
    let status = cluster.cores[&removed].status();
    let members = status.removed_from.clone().expect("it asked for a vote and was told");
    assert!(!members.contains_key(&removed) && members.len() == 2);
    assert!(!status.has_quorum);
    let group = regent_election::Group::new("billing").unwrap();
    for request in [
        Request::Read { query: Query::Leader(group.clone()), linearizable: true },
        Request::Read { query: Query::Leader(group), linearizable: false },
        Request::Submit { command: open(7, 10_000), request: None, query: None },
        heartbeat(7),
    ] {
        let token = cluster.ask(removed, request);
        cluster.step();
        let why = refusal(cluster.answers.remove(&token).expect("at once"));
        assert!(why.contains(&format!("replica {removed} was removed from this cluster")), "{why}");
        assert!(why.contains(&format!("replica {leader} at client-{leader}")), "{why}");
        assert!(!why.contains(&format!("client-{removed}")), "{why}");
    }
    assert_eq!(cluster.leader(), Some(leader), "nobody is disturbed");
}

#[test]
fn a_removed_replica_that_receives_the_entry_knows_it_by_that() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let [removed, _] = others(leader);
    let change = Request::Members(MemberChange::Remove { id: removed });
    assert_eq!(cluster.answer(leader, change), Response::Done);
    cluster.run(ELECTION_MS + 100);
    let status = cluster.cores[&removed].status();
    assert!(status.removed_from.is_some_and(|members| members.len() == 2));
    assert_eq!(status.role, Role::Follower);
    for stays in [1, 2, 3].map(id).into_iter().filter(|id| *id != removed) {
        assert_eq!(cluster.cores[&stays].status().removed_from, None);
    }
}

#[test]
fn a_replica_that_joins_is_not_taken_for_removed() {
    let mut cluster = Cluster::new(3);
    cluster.await_leader();
    cluster.disks.insert(id(4), crate::attacks::joining_disk());
    cluster.start(id(4));
    cluster.run(1000);
    assert_eq!(cluster.cores[&id(4)].status().removed_from, None);
}

/// A member may lie about it, and wins nothing by that: a replica that is led goes on serving, and one that is not
/// would refuse anyway, asks for votes as before, and is believed to be a member again when a leader is heard.
#[test]
fn a_member_that_lies_about_a_removal_stops_nothing() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let [victim, liar] = others(leader);
    let members: Members = [leader, liar].into_iter().map(|id| (id, member(id.get()))).collect();
    let lie = PeerMessage::Removed { members };
    cluster.submit(leader, open(1, 60_000)).unwrap();
    for _ in 0..5 {
        cluster.deliver(liar, victim, lie.clone());
        cluster.step();
        assert_eq!(cluster.cores[&victim].status().removed_from, None);
        assert!(cluster.submit(victim, campaign(1, "billing")).is_ok());
        cluster.run(100);
    }
    // A stranger is not heard at all, not even without a leader.
    cluster.stop(leader);
    cluster.run(100);
    cluster.deliver(id(9), victim, lie.clone());
    cluster.step();
    assert_eq!(cluster.cores[&victim].status().removed_from, None);
    cluster.deliver(liar, victim, lie);
    let next = cluster.await_leader();
    cluster.run(ELECTION_MS);
    assert_eq!(cluster.cores[&victim].status().removed_from, None);
    assert!(cluster.submit(victim, campaign(1, "ledger")).is_ok(), "led by {next}");
}

/// A restored cluster, whose longest ttl is a minute, and how long its hold is said to be.
fn restored(pause_ms: Option<u64>) -> Cluster {
    let default_policy = Policy { ttl_ms_max: 60_000, ..Policy::default() };
    let settings = Settings { ttl_ms_ceiling: 60_000, default_policy, ..Settings::default() };
    let state = State::new(settings.check().unwrap()).reborn(1000, 2000, Term::NONE).unwrap();
    let members: Members = (1..=3).map(|n| (id(n), member(n))).collect();
    let mut replicated = ReplicatedState::restored(state, members.clone());
    replicated.pause_ms = pause_ms;
    let mut cluster = Cluster::new(3);
    for number in 1..=3 {
        cluster.stop(id(number));
        let mut disk = founding_disk(&members, 3);
        disk.snapshot = replicated.encode().into();
        cluster.disks.insert(id(number), disk);
        cluster.start(id(number));
    }
    cluster
}

#[test]
fn every_replica_of_a_restored_cluster_knows_for_how_long_it_grants_nothing() {
    let mut cluster = restored(None);
    cluster.await_leader();
    cluster.run(100);
    for replica in (1..=3).map(id) {
        let left = cluster.cores[&replica].status().grants_paused_for.unwrap();
        let about = Duration::from_secs(59)..=Duration::from_secs(60);
        assert!(about.contains(&left), "{replica}: {left:?}");
    }
}

/// Semantics 23: as long as the longest lease of the earlier life, which an operator may know better than the settings.
#[test]
fn a_hold_that_an_operator_made_shorter_is_that_short_and_then_over_everywhere() {
    let mut cluster = restored(Some(2_000));
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 10_000)).unwrap();
    let early = Request::Submit { command: campaign(1, "billing"), request: None, query: None };
    let why = refusal(cluster.answer(leader, early));
    assert!(why.contains("grants nothing for another 2 s"), "{why}");
    cluster.run(2_100);
    let won = cluster.submit(leader, campaign(1, "billing"));
    assert!(matches!(won, Ok(Answer::Elected { .. })), "{won:?}");
    cluster.run(100);
    for replica in (1..=3).map(id) {
        assert_eq!(cluster.cores[&replica].status().grants_paused_for, None, "{replica}");
    }
}

#[test]
fn a_disk_without_room_is_asked_for_a_snapshot_less_and_less_often() {
    let mut cluster = Cluster::new(1);
    cluster.snapshot_every = 5;
    cluster.stop(id(1));
    cluster.start(id(1));
    cluster.without_room.insert(id(1));
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 600_000)).unwrap();
    for number in 0..20 {
        cluster.submit(leader, campaign(1, &format!("group-{number}"))).unwrap();
    }
    cluster.snapshots_tried.clear();
    cluster.run(120_000);
    let tried = cluster.snapshots_tried.len();
    assert!((4..=8).contains(&tried), "{tried} attempts in two minutes");
    cluster.without_room.clear();
    let before = cluster.disks[&leader].place.index;
    cluster.run(61_000);
    assert!(cluster.disks[&leader].place.index > before, "one was made when there was room");
    // What a client asks for is tried at once.
    cluster.without_room.insert(id(1));
    cluster.submit(leader, campaign(1, "one-more")).unwrap();
    cluster.answer(leader, Request::Snapshot);
    cluster.without_room.clear();
    assert_eq!(cluster.answer(leader, Request::Snapshot), Response::Done);
}

/// Lets the disk of a replica take this long for every write while something is written all the time.
fn run_with_slow_disk(cluster: &mut Cluster, slow: ReplicaId, sync_ms: u64, rounds: u64) {
    cluster.stall(slow);
    for round in 0..rounds {
        let leader = cluster.leader().unwrap();
        let command = campaign(1, &format!("group-{round}"));
        cluster.ask(leader, Request::Submit { command, request: None, query: None });
        cluster.run(sync_ms);
        cluster.unstall(slow);
        cluster.stall(slow);
    }
    cluster.unstall(slow);
}

#[test]
fn a_leader_whose_syncs_are_slow_while_anothers_are_not_hands_over_and_says_so() {
    let mut cluster = Cluster::new(3);
    let slow = cluster.await_leader();
    cluster.submit(slow, open(1, 600_000)).unwrap();
    run_with_slow_disk(&mut cluster, slow, 300, 20);
    cluster.run(500);
    let next = cluster.leader().unwrap();
    assert_ne!(next, slow);
    let [(from, to, HandOverCause::DiskSlow { took, .. })] = cluster.handed_over[..] else {
        panic!("{:?}", cluster.handed_over)
    };
    assert_eq!((from, to), (slow, next));
    assert!(took >= Duration::from_millis(250), "{took:?}");
    // As a follower it is slow and harms nobody: leadership stays.
    run_with_slow_disk(&mut cluster, slow, 300, 20);
    assert_eq!((cluster.leader(), cluster.handed_over.len()), (Some(next), 1));
}

#[test]
fn a_leader_hands_nothing_over_if_the_others_are_as_slow_or_it_was_slow_only_once() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 600_000)).unwrap();
    run_with_slow_disk(&mut cluster, leader, 300, 3);
    run_with_slow_disk(&mut cluster, leader, 20, 3);
    run_with_slow_disk(&mut cluster, leader, 300, 3);
    assert_eq!(cluster.handed_over, []);
    for round in 0..20 {
        (1..=3).for_each(|number| cluster.stall(id(number)));
        let command = campaign(1, &format!("all-{round}"));
        cluster.ask(leader, Request::Submit { command, request: None, query: None });
        cluster.run(250);
        (1..=3).for_each(|number| cluster.unstall(id(number)));
    }
    assert_eq!(cluster.handed_over, []);
}
