//! Renewals that must prove a tenure: a refused one extends nothing, one that came in time counts.

use regent_election::state::{Query, View};
use regent_election::store::{OfficeState, StoreError};
use regent_election::{Command, Group, Refusal, Term};
use regent_replica::ReplicaId;
use regent_replica::io::{PeerMessage, Request, Response};
use regent_replica::limits::APPLY_ENTRIES_PER_TURN;

use crate::bench::{Cluster, campaign, id, open, session};

fn renewal(number: u128, group: &str, term: u64) -> Request {
    let tenure = Some((Group::new(group).unwrap(), Term::new(term).unwrap()));
    Request::Heartbeat { session: session(number), sequence: None, tenure }
}

fn resign(number: u128, group: &str, term: u64) -> Command {
    let (group, term) = (Group::new(group).unwrap(), Term::new(term).unwrap());
    Command::Resign { group, session: session(number), term }
}

/// One step in which nothing of Raft reaches `late`.
fn step_without(cluster: &mut Cluster, late: ReplicaId) {
    cluster.step();
    cluster
        .mail
        .retain(|(_, _, to, message)| *to != late || !matches!(message, PeerMessage::Raft(_)));
}

fn is_open(cluster: &Cluster, replica: ReplicaId, number: u128) -> bool {
    cluster.cores[&replica].replicated().state.find_session(session(number)).is_some()
}

/// S4 and semantics 5: the follower has not heard yet that the tenure is over. The Raft leader has.
#[test]
fn a_renewal_of_a_term_that_only_a_late_follower_believes_in_extends_nothing() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let late = (1..=3).map(id).find(|other| *other != leader).unwrap();
    cluster.submit(leader, open(1, 1000)).unwrap();
    for group in ["kept", "lost"] {
        cluster.submit(leader, campaign(1, group)).unwrap();
    }
    cluster.run(20);
    let command = resign(1, "lost", 1);
    let resigned_at = cluster.now;
    cluster.ask(leader, Request::Submit { command, request: None, query: None });
    // Less than an election time-out: the follower goes on believing in its leader.
    for _ in 0..100 {
        step_without(&mut cluster, late);
    }
    let stale = cluster.cores[&late].replicated();
    let no = stale.state.find_session(session(1)).unwrap();
    let lost = Group::new("lost").unwrap();
    assert!(stale.state.may_renew(&lost, no, Term::new(1).unwrap()).is_ok(), "it knows too much");
    let token = cluster.ask(late, renewal(1, "lost", 1));
    for _ in 0..10 {
        step_without(&mut cluster, late);
    }
    while cluster.now.since(resigned_at).as_millis() < 900 {
        cluster.step();
    }
    let answer = cluster.answers.remove(&token);
    assert!(
        matches!(answer, Some(Response::Error(StoreError::Refused(Refusal::NotLeader { .. })))),
        "{answer:?}"
    );
    assert!(is_open(&cluster, leader, 1));
    cluster.run(150);
    assert!(!is_open(&cluster, leader, 1), "a refused renewal has extended the session");
}

/// A follower that does not know yet that its client leads is no reason to refuse it.
#[test]
fn a_renewal_through_a_follower_that_is_behind_is_judged_by_the_raft_leader() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let late = (1..=3).map(id).find(|other| *other != leader).unwrap();
    cluster.submit(leader, open(1, 1000)).unwrap();
    cluster.run(20);
    let command = campaign(1, "billing");
    cluster.ask(leader, Request::Submit { command, request: None, query: None });
    for _ in 0..20 {
        step_without(&mut cluster, late);
    }
    let answer = cluster.answer(late, renewal(1, "billing", 1));
    assert!(matches!(answer, Response::Heartbeat { .. }), "{answer:?}");
    assert_eq!(cluster.leader_of(late, "billing").2, OfficeState::Leading);
}

