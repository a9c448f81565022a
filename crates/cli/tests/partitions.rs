//! Five real replicas whose wires are cut: a majority works, a minority never elects.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use process::cluster::Cluster;
use process::relay::Wires;
use process::until;

/// Five replicas that reach each other only through wires that can be cut.
fn five() -> (Cluster, Wires) {
    let wires = Wires::default();
    let mut cluster = Cluster::found_at(5, &[], &[], |id, peer| wires.relay(id, peer));
    cluster.start_all();
    (cluster, wires)
}

/// The lead of the log moves to this one.
fn lead(cluster: &Cluster, id: u64) {
    let number = id.to_string();
    until("the lead is where it is wanted", || {
        cluster.leader() == id || {
            let _ = cluster.ask(&["cluster", "transfer", "--to", &number]);
            false
        }
    });
}

fn knows_no_leader(cluster: &Cluster, ids: &[u64]) -> bool {
    ids.iter().all(|id| cluster.status_of(*id)["leader"].is_null())
}

/// Neither reads nor writes are answered with more than that they cannot be.
fn refuses(cluster: &Cluster, id: u64) {
    for arguments in [
        &["leader", "billing", "--timeout", "3s"][..],
        &["campaign", "billing", "--node", "b", "--timeout", "5s"],
    ] {
        let ended = cluster.server(id).ask(&cluster.room, arguments);
        assert!(matches!(ended.code, 69 | 70), "replica {id}: {arguments:?}: {ended:?}");
    }
}

fn term_at(cluster: &Cluster, id: u64) -> u64 {
    let arguments = ["campaign", "billing", "--node", "a", "--ttl", "1s", "--output", "json"];
    let mut term = None;
    until("a campaign is won", || {
        let ended = cluster.server(id).ask(&cluster.room, &arguments);
        term = (ended.code == 0).then(|| process::json(&ended.stdout)["term"].as_u64().unwrap());
        term.is_some()
    });
    term.unwrap()
}

#[test]
fn of_two_and_three_the_three_elect_and_the_two_never_do() {
    let (cluster, wires) = five();
    let before = term_at(&cluster, 1);
    lead(&cluster, 1);
    wires.part(&[&[1, 2], &[3, 4, 5]]);
    let leader = cluster.leader_among(&[3, 4, 5]);
    until("the leader without a quorum has stepped down", || knows_no_leader(&cluster, &[1, 2]));
    refuses(&cluster, 1);
    refuses(&cluster, 2);
    let after = term_at(&cluster, leader);
    assert!(after > before);
    wires.mend();
    cluster.leader();
    assert!(term_at(&cluster, 1) > after, "the two have learnt what the three decided");
}

#[test]
fn of_two_and_one_and_two_nobody_elects_until_it_is_mended() {
    let (cluster, wires) = five();
    let before = term_at(&cluster, 3);
    wires.part(&[&[1, 2], &[3], &[4, 5]]);
    until("nobody leads", || knows_no_leader(&cluster, &[1, 2, 3, 4, 5]));
    for id in 1..=5 {
        refuses(&cluster, id);
    }
    assert!(knows_no_leader(&cluster, &[1, 2, 3, 4, 5]));
    wires.mend();
    cluster.leader();
    assert!(term_at(&cluster, 5) > before);
}

#[test]
fn a_leader_that_is_cut_off_steps_down_and_serves_no_stale_answer() {
    let (cluster, wires) = five();
    lead(&cluster, 2);
    let before = term_at(&cluster, 2);
    wires.part(&[&[2], &[1, 3, 4, 5]]);
    let leader = cluster.leader_among(&[1, 3, 4, 5]);
    assert_ne!(leader, 2);
    until("it has stepped down", || knows_no_leader(&cluster, &[2]));
    refuses(&cluster, 2);
    assert!(term_at(&cluster, leader) > before);
    wires.mend();
    assert_ne!(cluster.leader(), 2, "it came back as a follower");
}

/// A chain of five in which one wire in the middle flaps: the leader is kept, at most one change a
/// flap.
#[test]
fn a_flapping_wire_in_a_chain_changes_the_leader_at_most_once_a_flap() {
    let (cluster, wires) = five();
    lead(&cluster, 3);
    let changes = |id| cluster.status_of(id)["raft_term"].as_u64().unwrap();
    let before = changes(3);
    let flaps = 4;
    for _ in 0..flaps {
        wires.part(&[&[1, 2], &[3, 4, 5]]);
        // The three go on under their leader, whatever the two try.
        assert_eq!(cluster.leader_among(&[3, 4, 5]), 3);
        until("the two are alone", || knows_no_leader(&cluster, &[1, 2]));
        wires.mend();
        cluster.leader();
    }
    assert!(changes(3) <= before + flaps, "{before} became {}", changes(3));
}
