//! One member is broken or hostile and holds valid credentials: whatever it sends, nobody's process ends, and the other
//! two elect and serve without it.
//!
//! Each test is one shape of message. What such a member can still do is in `docs/security.md`.

use std::sync::Arc;

use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType, Snapshot};
use regent_election::{Command, Settings};
use regent_replica::io::{Input, PeerMessage, Request};
use regent_replica::{
    Core, CoreConfig, MemberChange, Recovered, ReplicaId, ReplicatedState, Role, Status,
};

use crate::attacks::one_with_a_learner;
use crate::bench::{Cluster, id, open, session};

/// Three replicas of which one, the Raft leader until now, turns hostile: its process is gone, and what is sent in its
/// name is up to the test.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) hostile: ReplicaId,
    pub(crate) victim: ReplicaId,
    pub(crate) other: ReplicaId,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let mut scene = Self::with_its_process();
        scene.cluster.stop(scene.hostile);
        scene
    }

    pub(crate) fn with_its_process() -> Self {
        let mut cluster = Cluster::new(3);
        let hostile = cluster.await_leader();
        cluster.submit(hostile, open(1, 60_000)).unwrap();
        cluster.run(100);
        cluster.is_attacked = true;
        let rest: Vec<ReplicaId> = (1..=3).map(id).filter(|other| *other != hostile).collect();
        Self { cluster, hostile, victim: rest[0], other: rest[1] }
    }

    pub(crate) fn status(&self) -> Status {
        self.cluster.cores[&self.victim].status()
    }

    /// A message of the hostile one to its victim, in the Raft term that holds.
    pub(crate) fn message(&self, kind: MessageType, change: impl FnOnce(&mut Message)) -> Message {
        let mut message = Message::default();
        message.set_msg_type(kind);
        (message.from, message.to) = (self.hostile.get(), self.victim.get());
        message.term = self.status().raft_term;
        change(&mut message);
        message
    }

    pub(crate) fn send(&mut self, kind: MessageType, change: impl FnOnce(&mut Message)) {
        let message = PeerMessage::Raft(Box::new(self.message(kind, change)));
        self.cluster.deliver(self.hostile, self.victim, message);
        self.cluster.step();
    }

    /// Announces a snapshot just after what is committed, changed as the test wants, and brings it.
    pub(crate) fn send_snapshot(
        &mut self,
        replicated: ReplicatedState,
        change: impl FnOnce(&mut Message, &mut ConfState),
    ) {
        let committed = self.status().committed;
        let message = self.message(MessageType::MsgSnapshot, |message| {
            let mut members = ConfState::default();
            members.voters = vec![1, 2, 3];
            let mut snapshot = Snapshot::default();
            (snapshot.mut_metadata().index, snapshot.mut_metadata().term) =
                (committed + 5, message.term);
            message.set_snapshot(snapshot);
            change(message, &mut members);
            message.mut_snapshot().mut_metadata().set_conf_state(members);
        });
        let input = Input::Snapshot {
            from: self.hostile,
            message: Box::new(message),
            bytes: Arc::from(replicated.encode()),
            replicated: Box::new(replicated),
        };
        let now = self.cluster.now;
        self.cluster.cores.get_mut(&self.victim).unwrap().on(now, input);
        self.cluster.step();
    }

    /// What the victim has applied, as a snapshot would bring it.
    pub(crate) fn replicated(&self) -> ReplicatedState {
        self.cluster.cores[&self.victim].replicated().clone()
    }

    /// The other two go on without the hostile one.
    pub(crate) fn others_serve(mut self) {
        self.cluster.stop(self.hostile);
        let two = [self.victim, self.other];
        let is_led = |cluster: &Cluster| {
            let leads = |replica| cluster.cores[&replica].status().is_serving;
            two.into_iter().any(leads)
        };
        for _ in 0..30_000 {
            if is_led(&self.cluster) {
                break;
            }
            self.cluster.step();
        }
        assert!(is_led(&self.cluster), "the other two elect nobody");
        for number in 0..10 {
            for replica in two {
                let number = 100 + 10 * replica.get() + number;
                self.cluster.submit(replica, open(number.into(), 60_000)).unwrap();
            }
        }
        self.cluster.run(100);
        let states = two.map(|replica| self.cluster.cores[&replica].replicated().encode());
        assert!(states[0] == states[1], "replicas agree at equal index (S8)");
    }
}

/// Replicas that are in order refuse nothing of each other, though links break in the middle of everything: the bench
/// would say so.
#[test]
fn replicas_in_order_send_nothing_that_is_refused() {
    let mut cluster = Cluster::new(3);
    cluster.snapshot_every = 50;
    cluster.await_leader();
    for number in 0..2_000 {
        let leader = cluster.leader().unwrap_or(id(1));
        for at in 0..number % 3 {
            let command = open((1 + number * 3 + at).into(), 60_000);
            let request = Request::Submit { command, request: None, query: None };
            cluster.ask(id(1 + (number + at) % 3), request);
        }
        let lost = id(1 + number / 7 % 3);
        if number % 5 == 0 && lost != leader {
            let now = cluster.now;
            let lost = Input::Unreachable { replica: lost };
            cluster.cores.get_mut(&leader).unwrap().on(now, lost);
        }
        cluster.step();
    }
    cluster.await_leader();
    assert_eq!(cluster.refused, Vec::new());
}

