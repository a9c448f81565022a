//! A hostile member that says what only a leader, a candidate or a large cluster could say.
//!
//! Who wins an election decides what is in the log, and Raft cannot help it. These are the shapes in which a member gets
//! there, or stops a replica, without an election.

use raft::eraftpb::{Entry, EntryType, MessageType};
use regent_replica::io::{Request, Response};
use regent_replica::{MemberChange, Role};

use crate::attacks::joining_disk;
use crate::bench::{Cluster, id, member, open};
use crate::hostile::{Scene, entry};

impl Scene {
    /// Three replicas, of which one leads, one follows it, and one is hostile.
    fn with_a_leader() -> Self {
        let mut scene = Self::with_its_process();
        std::mem::swap(&mut scene.hostile, &mut scene.other);
        scene.cluster.stop(scene.hostile);
        scene
    }
}

/// An entry of before comes back while the disk still writes it for the first time. What the disk then confirms is
/// the first writing, and not the log of now.
#[test]
fn a_log_that_changed_twice_while_its_disk_wrote_is_not_durable() {
    let mut scene = Scene::new();
    for link in [(scene.other, scene.victim), (scene.victim, scene.other)] {
        scene.cluster.cut.insert(link);
    }
    scene.cluster.stall(scene.victim);
    let (last, term) = (scene.status().last, scene.status().raft_term);
    for (sent_in, made_in) in [(1, 1), (2, 2), (3, 1)] {
        scene.send(MessageType::MsgAppend, |message| {
            message.term = term + sent_in;
            (message.index, message.log_term) = (last, term);
            message.set_entries(vec![entry(last + 1, term + made_in, b"")].into());
        });
    }
    scene.cluster.write_first(scene.victim);
    scene.send(MessageType::MsgTimeoutNow, |_| {});
    scene.send(MessageType::MsgRequestVoteResponse, |message| message.term = term + 4);
    assert_ne!(scene.status().role, Role::Leader, "its disk may forget its log");
    scene.cluster.unstall(scene.victim);
    scene.cluster.cut.clear();
    scene.others_serve();
}

/// Restoring such a list takes Raft time that grows with the square of its length.
#[test]
fn a_snapshot_with_more_members_than_a_cluster_has_is_refused() {
    let mut scene = Scene::new();
    scene.send_snapshot(scene.replicated(), |_, members| members.learners = (4..=100).collect());
    assert_eq!(scene.cluster.refused.len(), 1);
    let mut replicated = scene.replicated();
    replicated.members.extend((4..=100).map(|number| (id(number), member(number))));
    scene.send_snapshot(replicated, |_, _| {});
    assert_eq!(scene.cluster.refused.len(), 2);
    scene.others_serve();
}

fn change_of_members(index: u64, term: u64, change: &MemberChange) -> Entry {
    let mut context = Vec::new();
    change.put(&mut context);
    let mut entry = entry(index, term, b"");
    entry.set_entry_type(EntryType::EntryConfChangeV2);
    entry.context = context.into();
    entry
}

/// They can be read and may be committed: those beyond the bound mean nothing, to Raft and to the state alike.
#[test]
fn members_added_beyond_the_bound_are_added_nowhere() {
    let mut scene = Scene::new();
    let (last, term) = (scene.status().last, scene.status().raft_term);
    let mut entries = Vec::new();
    for number in 4..=100 {
        let add = MemberChange::Add { id: id(number), member: member(number) };
        for change in [add, MemberChange::LeaveJoint] {
            let index = last + 1 + entries.len() as u64;
            entries.push(change_of_members(index, term, &change));
        }
    }
    let end = last + entries.len() as u64;
    scene.send(MessageType::MsgAppend, |message| {
        (message.index, message.log_term, message.commit) = (last, term, end);
        message.set_entries(entries.into());
    });
    scene.cluster.run(20);
    let status = scene.status();
    assert_eq!(status.applied, end, "it is in the log");
    assert_eq!((status.members.len(), status.voters.len() + status.learners.len()), (64, 64));
    assert!(!status.is_joint);
    scene.others_serve();
}

/// The true leader's entry at the same place and in the same term would be taken for the one that is there.
#[test]
fn a_second_leader_of_one_term_is_not_heard() {
    let mut scene = Scene::with_a_leader();
    let (last, term) = (scene.status().last, scene.status().raft_term);
    scene.send(MessageType::MsgAppend, |message| {
        (message.index, message.log_term) = (last, term);
        message.set_entries(vec![entry(last + 1, term, b"")].into());
    });
    scene.send(MessageType::MsgHeartbeat, |message| message.commit = last);
    assert_eq!(scene.status().leader, Some(scene.other));
    scene.cluster.submit(scene.other, open(2, 60_000)).unwrap();
    scene.cluster.run(50);
    let two = [scene.victim, scene.other];
    let states = two.map(|replica| scene.cluster.cores[&replica].replicated().encode());
    assert!(states[0] == states[1], "replicas agree at equal index (S8)");
    assert_eq!(scene.cluster.refused, Vec::new(), "the first liar must not cut the true leader");
    scene.others_serve();
}

