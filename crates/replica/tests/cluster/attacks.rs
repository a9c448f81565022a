//! Interleavings that would break a promise if one line of the core stood elsewhere.

use raft::eraftpb::{Entry, HardState, Message, MessageType};
use regent_election::policy::NodePattern;
use regent_election::state::{Query, View};
use regent_election::store::{OfficeState, StoreError};
use regent_election::{Answer, Command, Group, Policy, Refusal};
use regent_replica::io::{Input, PeerMessage, Request, Response};
use regent_replica::{MemberChange, Members, ReplicatedState};

use crate::bench::{
    Cluster, Disk, campaign, founding_disk, heartbeat, id, member, open, session,
    two_and_a_witness, witness,
};

/// The disk of a replica that joins: it knows nothing and nobody.
pub(crate) fn joining_disk() -> Disk {
    let mut empty = founding_disk(&Members::new(), 0);
    (empty.place.index, empty.place.term) = (0, 0);
    empty.hard_state = HardState::default();
    empty
}

pub(crate) fn one_with_a_learner() -> Cluster {
    let mut cluster = Cluster::new(1);
    let leader = cluster.await_leader();
    let add = MemberChange::Add { id: id(2), member: member(2) };
    assert_eq!(cluster.answer(leader, Request::Members(add)), Response::Done);
    cluster.disks.insert(id(2), joining_disk());
    cluster.start(id(2));
    cluster.run(500);
    assert_eq!(cluster.cores[&id(2)].applied(), cluster.cores[&id(1)].applied());
    cluster
}

/// A voter that is alone wins at once, before its Raft term is on its disk. What it says in that term
/// must not be heard before it is: after a power cut it would say other things in the same term.
#[test]
fn a_lone_voter_says_nothing_in_a_term_that_its_disk_may_forget() {
    let mut cluster = one_with_a_learner();
    cluster.submit(id(1), open(1, 10_000)).unwrap();
    cluster.submit(id(1), open(2, 10_000)).unwrap();
    cluster.run(50);
    cluster.stop(id(1));
    cluster.start(id(1));
    cluster.stall(id(1));
    cluster.run(400);
    let command = campaign(1, "billing");
    cluster.ask(id(1), Request::Submit { command, request: None, query: None });
    cluster.run(50);
    // Nothing of this was confirmed; the power fails, and another one is first.
    cluster.stop(id(1));
    cluster.unstall(id(1));
    cluster.start(id(1));
    cluster.await_leader();
    let won = cluster.submit(id(1), campaign(2, "billing"));
    assert!(matches!(won, Ok(Answer::Elected { .. })), "{won:?}");
    cluster.run(500);
    let states = [1, 2].map(|replica| cluster.cores[&id(replica)].replicated().encode());
    assert!(states[0] == states[1], "replicas agree at equal index (S8)");
}

/// Semantics 24: reads see only whole entries. A view of half an entry would bear the cursor of the
/// whole, and a watch from there would never hear of the other half (S5).
#[test]
fn a_stale_read_never_sees_half_an_entry() {
    let mut cluster = Cluster::new(1);
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 10_000)).unwrap();
    for number in 0..2000 {
        cluster.submit(leader, campaign(1, &format!("group-{number:04}"))).unwrap();
    }
    let command = Command::Close { session: session(1) };
    cluster.ask(leader, Request::Submit { command, request: None, query: None });
    for _ in 0..1000 {
        cluster.step();
        if cluster.cores[&leader].is_between() {
            break;
        }
    }
    assert!(cluster.cores[&leader].is_between(), "the entry takes several slices");
    let group = Group::new("group-1999").unwrap();
    let query = Query::Leader(group.clone());
    let seen = match cluster.answer(leader, Request::Read { query, linearizable: false }) {
        Response::View { view: View::Leader(seen), .. } => seen,
        other => panic!("{other:?}"),
    };
    cluster.run(100);
    let missed = cluster.events[&leader]
        .iter()
        .rfind(|(revision, event)| event.group == group && *revision <= seen.revision)
        .unwrap();
    assert_eq!(seen.leader, missed.1.leader, "as of revision {:?}", seen.revision);
}