pub(crate) fn entry(index: u64, term: u64, data: &[u8]) -> Entry {
    let mut entry = Entry::default();
    (entry.index, entry.term) = (index, term);
    entry.data = data.to_vec().into();
    entry
}

#[test]
fn entries_that_follow_nothing_beyond_the_log() {
    let mut scene = Scene::new();
    let status = scene.status();
    scene.send(MessageType::MsgAppend, |message| {
        (message.index, message.log_term) = (status.last + 10, 0);
        message.set_entries(vec![entry(status.last + 11, status.raft_term, b"")].into());
    });
    scene.others_serve();
}

#[test]
fn an_append_without_entries_that_commits_beyond_the_log() {
    let mut scene = Scene::new();
    let last = scene.status().last;
    scene.send(MessageType::MsgAppend, |message| {
        (message.index, message.log_term, message.commit) = (last + 10, 0, last + 10);
    });
    scene.others_serve();
}

#[test]
fn a_request_to_transfer_leadership_that_bears_a_term() {
    let mut scene = Scene::new();
    scene.send(MessageType::MsgTransferLeader, |_| {});
    scene.others_serve();
}

#[test]
fn a_read_round_that_bears_a_term() {
    let mut scene = Scene::new();
    scene.send(MessageType::MsgReadIndex, |message| {
        message.set_entries(vec![entry(0, 0, &[7; 24])].into());
    });
    scene.others_serve();
}

#[test]
fn an_answer_to_a_read_round_that_bears_no_term() {
    let mut scene = Scene::new();
    let last = scene.status().last;
    scene.send(MessageType::MsgReadIndexResp, |message| {
        (message.term, message.index) = (0, last + 10);
        message.set_entries(vec![entry(0, 0, &[7; 24])].into());
    });
    scene.others_serve();
}

#[test]
fn a_snapshot_in_which_a_voter_is_also_a_learner() {
    let mut scene = Scene::new();
    scene.send_snapshot(scene.replicated(), |_, members| members.learners = vec![3]);
    scene.others_serve();
}

#[test]
fn a_snapshot_in_which_nobody_votes_under_the_number_zero() {
    let mut scene = Scene::new();
    scene.send_snapshot(scene.replicated(), |_, members| members.voters = vec![1, 2, 3, 0]);
    scene.others_serve();
}

#[test]
fn a_snapshot_of_no_term_beyond_the_log() {
    let mut scene = Scene::new();
    scene.send_snapshot(scene.replicated(), |message, _| {
        message.mut_snapshot().mut_metadata().term = 0;
    });
    scene.others_serve();
}

/// Watchers would be told a history that did not happen.
#[test]
fn a_snapshot_of_an_earlier_state_at_a_later_place() {
    let mut scene = Scene::new();
    let members = scene.replicated().members;
    scene.send_snapshot(ReplicatedState::found(Settings::default(), members), |_, _| {});
    scene.others_serve();
}

/// Only a witness keeps a state of which nothing is there, and it sends it to nobody.
#[test]
fn a_snapshot_without_state_makes_no_witness_of_a_full_replica() {
    let mut scene = Scene::new();
    scene.send_snapshot(scene.replicated().without_state(), |_, _| {});
    assert!(!scene.status().is_witness);
    scene.others_serve();
}

#[test]
fn an_entry_that_nobody_can_read() {
    let mut scene = Scene::new();
    let status = scene.status();
    scene.send(MessageType::MsgAppend, |message| {
        (message.index, message.log_term) = (status.last, status.raft_term);
        message.commit = status.last + 1;
        message.set_entries(vec![entry(status.last + 1, status.raft_term, b"nonsense")].into());
    });
    scene.others_serve();
}

/// Found on a disk, it is an error that says which one, and no panic at every start.
#[test]
fn a_log_with_an_entry_that_nobody_can_read_is_refused_at_the_start() {
    let scene = Scene::new();
    let disk = &scene.cluster.disks[&scene.victim];
    let last = scene.status().last;
    let mut entries = disk.entries.clone();
    entries.push(entry(last + 1, disk.hard_state.term, b"nonsense"));
    let recovered = Recovered {
        hard_state: disk.hard_state.clone(),
        place: disk.place.clone(),
        replicated: ReplicatedState::decode(&disk.snapshot).unwrap(),
        entries,
    };
    let refused = Core::new(CoreConfig::new(scene.victim, 9, 9), recovered, scene.cluster.now);
    let why = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(why.contains(&format!("entry {} of the log cannot be read", last + 1)), "{why}");
}