/// Only a leader knows what a quorum has.
#[test]
fn a_candidate_that_is_rejected_commits_nothing() {
    let mut scene = Scene::with_a_leader();
    scene.cluster.cut.insert((scene.victim, scene.other));
    let request = Request::Submit { command: open(2, 60_000), request: None, query: None };
    scene.cluster.ask(scene.other, request);
    scene.cluster.run(10);
    let before = scene.status();
    assert!(before.committed < before.last, "it has something to commit");
    for kind in [MessageType::MsgRequestVote, MessageType::MsgRequestPreVote] {
        scene.send(kind, |message| {
            (message.commit, message.commit_term) = (before.last, before.raft_term);
        });
    }
    assert_eq!(scene.status().committed, before.committed);
    scene.cluster.cut.clear();
    scene.others_serve();
}

/// One voter has the longer log and does not know that a removal is committed, so it asks too many for their votes. One
/// knows it, and its log is too short to win. Without the rest, the second must tell the first.
#[test]
fn a_removal_that_the_next_leader_has_not_heard_of_keeps_nobody_from_leading() {
    let mut cluster = Cluster::new(4);
    let leader = cluster.await_leader();
    cluster.run(100);
    let rest: Vec<_> = (1..=4).map(id).filter(|other| *other != leader).collect();
    let [longer, knows, removed] = rest[..] else { unreachable!() };
    let before = cluster.cores[&leader].status();
    cluster.ask(leader, Request::Members(MemberChange::Remove { id: removed }));
    let left_at = before.last + 2;
    for _ in 0..100 {
        if [longer, knows].iter().all(|replica| cluster.cores[replica].status().last == left_at) {
            break;
        }
        cluster.step();
    }
    let committed = cluster.cores[&longer].status().committed;
    assert_eq!(committed, left_at - 1, "the first half of the change");
    cluster.stop(leader);
    cluster.stop(removed);
    cluster.mail.clear();
    let term = before.raft_term;
    let forge = |to, kind| {
        let mut message = raft::eraftpb::Message::default();
        message.set_msg_type(kind);
        (message.from, message.to, message.term) = (leader.get(), id(to).get(), term);
        message
    };
    // The last words of the leader: to one another entry, to the other one that the change is committed.
    let mut append = forge(longer.get(), MessageType::MsgAppend);
    (append.index, append.log_term, append.commit) = (left_at, term, committed);
    append.set_entries(vec![entry(left_at + 1, term, b"")].into());
    let mut heartbeat = forge(knows.get(), MessageType::MsgHeartbeat);
    heartbeat.commit = left_at;
    for (to, message) in [(longer, append), (knows, heartbeat)] {
        let message = regent_replica::io::PeerMessage::Raft(Box::new(message));
        cluster.deliver(leader, to, message);
    }
    cluster.step();
    assert!(cluster.cores[&longer].status().is_joint && !cluster.cores[&knows].status().is_joint);
    assert_eq!(cluster.await_leader(), longer);
}

/// It promised nothing to anybody, so there is no term that it must not leave behind.
#[test]
fn a_replica_joins_a_cluster_whose_raft_term_was_driven_up() {
    let mut cluster = Cluster::new(3);
    for number in 1..=3 {
        cluster.stop(id(number));
        cluster.disks.get_mut(&id(number)).unwrap().hard_state.term = 1 << 50;
        cluster.start(id(number));
    }
    let leader = cluster.await_leader();
    let add = MemberChange::Add { id: id(4), member: member(4) };
    assert_eq!(cluster.answer(leader, Request::Members(add)), Response::Done);
    cluster.disks.insert(id(4), joining_disk());
    cluster.start(id(4));
    cluster.run(2_000);
    assert_eq!(cluster.cores[&id(4)].applied(), cluster.cores[&leader].applied());
}

/// Raft itself never raises a term for a pre-vote.
#[test]
fn a_pre_vote_in_a_far_term_deposes_nobody() {
    let mut scene = Scene::with_a_leader();
    std::mem::swap(&mut scene.victim, &mut scene.other);
    let before = scene.status();
    assert_eq!(before.role, Role::Leader);
    scene.send(MessageType::MsgRequestPreVote, |message| message.term = 1 << 50);
    scene.send(MessageType::MsgRequestPreVoteResponse, |message| message.term = 1 << 50);
    assert_eq!((scene.status().role, scene.status().raft_term), (Role::Leader, before.raft_term));
    scene.others_serve();
}