/// An operator's request must be answered, also when what it asked for was lost with a leadership.
#[test]
fn a_change_of_members_that_was_lost_is_answered() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    for other in (1..=3).map(id).filter(|other| *other != leader) {
        cluster.cut.insert((leader, other));
        cluster.cut.insert((other, leader));
    }
    let add = MemberChange::Add { id: id(4), member: member(4) };
    let token = cluster.ask(leader, Request::Members(add));
    cluster.run(2000);
    let next = cluster.await_leader();
    assert_ne!(next, leader);
    cluster.submit(next, open(1, 10_000)).unwrap();
    cluster.cut.clear();
    cluster.run(5000);
    let answer = cluster.answers.remove(&token);
    assert!(matches!(answer, Some(Response::Error(_))), "{answer:?}");
}

/// A replica whose disk stands still knows how far it must be before it answers, and never gets there.
#[test]
fn a_confirmed_heartbeat_that_cannot_be_answered_is_given_up() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let stuck = (1..=3).map(id).find(|other| *other != leader).unwrap();
    cluster.submit(leader, open(1, 60_000)).unwrap();
    cluster.run(100);
    cluster.stall(stuck);
    cluster.submit(leader, open(2, 60_000)).unwrap();
    let read = Request::Read { query: Query::Census, linearizable: true };
    let tokens = [cluster.ask(stuck, heartbeat(1)), cluster.ask(stuck, read)];
    cluster.run(6000);
    for token in tokens {
        let answer = cluster.answers.remove(&token);
        assert!(
            matches!(answer, Some(Response::Error(StoreError::Unavailable { .. }))),
            "{answer:?}"
        );
    }
}

/// Whoever waits for a snapshot is served by one from the leader as well.
#[test]
fn a_backup_asked_for_while_a_snapshot_arrives_is_answered() {
    let mut cluster = Cluster::new(3);
    cluster.snapshot_every = 20;
    for number in 1..=3 {
        cluster.stop(id(number));
        cluster.start(id(number));
    }
    let leader = cluster.await_leader();
    let behind = (1..=3).map(id).find(|other| *other != leader).unwrap();
    cluster.submit(leader, open(1, 60_000)).unwrap();
    cluster.run(50);
    cluster.stop(behind);
    for number in 0..60 {
        cluster.submit(leader, campaign(1, &format!("group-{number}"))).unwrap();
    }
    // Nothing comes after the newest snapshot, so nothing would ask for another one.
    assert_eq!(cluster.answer(leader, Request::Snapshot), Response::Done);
    cluster.start(behind);
    let is_snapshot = |message: &PeerMessage| matches!(message, PeerMessage::Raft(it) if it.msg_type == MessageType::MsgSnapshot);
    let mut token = None;
    for _ in 0..1000 {
        let comes =
            cluster.mail.iter().any(|(_, _, to, message)| *to == behind && is_snapshot(message));
        if comes {
            token = Some(cluster.ask(behind, Request::Snapshot));
            break;
        }
        cluster.step();
    }
    cluster.run(3000);
    assert_eq!(cluster.answers.remove(&token.unwrap()), Some(Response::Done));
}

/// A replica that was told to be a witness and is none would keep no state, and after its next start
/// take none for one in which nothing ever happened.
#[test]
fn a_replica_is_what_the_members_say_whatever_it_was_told_when_it_joined() {
    let mut cluster = Cluster::new(1);
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 60_000)).unwrap();
    cluster.submit(leader, campaign(1, "billing")).unwrap();
    for (replica, member) in [(id(2), member(2)), (id(3), witness(3))] {
        let add = MemberChange::Add { id: replica, member };
        assert_eq!(cluster.answer(leader, Request::Members(add)), Response::Done);
        cluster.disks.insert(replica, joining_disk());
    }
    cluster.joins_as_witness.insert(id(2));
    for replica in [id(2), id(3)] {
        cluster.start(replica);
        cluster.run(500);
        let promote = MemberChange::Promote { id: replica };
        assert_eq!(cluster.answer(leader, Request::Members(promote)), Response::Done);
    }
    cluster.submit(leader, campaign(1, "ledger")).unwrap();
    cluster.run(100);
    for replica in [id(2), id(3)] {
        assert_eq!(cluster.answer(replica, Request::Snapshot), Response::Done);
        cluster.stop(replica);
        cluster.start(replica);
    }
    cluster.run(500);
    assert_eq!(cluster.leader_of(id(2), "billing").1, 1, "it has state to answer from");
    let replicated = |replica| cluster.cores[&id(replica)].replicated();
    assert!(replicated(1).encode() == replicated(2).encode(), "full replicas agree (S8)");
    assert!(replicated(3).has_no_state && cluster.cores[&id(3)].status().is_witness);
}

