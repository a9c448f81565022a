//! A member that sends anything at all: its own messages changed, and made-up ones.
//!
//! Seeded: the daily run tries a few worlds. `REGENT_FUZZ_SECONDS=3600` goes on for that long, and `REGENT_FUZZ_SEED=7`
//! repeats one. A world that fails prints its seed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType, Snapshot};
use regent_election::{Command, Entry as Proposal, Group, SessionNo, Settings, Term};
use regent_replica::io::{Decline, HeartbeatAnswer, Input, PeerMessage, Request, Response};
use regent_replica::replicated::{Origin, RELEASE, encode_proposal};
use regent_replica::{MemberChange, ReplicaId, ReplicatedState};

use crate::bench::{Cluster, campaign, id, member, open, session};

/// Worlds of each kind in the daily run.
const WORLDS: u64 = 40;
/// Milliseconds of a world in which the hostile member is at work.
const ATTACKED_MS: u64 = 3_000;

/// Choices that follow from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.below(256) as u8).collect()
    }
}

const KINDS: [MessageType; 18] = [
    MessageType::MsgHup,
    MessageType::MsgBeat,
    MessageType::MsgPropose,
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgUnreachable,
    MessageType::MsgSnapStatus,
    MessageType::MsgCheckQuorum,
    MessageType::MsgTransferLeader,
    MessageType::MsgTimeoutNow,
    MessageType::MsgReadIndex,
    MessageType::MsgReadIndexResp,
    MessageType::MsgRequestPreVote,
];

/// What the hostile member does not do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manners {
    /// Nothing: it lies about everything.
    None,
    /// It never pretends to lead: what is in the log, and what is committed, stays what honest replicas made it.
    LeadsNobody,
}

struct World {
    cluster: Cluster,
    dice: Dice,
    hostile: ReplicaId,
    manners: Manners,
}

impl World {
    fn new(seed: u64, manners: Manners) -> Self {
        let mut dice = Dice(seed);
        let mut cluster = Cluster::new(3);
        cluster.snapshot_every = 20 + dice.below(200);
        let leader = cluster.await_leader();
        cluster.submit(leader, open(1, 60_000)).unwrap();
        cluster.submit(leader, campaign(1, "billing")).unwrap();
        cluster.is_attacked = true;
        let hostile = id(1 + dice.below(3));
        Self { cluster, dice, hostile, manners }
    }

    fn others(&self) -> [ReplicaId; 2] {
        let mut others = (1..=3).map(id).filter(|other| *other != self.hostile);
        [others.next().unwrap(), others.next().unwrap()]
    }

    /// Everybody lives; somebody whose numbers are near those of this replica lies to it.
    fn run(&mut self) {
        let mut asked = 100;
        for _ in 0..ATTACKED_MS {
            if self.dice.once_in(3) {
                let victim = self.dice.pick(&self.others());
                self.attack(victim);
            }
            if self.dice.once_in(20) {
                let all = (1..=3).map(id).collect::<Vec<_>>();
                let replica = self.dice.pick(&all);
                asked += 1;
                let command = open(asked, 60_000);
                let request = Request::Submit { command, request: None, query: None };
                self.cluster.ask(replica, request);
            }
            if self.dice.once_in(400) {
                let replica = self.dice.pick(&self.others());
                if self.cluster.stalled.contains_key(&replica) {
                    self.cluster.unstall(replica);
                } else {
                    self.cluster.stall(replica);
                }
            }
            self.cluster.step();
            self.cluster.answers.clear();
        }
        for replica in self.others() {
            self.cluster.unstall(replica);
        }
    }

