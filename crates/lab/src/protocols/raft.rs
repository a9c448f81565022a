//! Raft's election, by the real replica: the very core that `regent serve` runs, behind the lab's trait.
//!
//! Nothing of Raft is written here. The core gets its messages, its time and its disk from the stage, and
//! elects as it does in production: pre-votes, votes that are durable before they are given, lots for
//! time-outs with a back-off after split votes, and a leader that steps down if it hears no quorum.
//!
//! A leader *may act* while it can prove that nobody else was elected: a round of its own was confirmed by a
//! majority less than the smallest election time-out ago, counted from when it began, and none of those votes
//! for another before that time is over (Ongaro's thesis, 6.4.1). A process that comes back has forgotten whom
//! it confirmed, so it neither hears nor speaks for as long. It promises one leader per term whatever happens,
//! and one that may act at a time while clocks keep within their bound. The road not taken is to let whoever
//! has the role act: an old leader keeps it for a moment after a new one was elected.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use raft::eraftpb::{ConfState, Entry, HardState, MessageType, SnapshotMetadata};
use regent_election::state::Query;
use regent_election::{Group, Moment, Settings};
use regent_replica::io::{Batch, Input, Outputs, PeerMessage, Request, Response, Token};
use regent_replica::limits::TICK_MS;
use regent_replica::{
    Core, CoreConfig, Member, Members, Recovered, ReplicaId, ReplicatedState, Role, Timing,
    TimingError,
};

use super::{Belief, Message, NodeId, Out, Pace, Protocol, Setup};

/// Clocks are taken to be wrong by one per cent at most, against each other by two.
const MARGIN_PERCENT: u32 = 2;
/// Rounds whose outcome is still awaited; older ones would prove nothing any more.
const ROUNDS_MAX: usize = 16;
/// The index that a cluster is founded at.
const FOUNDED_AT: u64 = 1;

/// A message between replicas.
#[derive(Clone, Debug)]
pub struct Raftish(PeerMessage);

/// Its timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RaftTimer {
    /// The core wants to be turned.
    Turn,
    /// A leader lets a majority confirm it.
    Confirm,
    /// What was confirmed is over.
    Lapsed,
}

/// What a replica's disk has.
#[derive(Clone, Debug)]
pub struct Image {
    hard_state: HardState,
    place: SnapshotMetadata,
    snapshot: Arc<[u8]>,
    entries: Vec<Entry>,
}

/// One replica.
#[derive(Debug)]
pub struct Raft {
    setup: Setup,
    core: Core,
    image: Image,
    /// The last batches of what the disk has and has not confirmed.
    unconfirmed: VecDeque<u64>,
    /// Before this a process that came back neither hears nor speaks.
    deaf_until: Moment,
    /// Rounds on their way: when they began.
    rounds: VecDeque<(Token, Moment)>,
    /// When the next one begins.
    confirm_at: Moment,
    tokens: u64,
    /// The Raft term in which it was confirmed, and until when that counts.
    confirmed: Option<(u64, Moment)>,
    /// Whether nobody asks for confirmation: see [`Unasked`].
    is_unasked: bool,
}

/// The same replica when no client asks anything of it: a leader shows itself by its heartbeats alone, and
/// whoever has the role counts as leader. It is what time-outs have to suit; every question would be one more
/// sign of life.
#[derive(Debug)]
pub struct Unasked(Raft);

/// The core's time-outs at this pace.
///
/// # Errors
/// If the core would refuse them.
pub fn timing(pace: &Pace) -> Result<Timing, TimingError> {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (min, heartbeat) = (ms(pace.patience_min), ms(pace.heartbeat_every));
    Timing::new(min, ms(pace.patience_max).max(min + 1), heartbeat, heartbeat * 4 / 5)
}

impl Raft {
    /// Turns the core and sees to what it wants.
    fn turn(&mut self, now: Moment, out: &mut Out<Self>) {
        let outputs = self.core.turn(now);
        self.absorb(now, outputs, out);
        if !self.is_unasked && self.core.is_serving() && now >= self.confirm_at {
            self.confirm(now, out);
        }
        let at = self.core.next_at().max(now + Duration::from_micros(10));
        out.set(RaftTimer::Turn, at);
    }