/// S10: who lost its disk has forgotten what it promised. Under its old number it is still a voter to
/// the others, and its vote could elect one who never heard of what it had helped to commit.
#[test]
fn a_replica_that_lost_its_disk_elects_nobody() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let others: Vec<_> = (1..=3).map(id).filter(|other| *other != leader).collect();
    let (wiped, behind) = (others[0], others[1]);
    cluster.stop(behind);
    cluster.submit(leader, open(1, 60_000)).unwrap();
    cluster.submit(leader, campaign(1, "billing")).unwrap();
    cluster.stop(wiped);
    cluster.stop(leader);
    cluster.disks.insert(wiped, joining_disk());
    cluster.start(wiped);
    cluster.start(behind);
    cluster.run(5000);
    assert_eq!(cluster.leader(), None, "one of two who may vote is no majority of three");
    // The one who remembers comes back, and nothing is lost.
    cluster.start(leader);
    cluster.await_leader();
    assert_eq!(cluster.leader_of(behind, "billing").1, 1);
}

/// What cannot be true is dropped, and nobody dies of it.
#[test]
fn a_peer_that_sends_nonsense_ends_nobody() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 60_000)).unwrap();
    cluster.run(100);
    cluster.is_attacked = true;
    let victim = (1..=3).map(id).find(|other| *other != leader).unwrap();
    let status = cluster.cores[&victim].status();
    let lie = |kind, change: &dyn Fn(&mut Message)| {
        let mut message = Message::default();
        message.set_msg_type(kind);
        (message.from, message.to) = (leader.get(), victim.get());
        message.term = status.raft_term;
        change(&mut message);
        PeerMessage::Raft(Box::new(message))
    };
    let mut other = Entry::default();
    (other.index, other.term) = (status.committed, 1);
    let lies = [
        lie(MessageType::MsgHeartbeat, &|m| m.commit = status.last + 1000),
        lie(MessageType::MsgAppend, &|m| {
            (m.index, m.log_term) = (status.committed - 1, status.raft_term);
            m.set_entries(vec![other.clone()].into());
        }),
        lie(MessageType::MsgRequestVote, &|m| m.term = u64::MAX),
        lie(MessageType::MsgHeartbeat, &|m| m.term = u64::MAX),
    ];
    for lie in lies {
        let input = Input::Message { from: leader, message: lie };
        cluster.cores.get_mut(&victim).unwrap().on(cluster.now, input);
        cluster.run(50);
    }
    assert_eq!(cluster.leader(), Some(leader), "nobody was deposed by it");
    cluster.submit(victim, open(2, 60_000)).unwrap();
}

/// Semantics 12, and S12: who is silent travels with a command, but not a million of them with each.
#[test]
fn a_crowd_of_silent_sessions_does_not_travel_with_every_command() {
    let mut cluster = Cluster::new(1);
    let leader = cluster.await_leader();
    for number in 1..=6000 {
        let command = open(number, 60_000);
        cluster.ask(leader, Request::Submit { command, request: None, query: None });
    }
    cluster.run(100);
    cluster.submit(leader, campaign(1, "billing")).unwrap();
    cluster.submit(leader, campaign(2, "billing")).unwrap();
    cluster.submit(leader, campaign(3, "billing")).unwrap();
    cluster.run(29_000);
    cluster.answer(leader, heartbeat(3));
    cluster.run(3000);
    cluster.submit(leader, Command::Close { session: session(1) }).unwrap();
    let bytes = cluster.disks[&leader].entries.last().unwrap().data.len();
    assert!(bytes < 200, "{bytes} bytes to close one session");
    let office = cluster.leader_of(leader, "billing").0;
    assert_eq!(office.as_deref(), Some("node-3"), "who is silent and concerned is passed over");
}

/// S12: the log in memory is bounded in bytes, not only in entries.
#[test]
fn large_entries_do_not_fill_the_memory() {
    let mut cluster = Cluster::new(1);
    let leader = cluster.await_leader();
    let group = Group::new("billing").unwrap();
    let mut most = 0;
    for round in 0..4000 {
        let allow = (0..200).map(|n| NodePattern::new(&format!("{round:0>100}-{n}")).unwrap());
        let policy = Policy { allow: allow.collect(), ..Policy::default() };
        let command = Command::PutPolicy { group: group.clone(), policy: Some(Box::new(policy)) };
        cluster.submit(leader, command).unwrap();
        most = most.max(cluster.cores[&leader].status().log_bytes);
    }
    assert!(cluster.cores[&leader].status().snapshot > 1, "nothing was dropped");
    assert!(most < 80 << 20, "{most} bytes of log in memory");
}