    fn attack(&mut self, victim: ReplicaId) {
        let message = match self.dice.below(10) {
            0 => return self.send_bytes(victim),
            1 => return self.send_snapshot(victim),
            2 => self.our_own(),
            // What it would have sent, changed here and there.
            3..=5 => {
                let honest =
                    self.cluster.mail.iter().find_map(|(_, from, to, message)| match message {
                        PeerMessage::Raft(message) if *from == self.hostile && *to == victim => {
                            Some(message.clone())
                        }
                        _ => None,
                    });
                let Some(mut message) = honest else { return };
                for _ in 0..=self.dice.below(3) {
                    self.change(victim, &mut message);
                }
                PeerMessage::Raft(message)
            }
            _ => {
                let mut message = Message::default();
                message.set_msg_type(self.dice.pick(&KINDS));
                (message.from, message.to) = (self.hostile.get(), victim.get());
                message.term = self.cluster.cores[&victim].status().raft_term;
                for _ in 0..self.dice.below(8) {
                    self.change(victim, &mut message);
                }
                PeerMessage::Raft(Box::new(message))
            }
        };
        if let PeerMessage::Raft(message) = &message
            && !self.is_mannered(message)
        {
            return;
        }
        let now = self.cluster.now;
        let input = Input::Message { from: self.hostile, message };
        self.cluster.cores.get_mut(&victim).unwrap().on(now, input);
    }

    fn is_mannered(&self, message: &Message) -> bool {
        let leads = matches!(
            message.msg_type,
            MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot
        );
        // Nor does it commit in another's name, nor confirm what it does not have.
        let claims = message.commit > 0 || message.msg_type == MessageType::MsgReadIndexResp;
        let confirms = message.msg_type == MessageType::MsgAppendResponse && !message.reject;
        // Nor does it vote for two in one term.
        let votes = message.msg_type == MessageType::MsgRequestVoteResponse && !message.reject;
        self.manners == Manners::None || !(leads || claims || confirms || votes)
    }

    /// A number that is near what the victim knows, or far from everything.
    fn number(&mut self, victim: ReplicaId) -> u64 {
        let status = self.cluster.cores[&victim].status();
        let near = [0, 1, status.raft_term, status.last, status.committed, status.applied];
        let near = self.dice.pick(&near).wrapping_add(self.dice.below(4)).wrapping_sub(1);
        let far = [u64::MAX, u64::MAX / 4, u64::MAX / 4 + 1, u64::MAX / 8, 1 << 33, 1 << 20];
        if self.dice.once_in(4) { self.dice.pick(&far) } else { near }
    }

    fn change(&mut self, victim: ReplicaId, message: &mut Message) {
        let number = self.number(victim);
        match self.dice.below(14) {
            0 => message.set_msg_type(self.dice.pick(&KINDS)),
            1 => message.term = number,
            2 => message.index = number,
            3 => message.log_term = number,
            4 => message.commit = number,
            5 => message.commit_term = number,
            6 => message.reject = !message.reject,
            7 => message.reject_hint = number,
            8 => message.request_snapshot = number,
            9 => message.context = self.dice.bytes(70).into(),
            10 => message.context = b"CampaignTransfer".to_vec().into(),
            11 => {
                let entries = (0..self.dice.below(4)).map(|at| self.entry(victim, message, at));
                let entries = entries.collect::<Vec<_>>();
                message.set_entries(entries.into());
            }
            12 => {
                let status = self.cluster.cores[&victim].status();
                (message.index, message.log_term) = (status.last, status.raft_term);
                message.commit = status.last + self.dice.below(3);
            }
            _ => message.from = number,
        }
    }

    /// An entry that follows, or does not; readable, or not.
    fn entry(&mut self, victim: ReplicaId, message: &Message, at: u64) -> Entry {
        let mut entry = Entry::default();
        entry.index = message.index.wrapping_add(at + 1);
        entry.term = message.term;
        if self.dice.once_in(8) {
            entry.index = self.number(victim);
        }
        if self.dice.once_in(8) {
            entry.term = self.number(victim);
        }
        match self.dice.below(6) {
            0 => {}
            1 => entry.data = self.dice.bytes(40).into(),
            2 => entry.context = RELEASE.to_vec().into(),
            3 => {
                entry.set_entry_type(EntryType::EntryConfChangeV2);
                let mut context = Vec::new();
                self.member_change().put(&mut context);
                entry.context = context.into();
            }
            4 => {
                entry.set_entry_type(EntryType::EntryConfChange);
                entry.context = self.dice.bytes(10).into();
            }
            _ => entry.data = self.proposal(victim).into(),
        }
        entry
    }