    fn absorb(&mut self, now: Moment, outputs: Outputs, out: &mut Out<Self>) {
        let Outputs { sends, batches, answers, snapshot, .. } = outputs;
        let last = batches.last().map(|batch| batch.number);
        let must_sync = batches.iter().any(|batch| batch.must_sync);
        for batch in batches {
            self.image.write(batch);
        }
        if let Some(number) = last {
            if must_sync || !self.unconfirmed.is_empty() {
                self.unconfirmed.push_back(number);
                out.keep(self.image.clone());
            } else {
                // It may wait for the next one: losing it loses nothing that was promised.
                self.core.on(now, Input::Persisted { batch: number });
            }
        }
        if snapshot.is_some() {
            // Nothing is replicated here but empty entries: a log is never long.
            self.core.on(now, Input::SnapshotNotMade);
        }
        for (to, message) in sends {
            let to = NodeId(u16::try_from(to.get() - 1).unwrap_or(u16::MAX));
            out.send(to, Raftish(message));
        }
        for (token, response) in answers {
            self.answered(now, token, &response, out);
        }
    }

    /// Asks for a read that needs a majority: whoever gets it leads, as of now.
    fn confirm(&mut self, now: Moment, out: &mut Out<Self>) {
        self.tokens += 1;
        let token = Token(self.tokens);
        let query = Query::Leader(Group::new("lab").expect("three letters are a name"));
        self.rounds.push_back((token, now));
        if self.rounds.len() > ROUNDS_MAX {
            self.rounds.pop_front();
        }
        self.confirm_at = now + self.setup.pace.heartbeat_every;
        let request = Request::Read { query, linearizable: true };
        self.core.on(now, Input::Request { token, request });
        let outputs = self.core.turn(now);
        self.absorb(now, outputs, out);
        out.set(RaftTimer::Confirm, self.confirm_at);
    }

    fn answered(&mut self, now: Moment, token: Token, response: &Response, out: &mut Out<Self>) {
        let Some(place) = self.rounds.iter().position(|(of, _)| *of == token) else { return };
        let Some((_, began_at)) = self.rounds.remove(place) else { return };
        if matches!(response, Response::View { .. }) && self.core.is_serving() {
            let until = began_at + lease(&self.setup.pace);
            let before = self.confirmed.filter(|(term, _)| *term == self.core.raft_term());
            let until = before.map_or(until, |(_, before)| before.max(until));
            if now < until {
                self.confirmed = Some((self.core.raft_term(), until));
                out.set(RaftTimer::Lapsed, until);
            }
        }
    }
}

/// How long a confirmation counts from when its round began.
fn lease(pace: &Pace) -> Duration {
    // A follower counts in ticks, and its first one may come at once.
    let patience = pace.patience_min.saturating_sub(Duration::from_millis(2 * TICK_MS));
    patience * (100 - MARGIN_PERCENT) / 100
}

fn replica(node: NodeId) -> ReplicaId {
    ReplicaId::new(u64::from(node.0) + 1).expect("replicas are counted from one")
}

impl Image {
    fn founding(setup: &Setup) -> Self {
        let member = |number: u16| {
            let node = NodeId(number);
            let (peer_address, client_address) = (format!("peer-{node}"), format!("client-{node}"));
            let is_witness = setup.witnesses.contains(&node);
            (replica(node), Member { peer_address, client_address, is_witness })
        };
        let members: Members = (0..setup.nodes).map(member).collect();
        let mut conf = ConfState::default();
        conf.voters = members.keys().map(|id| id.get()).collect();
        let mut place = SnapshotMetadata::default();
        (place.index, place.term) = (FOUNDED_AT, 1);
        place.set_conf_state(conf);
        let mut hard_state = HardState::default();
        (hard_state.term, hard_state.commit) = (1, FOUNDED_AT);
        let snapshot = ReplicatedState::found(Settings::default(), members).encode().into();
        Self { hard_state, place, snapshot, entries: Vec::new() }
    }

    fn write(&mut self, batch: Batch) {
        if let Some((place, bytes)) = batch.snapshot {
            (self.place, self.snapshot) = (place, bytes);
            self.entries.clear();
        }
        if let Some(first) = batch.entries.first() {
            self.entries.retain(|entry| entry.index < first.index);
            self.entries.extend(batch.entries);
        }
        if let Some(hard_state) = batch.hard_state {
            self.hard_state = hard_state;
        }
    }
}

impl Protocol for Raft {
    type Message = Raftish;
    type Timer = RaftTimer;
    type Kept = Image;

