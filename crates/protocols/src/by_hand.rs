//! A network that a test plays by hand: every message is delivered when the test says so, and every timer
//! is over when it says so.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use regent_election::Moment;

use super::{Belief, Message, NodeId, Out, Pace, Protocol, Setup};

/// The paces of tests.
pub const PACE: Pace = Pace {
    heartbeat_every: Duration::from_millis(100),
    patience_min: Duration::from_millis(400),
    patience_max: Duration::from_millis(800),
    answer_within: Duration::from_millis(100),
    ttl: Duration::from_secs(2),
};

/// Nobody answers longer than this without time passing.
const DELIVERIES_MAX: usize = 100_000;

/// A node by its number.
pub const fn node(number: u16) -> NodeId {
    NodeId(number)
}

/// Nodes and what they have said to each other.
#[derive(Debug)]
pub struct Hand<P: Protocol> {
    setups: Vec<Setup>,
    nodes: BTreeMap<NodeId, P>,
    kept: BTreeMap<NodeId, P::Kept>,
    pub now: Moment,
    post: VecDeque<(NodeId, NodeId, P::Message)>,
    /// Told and not yet asked about.
    said: Vec<String>,
    counts: BTreeMap<&'static str, usize>,
}

impl<P: Protocol> Hand<P> {
    pub fn new(nodes: u16) -> Self {
        let setup = |number: u16| Setup {
            me: node(number),
            nodes,
            pace: PACE,
            seed: u64::from(number),
            run: 1,
            witnesses: Vec::new(),
            is_liar: false,
        };
        Self {
            setups: (0..nodes + P::SERVERS).map(setup).collect(),
            nodes: BTreeMap::new(),
            kept: BTreeMap::new(),
            now: Moment::from_millis(1_000),
            post: VecDeque::new(),
            said: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    pub fn setup(&self, of: NodeId) -> &Setup {
        &self.setups[usize::from(of.0)]
    }

    /// Somebody says what its machine would not.
    pub fn inject(&mut self, from: NodeId, to: NodeId, message: P::Message) {
        self.post.push_back((from, to, message));
    }

    pub fn start(&mut self, one: NodeId) {
        let mut out = Out::new();
        let setup = &self.setups[usize::from(one.0)];
        let kept = self.kept.get(&one).cloned();
        let machine = P::start(setup, kept, self.now, &mut out);
        self.nodes.insert(one, machine);
        self.take(one, out);
    }

    pub fn start_all(&mut self) {
        for number in 0..self.setups.len() as u16 {
            self.start(node(number));
        }
    }

    pub fn kill(&mut self, one: NodeId) {
        self.nodes.remove(&one);
    }

    /// A timer of a node is over.
    pub fn wake(&mut self, one: NodeId, timer: P::Timer) {
        self.said.clear();
        let mut out = Out::new();
        let now = self.now;
        let machine = self.nodes.get_mut(&one).expect("a node that lives");
        machine.wake(now, timer, &mut out);
        self.take(one, out);
    }

    /// Time passes, and no timer notices.
    pub fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    fn take(&mut self, one: NodeId, out: Out<P>) {
        if let Some(kept) = out.kept {
            self.kept.insert(one, kept);
            // Confirmed at once: a disk by hand takes no time.
            let mut after = Out::new();
            let now = self.now;
            if let Some(machine) = self.nodes.get_mut(&one) {
                machine.durable(now, &mut after);
            }
            self.post_all(one, out.sends);
            return self.take(one, after);
        }
        self.post_all(one, out.sends);
    }

    fn post_all(&mut self, one: NodeId, sends: Vec<(NodeId, P::Message)>) {
        for (to, message) in sends {
            if to != one {
                let carries = message.carries();
                let space = if carries.is_empty() { "" } else { " " };
                self.said.push(format!("{one} -> {to} {}{space}{carries}", message.kind()));
                *self.counts.entry(message.kind()).or_default() += 1;
            }
            self.post.push_back((one, to, message));
        }
    }

    /// Delivers what is on its way if `wanted` says so, in order; the rest stays. What is said in answer
    /// is on its way afterwards.
    pub fn deliver(&mut self, wanted: impl Fn(NodeId, NodeId, &P::Message) -> bool) {
        self.said.clear();
        let (go, stay): (VecDeque<_>, VecDeque<_>) =
            self.post.drain(..).partition(|(from, to, message)| wanted(*from, *to, message));
        self.post = stay;
        for (from, to, message) in go {
            self.hand_over(from, to, message);
        }
    }

    /// Delivers everything, and everything that is said in answer, in order, until nothing is left.
    pub fn deliver_all(&mut self) {
        self.said.clear();
        for _ in 0..DELIVERIES_MAX {
            let Some((from, to, message)) = self.post.pop_front() else { return };
            self.hand_over(from, to, message);
        }
        panic!("they go on answering each other for ever: {:?}", self.on_its_way());
    }

    fn hand_over(&mut self, from: NodeId, to: NodeId, message: P::Message) {
        let now = self.now;
        let Some(machine) = self.nodes.get_mut(&to) else { return };
        let mut out = Out::new();
        machine.receive(now, from, message, &mut out);
        self.take(to, out);
    }

    /// Everything that is on its way is lost.
    pub fn lose_all(&mut self) {
        self.post.clear();
    }

    /// What is on its way, in words.
    pub fn on_its_way(&self) -> Vec<String> {
        let told = |(from, to, message): &(NodeId, NodeId, P::Message)| {
            format!("{from} -> {to} {}", message.kind())
        };
        self.post.iter().map(told).collect()
    }

    /// What was said in the last step.
    pub fn said(&self) -> &[String] {
        &self.said
    }

    pub fn belief(&self, one: NodeId) -> Belief {
        self.nodes.get(&one).map_or(Belief::NOBODY, |machine| machine.belief(self.now))
    }

    pub fn forget_counts(&mut self) {
        self.counts.clear();
    }

    /// How many messages of a kind were sent.
    pub fn count(&self, kind: &str) -> usize {
        self.counts.get(kind).copied().unwrap_or(0)
    }
}
