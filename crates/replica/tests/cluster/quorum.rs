//! Changes of members that would leave a majority which is not alive: they are refused, with who is not heard.

use regent_election::store::StoreError;
use regent_replica::io::{PeerMessage, Request, Response};
use regent_replica::{MemberChange, ReplicaId};

use crate::attacks::joining_disk;
use crate::bench::{Cluster, campaign, id, member, open};

/// Longer than the 300 ms after which a replica that does not answer counts as silent.
const UNTIL_MISSED_MS: u64 = 400;

fn change(cluster: &mut Cluster, change: MemberChange) -> Response {
    let leader = cluster.await_leader();
    cluster.answer(leader, Request::Members(change))
}

/// Adds a learner and lets it catch up.
fn join(cluster: &mut Cluster, replica: ReplicaId) {
    let add = MemberChange::Add { id: replica, member: member(replica.get()) };
    assert_eq!(change(cluster, add), Response::Done);
    cluster.disks.insert(replica, joining_disk());
    cluster.start(replica);
    cluster.run(500);
}

fn assert_refused(response: Response, because: &[&str]) {
    let Response::Error(StoreError::Unavailable { why, .. }) = response else {
        panic!("{response:?}")
    };
    for text in because {
        assert!(why.contains(text), "{text:?} is not in {why:?}");
    }
}

/// A joiner that fetched everything and left: as a voter it would take a majority with it.
#[test]
fn a_learner_that_fell_silent_is_not_promoted() {
    for voters in [1, 3] {
        let mut cluster = Cluster::new(voters);
        let joiner = id(voters + 1);
        join(&mut cluster, joiner);
        cluster.stop(joiner);
        cluster.run(UNTIL_MISSED_MS);
        let promote = MemberChange::Promote { id: joiner };
        let refused = change(&mut cluster, promote.clone());
        assert_refused(refused, &[&format!("replica {joiner} was not heard"), "start it"]);
        let leader = cluster.await_leader();
        cluster.submit(leader, open(1, 60_000)).unwrap();

        cluster.start(joiner);
        cluster.run(500);
        assert_eq!(change(&mut cluster, promote), Response::Done);
        let leader = cluster.await_leader();
        cluster.submit(leader, campaign(1, "billing")).unwrap();
    }
}

/// It is heard, and does not get what it should have learned.
#[test]
fn a_learner_that_is_far_behind_is_not_promoted() {
    let mut cluster = Cluster::new(1);
    join(&mut cluster, id(2));
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 60_000)).unwrap();
    let is_append = |message: &PeerMessage| matches!(message, PeerMessage::Raft(message) if !message.entries.is_empty());
    let tokens: Vec<_> = (0..1200)
        .map(|number| {
            let command = campaign(1, &format!("group-{number}"));
            cluster.ask(leader, Request::Submit { command, request: None, query: None })
        })
        .collect();
    for _ in 0..1000 {
        cluster.mail.retain(|(.., message)| !is_append(message));
        cluster.step();
    }
    assert!(tokens.iter().all(|token| cluster.answers.contains_key(token)));
    let promote = MemberChange::Promote { id: id(2) };
    let token = cluster.ask(leader, Request::Members(promote.clone()));
    cluster.mail.retain(|(.., message)| !is_append(message));
    cluster.step();
    assert_refused(cluster.answers.remove(&token).unwrap(), &["replica 2 has", "at most 1000"]);
    cluster.run(1000);
    assert_eq!(change(&mut cluster, promote), Response::Done);
}

/// What is left after the change could decide nothing, not even to take the change back.
#[test]
fn a_voter_is_not_removed_if_the_rest_is_no_majority_that_lives() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let [lives, dead] =
        [1, 2, 3].map(id).into_iter().filter(|id| *id != leader).collect::<Vec<_>>()[..]
    else {
        panic!("two beside the leader")
    };
    cluster.stop(dead);
    cluster.run(UNTIL_MISSED_MS);
    assert_eq!(cluster.leader(), Some(leader));
    let remove = |id| Request::Members(MemberChange::Remove { id });
    let refused = cluster.answer(leader, remove(lives));
    let without = format!("without replica {lives}");
    assert_refused(refused, &[&without, &format!("not heard: replica {dead}"), "remove it first"]);
    // The dead one is missed by nobody, and without it the other one still is.
    assert_eq!(cluster.answer(leader, remove(dead)), Response::Done);
    cluster.submit(leader, open(1, 60_000)).unwrap();
    assert_eq!(cluster.answer(leader, remove(lives)), Response::Done);
    cluster.submit(leader, campaign(1, "billing")).unwrap();
}

/// Three of four would decide, and the newcomer would be one of them: it could leave with the majority. Without the dead one
/// it can not, so that one goes first.
#[test]
fn a_joiner_that_leaves_takes_no_majority_with_it_though_a_minority_is_dead() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let dead = [1, 2, 3].map(id).into_iter().find(|id| *id != leader).unwrap();
    cluster.stop(dead);
    join(&mut cluster, id(4));
    let promote = MemberChange::Promote { id: id(4) };
    let refused = change(&mut cluster, promote.clone());
    assert_refused(refused, &[&format!("not heard: replica {dead};"), "remove it first"]);
    assert_eq!(change(&mut cluster, MemberChange::Remove { id: dead }), Response::Done);
    assert_eq!(change(&mut cluster, promote), Response::Done);
    cluster.submit(leader, open(1, 60_000)).unwrap();
    cluster.stop(id(4));
    cluster.run(UNTIL_MISSED_MS);
    let leader = cluster.await_leader();
    cluster.submit(leader, campaign(1, "billing")).unwrap();
}

/// With the joiner two of three decide, as two of two did.
#[test]
fn a_joiner_that_leaves_a_cluster_of_two_takes_no_majority_with_it() {
    let mut cluster = Cluster::new(2);
    join(&mut cluster, id(3));
    assert_eq!(change(&mut cluster, MemberChange::Promote { id: id(3) }), Response::Done);
    cluster.stop(id(3));
    cluster.run(UNTIL_MISSED_MS);
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 60_000)).unwrap();
    assert_eq!(change(&mut cluster, MemberChange::Remove { id: id(3) }), Response::Done);
}