/// A leader whose disk stands still is heard by everybody and can answer nobody. The others can.
#[test]
fn a_leader_whose_disk_stands_still_hands_over() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 60_000)).unwrap();
    cluster.stall(leader);
    let other = (1..=3).map(id).find(|other| *other != leader).unwrap();
    let command = campaign(1, "billing");
    cluster.ask(other, Request::Submit { command, request: None, query: None });
    cluster.run(10_000);
    let next = cluster.leader().unwrap();
    assert_ne!(next, leader, "somebody leads who can write");
    assert!(cluster.submit(next, open(2, 60_000)).is_ok());
    assert_eq!(cluster.leader_of(next, "billing").1, 1);
}

/// A Raft leader with a full disk that hears a witness and nobody it could hand over to keeps the witness
/// from voting for a replica that has room: it lays leadership down (found by a seed of the lab).
#[test]
fn a_leader_with_a_full_disk_makes_way_for_one_that_only_the_witness_hears() {
    let mut cluster = two_and_a_witness();
    let full = cluster.await_leader();
    let other = if full == id(1) { id(2) } else { id(1) };
    cluster.submit(full, open(1, 60_000)).unwrap();
    cluster.run(100);
    cluster.cut.extend([(full, other), (other, full)]);
    cluster.cores.get_mut(&full).unwrap().on(cluster.now, Input::Room { is_there: false });
    cluster.run(10_000);
    assert_eq!(cluster.leader(), Some(other), "the one that has room leads");
    assert!(cluster.submit(other, open(2, 60_000)).is_ok());
}

/// With nobody else there, one with a full disk must lead all the same, and for ever longer without a
/// break: else nobody's ttl would ever come to its end.
#[test]
fn a_leader_with_a_full_disk_and_nobody_else_there_leads_on_and_sessions_end() {
    let mut cluster = two_and_a_witness();
    let full = cluster.await_leader();
    let other = if full == id(1) { id(2) } else { id(1) };
    cluster.submit(full, open(1, 20_000)).unwrap();
    cluster.submit(full, campaign(1, "billing")).unwrap();
    cluster.submit(full, open(2, 2_000)).unwrap();
    cluster.stop(other);
    cluster.cores.get_mut(&full).unwrap().on(cluster.now, Input::Room { is_there: false });
    for _ in 0..240 {
        cluster.ask(full, heartbeat(2));
        cluster.run(500);
    }
    assert_eq!(cluster.leader(), Some(full));
    let state = &cluster.cores[&full].replicated().state;
    assert!(state.find_session(session(2)).is_some(), "whoever was heard lives on");
    assert_eq!(cluster.leader_of(full, "billing").0, None, "the silent leader's office is free");
}

/// Semantics 29. Refused its acceptance, a promoted standby would be passed over, and so would everybody after it.
#[test]
fn a_promoted_standby_takes_office_while_the_disk_is_full() {
    let mut cluster = Cluster::new(1);
    let full = cluster.await_leader();
    for number in [1, 2] {
        cluster.submit(full, open(number, 60_000)).unwrap();
        cluster.submit(full, campaign(number, "billing")).unwrap();
    }
    let group = Group::new("billing").unwrap();
    let term = cluster.cores[&full].replicated().state.holder(&group).unwrap().term;
    cluster.cores.get_mut(&full).unwrap().on(cluster.now, Input::Room { is_there: false });
    let resign = Command::Resign { group: group.clone(), session: session(1), term };
    cluster.submit(full, resign).unwrap();
    let expected = ("node-2".to_owned(), term.get() + 1);
    assert_eq!(
        cluster.leader_of(full, "billing"),
        (Some(expected.0.clone()), expected.1, OfficeState::Elected)
    );
    let accept = Command::Accept { group, session: session(2), term: term.next().unwrap() };
    cluster.submit(full, accept).unwrap();
    assert_eq!(
        cluster.leader_of(full, "billing"),
        (Some(expected.0), expected.1, OfficeState::Leading)
    );
    let newcomer = Request::Submit { command: open(3, 60_000), request: None, query: None };
    let told = cluster.answer(full, newcomer);
    assert!(matches!(told, Response::Error(StoreError::Unavailable { .. })), "{told:?}");
}