    fn start(setup: &Setup, kept: Option<Image>, now: Moment, out: &mut Out<Self>) -> Self {
        let is_back = setup.run > 1;
        let image = kept.unwrap_or_else(|| Image::founding(setup));
        let replicated =
            ReplicatedState::decode(&image.snapshot).expect("what was put can be taken");
        let recovered = Recovered {
            hard_state: image.hard_state.clone(),
            place: image.place.clone(),
            replicated,
            entries: image.entries.clone(),
        };
        let mut config = CoreConfig::new(replica(setup.me), u64::from(setup.run), setup.seed);
        config.timing = timing(&setup.pace).expect("the stage has checked the scenario's pace");
        config.is_witness = setup.is_witness();
        let deaf_until = if is_back { now + setup.pace.patience_min } else { now };
        out.set(RaftTimer::Turn, deaf_until);
        Self {
            setup: setup.clone(),
            core: Core::new(config, recovered, now).expect("the library takes what was kept"),
            image,
            unconfirmed: VecDeque::new(),
            deaf_until,
            rounds: VecDeque::new(),
            confirm_at: now,
            tokens: 0,
            confirmed: None,
            is_unasked: false,
        }
    }

    fn receive(&mut self, now: Moment, from: NodeId, message: Raftish, out: &mut Out<Self>) {
        if now < self.deaf_until {
            return;
        }
        self.core.on(now, Input::Message { from: replica(from), message: message.0 });
        self.turn(now, out);
    }

    fn wake(&mut self, now: Moment, timer: RaftTimer, out: &mut Out<Self>) {
        match timer {
            RaftTimer::Turn | RaftTimer::Confirm => self.turn(now, out),
            // Looked at by `belief`; the timer only sees to it that somebody looks.
            RaftTimer::Lapsed => {}
        }
    }

    fn durable(&mut self, now: Moment, out: &mut Out<Self>) {
        if let Some(batch) = self.unconfirmed.pop_front() {
            self.core.on(now, Input::Persisted { batch });
            self.turn(now, out);
        }
    }

    fn belief(&self, now: Moment) -> Belief {
        let raft_term = self.core.raft_term();
        let leader = self.core.leader();
        let leader = leader.and_then(|id| u16::try_from(id.get() - 1).ok()).map(NodeId);
        let is_confirmed =
            self.confirmed.is_some_and(|(term, until)| term == raft_term && now < until);
        let may_act = is_confirmed && self.core.is_serving() && self.core.role() == Role::Leader;
        Belief { leader, term: Some(raft_term), may_act }
    }

    /// A liar gives its vote to everybody who asks.
    fn lie(_setup: &Setup, _to: NodeId, message: Raftish) -> Raftish {
        match message.0 {
            PeerMessage::Raft(mut raft) => {
                if matches!(
                    raft.msg_type,
                    MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse
                ) {
                    raft.reject = false;
                }
                Raftish(PeerMessage::Raft(raft))
            }
            other => Raftish(other),
        }
    }
}

impl Unasked {
    /// Lets the replica do something and takes over what it says.
    fn with<T>(out: &mut Out<Self>, tell: impl FnOnce(&mut Out<Raft>) -> T) -> T {
        let mut own = Out::new();
        let done = tell(&mut own);
        let Out { sends, kept, timers, remarks } = own;
        out.sends.extend(sends);
        out.timers.extend(timers);
        out.remarks.extend(remarks);
        if kept.is_some() {
            out.kept = kept;
        }
        done
    }
}

impl Protocol for Unasked {
    type Message = Raftish;
    type Timer = RaftTimer;
    type Kept = Image;

    fn start(setup: &Setup, kept: Option<Image>, now: Moment, out: &mut Out<Self>) -> Self {
        let raft = Self::with(out, |out| Raft::start(setup, kept, now, out));
        Self(Raft { is_unasked: true, ..raft })
    }

    fn receive(&mut self, now: Moment, from: NodeId, message: Raftish, out: &mut Out<Self>) {
        Self::with(out, |out| self.0.receive(now, from, message, out));
    }

    fn wake(&mut self, now: Moment, timer: RaftTimer, out: &mut Out<Self>) {
        Self::with(out, |out| self.0.wake(now, timer, out));
    }

    fn durable(&mut self, now: Moment, out: &mut Out<Self>) {
        Self::with(out, |out| self.0.durable(now, out));
    }

    fn belief(&self, now: Moment) -> Belief {
        let may_act = self.0.core.is_serving() && self.0.core.role() == Role::Leader;
        Belief { may_act, ..self.0.belief(now) }
    }
}