/// It can be read, and so it may be in the log of a majority: then it must mean the same to all, which is nothing.
#[test]
fn a_change_of_members_that_cannot_be_applied_changes_nothing() {
    let mut scene = Scene::new();
    let status = scene.status();
    let mut context = Vec::new();
    MemberChange::LeaveJoint.put(&mut context);
    let mut change = entry(status.last + 1, status.raft_term, b"");
    change.set_entry_type(EntryType::EntryConfChangeV2);
    change.context = context.into();
    scene.send(MessageType::MsgAppend, |message| {
        (message.index, message.log_term) = (status.last, status.raft_term);
        message.commit = status.last + 1;
        message.set_entries(vec![change].into());
    });
    scene.cluster.run(5);
    assert_eq!(scene.status().applied, status.last + 1, "it is in the log");
    scene.others_serve();
}

/// A vote for a candidate whose request has not left yet, because its disk owes entries from before.
#[test]
fn votes_that_come_before_they_were_asked_for() {
    let mut scene = Scene::with_its_process();
    scene.cluster.stall(scene.victim);
    let command = open(2, 60_000);
    let request = Request::Submit { command, request: None, query: None };
    scene.cluster.ask(scene.hostile, request);
    scene.cluster.run(20);
    scene.cluster.stop(scene.hostile);
    for link in [(scene.other, scene.victim), (scene.victim, scene.other)] {
        scene.cluster.cut.insert(link);
    }
    for _ in 0..3000 {
        if scene.status().role == Role::Candidate {
            break;
        }
        scene.cluster.step();
    }
    scene.send(MessageType::MsgRequestPreVoteResponse, |message| message.term += 1);
    scene.send(MessageType::MsgRequestVoteResponse, |_| {});
    scene.cluster.unstall(scene.victim);
    scene.cluster.cut.clear();
    scene.others_serve();
}

/// A voter that is alone wins as soon as it campaigns, and must not do so with entries that its disk may forget.
#[test]
fn a_learner_that_deposes_a_lone_voter_whose_disk_is_behind() {
    let mut cluster = one_with_a_learner();
    cluster.is_attacked = true;
    cluster.submit(id(1), open(1, 60_000)).unwrap();
    cluster.stop(id(2));
    cluster.stall(id(1));
    let request = Request::Submit { command: open(2, 60_000), request: None, query: None };
    cluster.ask(id(1), request);
    cluster.run(20);
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgAppendResponse);
    (message.from, message.to) = (2, 1);
    message.term = cluster.cores[&id(1)].status().raft_term + 1;
    cluster.deliver(id(2), id(1), PeerMessage::Raft(Box::new(message)));
    cluster.run(3000);
    cluster.unstall(id(1));
    cluster.await_leader();
    cluster.submit(id(1), open(3, 60_000)).unwrap();
}

/// A Raft leader probes where a follower says that it should.
#[test]
fn a_rejection_that_points_beyond_all_numbers() {
    let mut scene = Scene::with_its_process();
    // Here the leader is the victim.
    std::mem::swap(&mut scene.hostile, &mut scene.victim);
    scene.cluster.stop(scene.hostile);
    let matched = scene
        .status()
        .progress
        .iter()
        .find(|(id, ..)| *id == scene.hostile)
        .map(|it| it.1)
        .unwrap();
    let lost = Input::Unreachable { replica: scene.hostile };
    let now = scene.cluster.now;
    scene.cluster.cores.get_mut(&scene.victim).unwrap().on(now, lost);
    scene.send(MessageType::MsgAppendResponse, |message| {
        (message.index, message.reject, message.reject_hint) = (matched, true, u64::MAX);
    });
    scene.others_serve();
}

/// The message asks to be heard though there is a leader, as the vote of a transfer does.
fn vote_at(scene: &mut Scene, term: u64) {
    let last = scene.status().last;
    scene.send(MessageType::MsgRequestVote, |message| {
        (message.term, message.log_term, message.index) = (term, message.term, last);
        message.context = b"CampaignTransfer".to_vec().into();
    });
}

#[test]
fn a_raft_term_at_the_end_of_all_terms() {
    for term in [u64::MAX, u64::MAX / 2, u64::MAX / 4, 1 << 60, 1 << 40] {
        let mut scene = Scene::new();
        vote_at(&mut scene, term);
        scene.others_serve();
    }
}

/// The terms of two honest replicas must not be driven so far apart that neither hears the other again.
#[test]
fn a_victim_whose_raft_term_was_driven_up_is_heard_again() {
    let mut scene = Scene::new();
    for _ in 0..40 {
        vote_at(&mut scene, u64::MAX / 8);
        scene.cluster.run(100);
    }
    scene.others_serve();
}

/// Under the number that it bears no proposal would ever be new again.
#[test]
fn a_proposal_numbered_at_the_end_of_all_numbers_does_not_mute_a_replica() {
    for (boot, number) in [(u64::MAX, u64::MAX), (u64::MAX, 1), (1, u64::MAX)] {
        let mut scene = Scene::with_its_process();
        let leader = scene.hostile;
        let forged = PeerMessage::Propose { boot, number, command: open(3, 60_000), request: None };
        scene.cluster.deliver(scene.victim, leader, forged);
        scene.cluster.run(50);
        assert!(scene.cluster.submit(scene.victim, open(4, 60_000)).is_ok());
        let close = Command::Close { session: session(4) };
        assert!(scene.cluster.submit(scene.victim, close).is_ok());
    }
}