/// What a network delivers late or twice says nothing about who is alive when it arrives: only the first
/// arrival of a forwarded change counts.
#[test]
fn a_change_that_is_delivered_again_and_again_keeps_nobody_alive() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let follower = (1..=3).map(id).find(|other| *other != leader).unwrap();
    cluster.submit(leader, open(1, 1000)).unwrap();
    cluster.submit(leader, open(2, 60_000)).unwrap();
    let command = campaign(1, "billing");
    cluster.ask(follower, Request::Submit { command, request: None, query: None });
    cluster.turn(follower);
    let is_forwarded = |message: &PeerMessage| matches!(message, PeerMessage::Propose { .. });
    let sent = cluster.mail.iter().find(|(.., message)| is_forwarded(message)).unwrap();
    let forwarded = sent.3.clone();
    cluster.run(10);
    assert_eq!(cluster.leader_of(leader, "billing").0.as_deref(), Some("node-1"));
    cluster.submit(leader, campaign(2, "billing")).unwrap();
    for _ in 0..6 {
        cluster.run(200);
        cluster.deliver(follower, leader, forwarded.clone());
    }
    assert_eq!(cluster.leader_of(leader, "billing").0.as_deref(), Some("node-2"));
}

/// A Raft leader that says "not taken, and never will be" is believed: the client is told that nothing
/// happened. A second copy of the same message must not make it happen after all.
#[test]
fn what_was_declined_is_not_taken_when_the_network_delivers_it_again() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let follower = (1..=3).map(id).find(|other| *other != leader).unwrap();
    cluster.submit(leader, open(1, 60_000)).unwrap();
    // While it hands over, it takes nothing; and nobody takes over from it.
    let third = (1..=3).map(id).find(|other| ![leader, follower].contains(other)).unwrap();
    cluster.cut.extend([(leader, third), (third, leader), (third, follower)]);
    cluster.ask(leader, Request::Transfer { to: Some(third) });
    cluster.turn(leader);
    let command = campaign(1, "billing");
    let token = cluster.ask(follower, Request::Submit { command, request: None, query: None });
    cluster.turn(follower);
    let is_forwarded = |message: &PeerMessage| matches!(message, PeerMessage::Propose { .. });
    let sent = cluster.mail.iter().find(|(.., message)| is_forwarded(message)).unwrap();
    let forwarded = sent.3.clone();
    cluster.run(400);
    assert_eq!(cluster.leader(), Some(leader));
    let told = cluster.answers.remove(&token);
    assert!(matches!(told, Some(Response::Error(StoreError::Unavailable { .. }))), "{told:?}");
    cluster.deliver(follower, leader, forwarded);
    cluster.run(100);
    assert_eq!(cluster.leader_of(leader, "billing").0, None);
}

/// Of two changes in one message's time, one is refused for want of room and the other because the log
/// takes nothing: both are told at once that nothing happened.
#[test]
fn every_change_that_is_declined_is_told_so_in_whatever_order() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let follower = (1..=3).map(id).find(|other| *other != leader).unwrap();
    let third = (1..=3).map(id).find(|other| ![leader, follower].contains(other)).unwrap();
    cluster.submit(leader, open(1, 60_000)).unwrap();
    cluster.cut.extend([(leader, third), (third, leader), (third, follower)]);
    cluster.ask(leader, Request::Transfer { to: Some(third) });
    cluster.turn(leader);
    cluster.cores.get_mut(&leader).unwrap().on(cluster.now, Input::Room { is_there: false });
    let commands = [Command::Close { session: session(1) }, open(2, 60_000)];
    let tokens = commands.map(|command| {
        cluster.ask(follower, Request::Submit { command, request: None, query: None })
    });
    cluster.run(20);
    for token in tokens {
        let told = cluster.answers.remove(&token);
        assert!(matches!(told, Some(Response::Error(StoreError::Unavailable { .. }))), "{told:?}");
    }
}