/// S4: a majority of other disks has committed the end of the tenure. The Raft leader's own disk stands still, so Raft
/// has not handed the entry out, and nothing waits to be applied as far as the leader's queues show.
#[test]
fn a_refused_renewal_extends_nothing_while_the_disk_of_the_raft_leader_stands_still() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 1000)).unwrap();
    for group in ["kept", "lost"] {
        cluster.submit(leader, campaign(1, group)).unwrap();
    }
    cluster.run(20);
    cluster.stall(leader);
    let resigned_at = cluster.now;
    let command = resign(1, "lost", 1);
    cluster.ask(leader, Request::Submit { command, request: None, query: None });
    let since = |cluster: &Cluster| cluster.now.since(resigned_at).as_millis();
    while since(&cluster) < 600 {
        cluster.step();
    }
    let status = cluster.cores[&leader].status();
    assert!(status.committed > status.applied, "the end of the tenure is not committed yet");
    let token = cluster.ask(leader, renewal(1, "lost", 1));
    cluster.run(50);
    cluster.unstall(leader);
    cluster.run(50);
    let answer = cluster.answers.remove(&token);
    assert!(
        matches!(answer, Some(Response::Error(StoreError::Refused(Refusal::NotLeader { .. })))),
        "{answer:?}"
    );
    assert!(is_open(&cluster, leader, 1));
    while since(&cluster) < 1100 {
        cluster.step();
    }
    assert!(!is_open(&cluster, leader, 1), "a refused renewal has extended the session");
}

/// How long the leader of a group lives unheard, as the Raft leader sees it.
fn remaining_ms(cluster: &mut Cluster, leader: ReplicaId, group: &str) -> u64 {
    let query = Query::Leader(Group::new(group).unwrap());
    match cluster.answer(leader, Request::Read { query, linearizable: true }) {
        Response::View { view: View::Leader(view), .. } => {
            u64::try_from(view.valid_for.unwrap().as_millis()).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

/// Commits so much at once that applying it takes many turns.
fn pile_up(cluster: &mut Cluster, leader: ReplicaId) {
    for number in 0..40 * APPLY_ENTRIES_PER_TURN as u128 {
        let command = open(1000 + number, 60_000);
        cluster.ask(leader, Request::Submit { command, request: None, query: None });
    }
    let before = cluster.cores[&leader].status().applied;
    while cluster.cores[&leader].status().applied == before {
        cluster.step();
    }
}

/// Semantics 5: it came in time, so it counts, though the Raft leader could not judge it yet.
#[test]
fn a_renewal_that_comes_in_time_counts_though_the_raft_leader_is_behind_in_applying() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 1000)).unwrap();
    cluster.submit(leader, campaign(1, "billing")).unwrap();
    let left = remaining_ms(&mut cluster, leader, "billing");
    cluster.run(left - 20);
    pile_up(&mut cluster, leader);
    let arrived_at = cluster.now;
    let token = cluster.ask(leader, renewal(1, "billing", 1));
    cluster.run(100);
    let answer = cluster.answers.remove(&token);
    assert!(matches!(answer, Some(Response::Heartbeat { .. })), "{answer:?}");
    // From its arrival on, and not from when it was judged.
    let left = u128::from(remaining_ms(&mut cluster, leader, "billing"));
    let since = cluster.now.since(arrived_at).as_millis();
    assert!((998..=1001).contains(&(left + since)), "{left} ms are left after {since} ms");
}

/// The same must not keep a session alive by renewals that are refused, however many there are.
#[test]
fn renewals_that_are_refused_late_hold_no_expiry_back_for_long() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 1000)).unwrap();
    cluster.submit(leader, campaign(1, "kept")).unwrap();
    cluster.submit(leader, campaign(1, "lost")).unwrap();
    cluster.submit(leader, resign(1, "lost", 1)).unwrap();
    let left = remaining_ms(&mut cluster, leader, "kept");
    cluster.run(left - 20);
    pile_up(&mut cluster, leader);
    // In flight from before the deadline until long after it, at every moment.
    for _ in 0..100 {
        cluster.ask(leader, renewal(1, "lost", 1));
        cluster.step();
    }
    assert!(!is_open(&cluster, leader, 1), "a refused renewal has extended the session");
}
