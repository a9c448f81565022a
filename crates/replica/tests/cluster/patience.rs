//! Patience that follows the network: what it changes, and what it leaves alone.

use regent_replica::io::Response;
use regent_replica::{Core, ReplicaId, Timing};

use crate::bench::{Cluster, heartbeat, id, open};

/// The leader hears nobody and nobody hears it, for so long.
fn isolate(cluster: &mut Cluster, leader: ReplicaId, ms: u64) {
    for other in cluster.cores.keys().copied().filter(|other| *other != leader).collect::<Vec<_>>()
    {
        cluster.cut.insert((leader, other));
        cluster.cut.insert((other, leader));
    }
    cluster.run(ms);
    cluster.cut.clear();
}

fn stretch(cluster: &mut Cluster, who: &[u64], percent: u64) {
    for number in who {
        cluster.cores.get_mut(&id(*number)).unwrap().set_patience(percent);
    }
}

/// Terms rise with every election: the same one says that there was none.
fn raft_term(cluster: &Cluster) -> u64 {
    cluster.cores.values().map(Core::raft_term).max().unwrap()
}

#[test]
fn a_silence_that_deposes_an_impatient_cluster_s_leader_leaves_a_patient_one_s_alone() {
    for (percent, is_deposed) in [(100, true), (400, false)] {
        let mut cluster = Cluster::new(3);
        let leader = cluster.await_leader();
        stretch(&mut cluster, &[1, 2, 3], percent);
        cluster.run(500);
        let before = raft_term(&cluster);
        isolate(&mut cluster, leader, 500);
        cluster.run(500);
        assert_eq!(raft_term(&cluster) != before, is_deposed, "at {percent} %");
    }
}

#[test]
fn a_patient_leader_shows_itself_as_often_as_before() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    stretch(&mut cluster, &[leader.get()], 1600);
    cluster.run(1000);
    let before = raft_term(&cluster);
    // The others would stand after 150 ms at the soonest, and its library's own heartbeats come
    // every 800.
    cluster.run(10_000);
    assert_eq!((raft_term(&cluster), cluster.leader()), (before, Some(leader)));
}

#[test]
fn a_dead_leader_is_succeeded_when_patience_is_over_however_unequal_it_is() {
    for patient in [vec![], vec![1], vec![1, 2], vec![1, 2, 3]] {
        let mut cluster = Cluster::new(3);
        let leader = cluster.await_leader();
        stretch(&mut cluster, &patient, 800);
        cluster.run(1000);
        let before = raft_term(&cluster);
        cluster.run(5000);
        assert_eq!(raft_term(&cluster), before, "nobody stands without need: {patient:?}");
        cluster.stop(leader);
        let died_at = cluster.now;
        cluster.await_leader();
        let took = cluster.now.since(died_at).as_millis();
        // At most the longest patience of all, twice, and some split votes.
        assert!(took < 2 * 8 * 300, "{took} ms with {patient:?} patient");
    }
}

#[test]
fn patience_changes_no_ttl_and_goes_back_to_what_is_configured() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    stretch(&mut cluster, &[1, 2, 3], 1600);
    cluster.submit(leader, open(1, 1000)).unwrap();
    cluster.run(700);
    assert!(matches!(cluster.answer(leader, heartbeat(1)), Response::Heartbeat { .. }));
    cluster.run(1100);
    assert!(
        matches!(cluster.answer(leader, heartbeat(1)), Response::Error(_)),
        "a second is a second, and a turn still comes often enough not to look like a gap"
    );
    let core = cluster.cores.get_mut(&leader).unwrap();
    assert_eq!(core.set_patience(100), Timing::LAN);
    assert_eq!(core.set_patience(10), Timing::LAN, "less than configured is not to be had");
    assert_eq!(core.set_patience(30_000), Timing::LAN, "nor more than goes together");
}