/// A replica that was removed comes back with an empty disk and counts its runs from the first again. Its number is
/// never used again, so it comes back under another one, and what it forwards then is new.
#[test]
fn what_a_replica_forwards_in_its_next_life_is_taken() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let again = (1..=3).map(id).find(|other| *other != leader).unwrap();
    for _ in 0..3 {
        cluster.stop(again);
        cluster.start(again);
        cluster.run(100);
    }
    cluster.submit(again, open(1, 60_000)).unwrap();
    assert_eq!(cluster.leader(), Some(leader));
    let remove = MemberChange::Remove { id: again };
    assert_eq!(cluster.answer(leader, Request::Members(remove)), Response::Done);
    cluster.stop(again);
    let add = MemberChange::Add { id: again, member: member(again.get()) };
    let refused = format!("{:?}", cluster.answer(leader, Request::Members(add)));
    assert!(refused.contains("was used before; take 4 or more"), "{refused}");
    let add = MemberChange::Add { id: id(4), member: member(4) };
    assert_eq!(cluster.answer(leader, Request::Members(add)), Response::Done);
    cluster.disks.insert(id(4), joining_disk());
    cluster.start(id(4));
    cluster.run(500);
    cluster.submit(id(4), open(2, 60_000)).unwrap();
    let remove = MemberChange::Remove { id: id(4) };
    assert_eq!(cluster.answer(leader, Request::Members(remove)), Response::Done);
    // The number of a removed replica stays the highest, in snapshots, too.
    assert_eq!(cluster.answer(leader, Request::Snapshot), Response::Done);
    let kept = ReplicatedState::decode(&cluster.disks[&leader].snapshot).unwrap();
    assert_eq!((cluster.cores[&leader].status().highest, kept.highest), (4, 4));
    assert_eq!(cluster.leader(), Some(leader), "the one that remembers its earlier life");
}

/// A heartbeat that meets a proposed expiry is answered by its outcome (semantics 5), on whichever replica
/// its client asked: one that has not applied the expiry must not answer from before it (S4).
#[test]
fn a_heartbeat_that_met_an_expiry_is_not_answered_from_before_it() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let others: Vec<_> = (1..=3).map(id).filter(|other| *other != leader).collect();
    let (late, other) = (others[0], others[1]);
    cluster.submit(leader, open(1, 1000)).unwrap();
    cluster.run(980);
    cluster.stall(late);
    cluster.stall(other);
    while cluster.cores[&leader].status().due_expiries == 0 {
        cluster.step();
    }
    let token = cluster.ask(late, heartbeat(1));
    cluster.run(5);
    cluster.unstall(other);
    cluster.run(20);
    let knows = |cluster: &Cluster, replica| {
        cluster.cores[&replica].replicated().state.find_session(session(1)).is_some()
    };
    assert!(!knows(&cluster, leader) && knows(&cluster, late), "one of them has applied it");
    assert_eq!(cluster.answers.remove(&token), None, "the other waits");
    cluster.unstall(late);
    cluster.run(50);
    let unknown = Response::Error(StoreError::Refused(Refusal::SessionUnknown));
    assert_eq!(cluster.answers.remove(&token), Some(unknown));
}

/// Renewals are the most frequent thing there is, and there is nothing to keep of them: they are
/// answered though every disk stands still.
#[test]
fn a_round_of_heartbeats_waits_for_no_disk() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 60_000)).unwrap();
    cluster.run(500);
    for replica in 1..=3 {
        cluster.stall(id(replica));
    }
    for replica in 1..=3 {
        assert!(matches!(cluster.answer(id(replica), heartbeat(1)), Response::Heartbeat { .. }));
    }
}

/// What a follower says while its disk still owes something is said when that is paid: after a power cut
/// it would not remember the Raft term or the entries in which it spoke. That holds for the answers to
/// rounds, too, of which there is nothing to keep.
#[test]
fn a_follower_says_nothing_that_comes_after_what_its_disk_may_forget() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    let follower = (1..=3).map(id).find(|other| *other != leader).unwrap();
    cluster.submit(leader, open(1, 60_000)).unwrap();
    cluster.run(500);
    cluster.stall(follower);
    cluster.submit(leader, open(2, 60_000)).unwrap();
    // The next entries, and rounds without any, meet a disk that still owes the first.
    cluster.run(5);
    assert!(!cluster.stalled[&follower].is_empty(), "it has something to write");
    let is_said = |cluster: &Cluster| {
        let said = |from, message: &PeerMessage| {
            from == follower && matches!(message, PeerMessage::Raft(_))
        };
        cluster.mail.iter().any(|(_, from, _, message)| said(*from, message))
    };
    let before = cluster.stalled[&follower].len();
    for _ in 0..400 {
        cluster.ask(leader, heartbeat(1));
        cluster.step();
        assert!(!is_said(&cluster), "it spoke of what it may forget");
    }
    let after = cluster.stalled[&follower].len();
    assert!(
        after <= before + 1,
        "{} batches for rounds that leave nothing to keep",
        after - before
    );
    cluster.unstall(follower);
    cluster.step();
    assert!(is_said(&cluster), "and then says everything");
}