    fn member_change(&mut self) -> MemberChange {
        let number = 1 + self.dice.below(5);
        match self.dice.below(4) {
            0 => MemberChange::Add { id: id(number), member: member(number) },
            1 => MemberChange::Promote { id: id(number) },
            2 => MemberChange::Remove { id: id(number) },
            _ => MemberChange::LeaveJoint,
        }
    }

    fn command(&mut self) -> Command {
        let number = u128::from(1 + self.dice.below(4));
        let group = Group::new("billing").unwrap();
        let term = Term::new(1 + self.dice.below(3)).unwrap();
        match self.dice.below(5) {
            0 => open(number, 1000 + self.dice.below(9000)),
            1 => campaign(number, "billing"),
            2 => Command::Resign { group, session: session(number), term },
            3 => Command::Close { session: session(number) },
            _ => {
                let ghosts = (0..self.dice.below(4)).map(|no| SessionNo(no + 1));
                Command::Expire { sessions: ghosts.collect() }
            }
        }
    }

    fn proposal(&mut self, victim: ReplicaId) -> Vec<u8> {
        let replica = id(1 + self.dice.below(4));
        let (boot, number) = (self.number(victim), self.number(victim));
        let command = self.command();
        let silent = (0..self.dice.below(3)).map(|no| SessionNo(no + 1)).collect();
        let proposal = Proposal { command, request: None, silent, wall_ms: self.number(victim) };
        encode_proposal(Origin { replica, boot, number }, &proposal)
    }

    /// Messages that are not Raft's.
    fn our_own(&mut self) -> PeerMessage {
        let victim = self.others()[0];
        let (boot, number, index) =
            (1 + self.dice.below(2), self.dice.below(50), self.number(victim));
        let far = self.number(victim);
        let group = Group::new("billing").unwrap();
        match self.dice.below(9) {
            0 => {
                let command = self.command();
                PeerMessage::Propose { boot: far, number, command, request: None }
            }
            1 => {
                let command = self.command();
                PeerMessage::Propose { boot, number: far, command, request: None }
            }
            2 => {
                let why = Decline::StateFull { used: far, adds: index, max: far };
                PeerMessage::Declined { boot, number, why }
            }
            3 => {
                let tenure = Some((group, Term::new(1).unwrap()));
                let session = session(1);
                PeerMessage::Heartbeat { boot, number, session, sequence: Some(far), tenure }
            }
            4 => PeerMessage::Look { boot, number, group },
            5 => {
                let silent = vec![SessionNo(far)];
                PeerMessage::Seen { boot, number, index, remaining_ms: Some(far), silent }
            }
            6 => {
                let answer = HeartbeatAnswer::Confirmed { index };
                PeerMessage::HeartbeatAnswer { boot, number, answer }
            }
            7 => {
                let others = (1..=3).map(|n| (id(n), member(n))).take(index as usize % 4);
                PeerMessage::Removed { members: others.collect() }
            }
            _ => {
                let answer = HeartbeatAnswer::NotNewer { last: far };
                PeerMessage::HeartbeatAnswer { boot, number, answer }
            }
        }
    }

    /// What is in the mail with a few bytes changed: it may still be read.
    fn send_bytes(&mut self, victim: ReplicaId) {
        let Some((.., message)) = self.cluster.mail.front() else { return };
        let mut bytes = Vec::new();
        message.put(&mut bytes);
        for _ in 0..=self.dice.below(4) {
            let at = self.dice.below(bytes.len() as u64) as usize;
            bytes[at] = self.dice.below(256) as u8;
        }
        let Ok(message) = PeerMessage::decode(&bytes) else { return };
        if let PeerMessage::Raft(message) = &message
            && !self.is_mannered(message)
        {
            return;
        }
        let now = self.cluster.now;
        let input = Input::Message { from: self.hostile, message };
        self.cluster.cores.get_mut(&victim).unwrap().on(now, input);
    }