impl Message for Raftish {
    fn kind(&self) -> &'static str {
        let PeerMessage::Raft(raft) = &self.0 else { return "ASIDE" };
        match raft.msg_type {
            MessageType::MsgRequestPreVote => "PREVOTE?",
            MessageType::MsgRequestPreVoteResponse => "PREVOTE",
            MessageType::MsgRequestVote => "VOTE?",
            MessageType::MsgRequestVoteResponse => "VOTE",
            MessageType::MsgAppend => "APPEND",
            MessageType::MsgAppendResponse => "APPENDED",
            MessageType::MsgHeartbeat => "HEARTBEAT",
            MessageType::MsgHeartbeatResponse => "HEARD",
            MessageType::MsgTimeoutNow => "TAKE-OVER",
            MessageType::MsgSnapshot => "SNAPSHOT",
            _ => "RAFT",
        }
    }

    fn carries(&self) -> String {
        let PeerMessage::Raft(raft) = &self.0 else { return String::new() };
        let verdict = match raft.msg_type {
            MessageType::MsgRequestPreVoteResponse | MessageType::MsgRequestVoteResponse => {
                if raft.reject { ", no" } else { ", yes" }
            }
            _ => "",
        };
        format!("term {}{verdict}", raft.term)
    }

    fn bytes(&self) -> usize {
        let mut bytes = Vec::with_capacity(64);
        self.0.put(&mut bytes);
        bytes.len()
    }

    fn is_upkeep(&self) -> bool {
        matches!(self.kind(), "HEARTBEAT" | "HEARD")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regent_protocols::by_hand::{Hand, PACE, node};

    const NODES: [NodeId; 5] = [node(0), node(1), node(2), node(3), node(4)];
    const A: NodeId = NODES[0];
    const B: NodeId = NODES[1];
    const C: NodeId = NODES[2];
    const D: NodeId = NODES[3];
    const E: NodeId = NODES[4];

    fn is_vote(message: &Raftish) -> bool {
        matches!(message.kind(), "VOTE?" | "VOTE")
    }

    /// Time passes for some of them, tick by tick.
    fn tick(hand: &mut Hand<Raft>, who: &[NodeId], times: u32) {
        for _ in 0..times {
            hand.pass(Duration::from_millis(TICK_MS));
            for one in who {
                hand.wake(*one, RaftTimer::Turn);
            }
        }
    }

    /// The textbook's split vote: A and B lose patience together; C votes for A, D for B, and E is slow.
    /// Nobody has three of five, and the next try, at another time, settles it.
    #[test]
    fn a_split_vote_elects_nobody_and_the_next_try_settles_it() {
        let mut hand = Hand::<Raft>::new(5);
        hand.start_all();
        // Nobody hears of a leader, and only A and B are awake to notice: both ask whether they may ask.
        tick(&mut hand, &[A, B], 1);
        tick(&mut hand, &[A, B], (PACE.patience_max.as_millis() / u128::from(TICK_MS)) as u32);
        hand.deliver(|_, to, message| message.kind() == "PREVOTE?" && to != E);
        hand.deliver(|_, to, message| message.kind() == "PREVOTE" && [A, B].contains(&to));
        let asked = hand.on_its_way().iter().filter(|line| line.contains("VOTE?")).count();
        assert!(asked >= 8, "both stand: {:?}", hand.on_its_way());

        // C hears A first and D hears B first. A and B have voted for themselves; E is slow.
        hand.deliver(|from, to, m| is_vote(m) && [(A, C), (B, D)].contains(&(from, to)));
        hand.deliver(|from, to, m| {
            is_vote(m) && [(A, D), (B, C), (A, B), (B, A)].contains(&(from, to))
        });
        hand.deliver(|_, to, m| is_vote(m) && [A, B].contains(&to));
        assert!(
            NODES.iter().all(|one| hand.belief(*one).leader.is_none()),
            "nobody has three of five"
        );
        hand.lose_all();

        // A tries again before B does.
        for _ in 0..400 {
            tick(&mut hand, &[A, C, D, E], 1);
            hand.deliver_all();
            if hand.belief(A).may_act {
                break;
            }
        }
        let leaders: Vec<_> = NODES.iter().filter(|one| hand.belief(**one).may_act).collect();
        assert_eq!(leaders.len(), 1, "{leaders:?}");
    }

    #[test]
    fn a_leader_that_no_majority_confirms_may_act_no_longer_though_it_has_the_role() {
        let mut hand = Hand::<Raft>::new(3);
        hand.start_all();
        for _ in 0..200 {
            tick(&mut hand, &NODES[..3], 1);
            hand.deliver_all();
        }
        let leader = *NODES[..3].iter().find(|one| hand.belief(**one).may_act).unwrap();
        hand.pass(lease(&PACE));
        let belief = hand.belief(leader);
        assert_eq!((belief.leader, belief.may_act), (Some(leader), false));
    }
}