    fn send_snapshot(&mut self, victim: ReplicaId) {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgSnapshot);
        (message.from, message.to) = (self.hostile.get(), victim.get());
        message.term = self.cluster.cores[&victim].status().raft_term;
        let mut snapshot = Snapshot::default();
        let mut members = ConfState::default();
        members.voters = vec![1, 2, 3];
        let ids = |dice: &mut Dice| (0..dice.below(4)).map(|_| dice.below(5)).collect();
        match self.dice.below(6) {
            0 => members.voters = ids(&mut self.dice),
            1 => members.learners = ids(&mut self.dice),
            2 => members.voters_outgoing = ids(&mut self.dice),
            3 => {
                members.voters_outgoing = ids(&mut self.dice);
                members.learners_next = ids(&mut self.dice);
            }
            4 => members.auto_leave = true,
            _ => {}
        }
        let place = snapshot.mut_metadata();
        (place.index, place.term) = (self.number(victim), message.term);
        if self.dice.once_in(4) {
            place.term = self.number(victim);
        }
        place.set_conf_state(members);
        message.set_snapshot(snapshot);
        if self.dice.once_in(4) {
            self.change(victim, &mut message);
        }
        if !self.is_mannered(&message) {
            return;
        }
        let own = self.cluster.cores[&victim].replicated();
        let replicated = match self.dice.below(4) {
            0 => ReplicatedState::found(Settings::default(), own.members.clone()),
            1 => own.clone().without_state(),
            _ => own.clone(),
        };
        let input = Input::Snapshot {
            from: self.hostile,
            message: Box::new(message),
            bytes: Arc::from(replicated.encode()),
            replicated: Box::new(replicated),
        };
        let now = self.cluster.now;
        self.cluster.cores.get_mut(&victim).unwrap().on(now, input);
    }

    /// The hostile member is gone, and the other two elect and serve without it. Their terms may have been driven apart:
    /// until those have met, whoever leads may be deposed.
    fn others_serve(&mut self) {
        self.cluster.stop(self.hostile);
        for (at, replica) in self.others().into_iter().enumerate() {
            let until = self.cluster.now + Duration::from_secs(60);
            loop {
                assert!(self.cluster.now < until, "{replica} does not serve: {self:?}");
                let command = open(900 + at as u128, 60_000);
                let request = Request::Submit { command, request: None, query: None };
                match self.cluster.answer(replica, request) {
                    Response::Applied { .. } => break,
                    Response::Error(_) => self.cluster.run(100),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.cluster.cores.values().map(regent_replica::Core::status))
            .finish()
    }
}

/// Runs worlds for as long as the environment says.
fn worlds(manners: Manners, check: impl Fn(&mut World)) {
    let variable = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let one = variable("REGENT_FUZZ_SEED");
    let until = variable("REGENT_FUZZ_SECONDS").map(|s| Instant::now() + Duration::from_secs(s));
    let first = one.unwrap_or(1);
    for seed in first.. {
        let is_over = match (one, until) {
            (Some(_), _) => seed > first,
            (None, Some(until)) => Instant::now() >= until,
            (None, None) => seed > WORLDS,
        };
        if is_over {
            eprintln!("{} worlds, and none failed", seed - first);
            return;
        }
        let on_failure = Seed(seed);
        let mut world = World::new(seed, manners);
        world.run();
        check(&mut world);
        std::mem::forget(on_failure);
    }
}

/// Says how to repeat a world that failed.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        eprintln!("to repeat: REGENT_FUZZ_SEED={}", self.0);
    }
}

#[test]
fn whatever_a_member_sends_ends_nobody() {
    worlds(Manners::None, |world| {
        // The members may be others by now, by a leader's word: whether a quorum is left is not asked here.
        world.cluster.stop(world.hostile);
        world.cluster.run(3_000);
    });
}

#[test]
fn two_elect_and_serve_whatever_a_third_that_leads_nobody_sends() {
    worlds(Manners::LeadsNobody, |world| {
        world.others_serve();
        let [one, other] = world.others();
        let applied = |world: &World| [one, other].map(|id| world.cluster.cores[&id].applied());
        for _ in 0..60_000 {
            let [first, second] = applied(world);
            if first == second {
                break;
            }
            world.cluster.step();
        }
        assert_eq!(applied(world)[0], applied(world)[1], "one does not catch up: {world:?}");
        let states = [one, other].map(|id| world.cluster.cores[&id].replicated().encode());
        assert!(states[0] == states[1], "replicas agree at equal index (S8)");
    });
}
