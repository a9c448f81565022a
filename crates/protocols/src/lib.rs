//! The algorithms of the literature, each a pure machine that reads like its description.
//!
//! A node is told that it starts, that a message has come, that a timer is over, or that what it wanted
//! kept is durable; it says what is to be sent, kept and timed. It reads no clock and rolls only dice
//! that were seeded for it, so a simulator can show it any network, any clock and any crash, and the same
//! seed always gives the same history; `regent peer` puts a socket and a clock around it.
//!
//! One rule spares every algorithm a state of its own: whatever a step says leaves its process only when
//! everything that it kept before is durable, as in a process that syncs on its only thread. The road
//! not taken is messages as text or bytes for all: each algorithm has its own type, so that the compiler
//! knows its words.

mod belief;
pub mod bully;
#[cfg(any(test, feature = "by-hand"))]
pub mod by_hand;
pub mod byzantine;
pub mod dice;
pub mod fnv;
pub mod gossip;
pub mod hierarchy;
pub mod lease;
mod out;
pub mod paxos;
pub mod ring;

use std::fmt;
use std::time::Duration;

use regent_election::Moment;

use crate::dice::Dice;

pub use belief::Belief;
pub use out::Out;

/// Candidates of one stage at most: as many as there are letters.
pub const NODES_MAX: u16 = 26;

/// One node of a stage, counted from 0 and shown as a letter. Candidates come first; servers that an
/// algorithm needs beside them, such as the store of a lease, come after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u8::try_from(self.0) {
            Ok(number) if self.0 < NODES_MAX => write!(f, "{}", char::from(b'A' + number)),
            Ok(_) | Err(_) => write!(f, "#{}", self.0),
        }
    }
}

/// How long things take and are waited for. The same for every algorithm of a run, so that their figures
/// can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How often a leader shows itself.
    pub heartbeat_every: Duration,
    /// After how much silence a leader is taken for dead, at least: every node draws a time between this
    /// and `patience_max`, so that one of them notices first.
    pub patience_min: Duration,
    /// See `patience_min`.
    pub patience_max: Duration,
    /// How long an answer is waited for: a whole round trip fits into it.
    pub answer_within: Duration,
    /// How long a lease lasts.
    pub ttl: Duration,
}

impl Pace {
    /// How long a node that draws lots waits for a sign of a leader this time.
    pub fn draw_patience(&self, dice: &mut Dice) -> Duration {
        let (min, max) = (self.patience_min.as_micros(), self.patience_max.as_micros());
        let bound = |micros: u128| u64::try_from(micros).unwrap_or(u64::MAX);
        Duration::from_micros(dice.within(bound(min)..=bound(max)))
    }
}

/// What a node is told about itself and its world when it starts.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Which one it is.
    pub me: NodeId,
    /// How many candidates there are.
    pub nodes: u16,
    /// How fast everything is.
    pub pace: Pace,
    /// What its own dice start from.
    pub seed: u64,
    /// Which run of it: 1 for the first.
    pub run: u32,
    /// Who votes and never leads, where the algorithm knows such a thing.
    pub witnesses: Vec<NodeId>,
    /// Whether it lies.
    pub is_liar: bool,
}

impl Setup {
    /// All candidates but this one, in order.
    pub fn others(&self) -> impl Iterator<Item = NodeId> + use<> {
        let me = self.me;
        (0..self.nodes).map(NodeId).filter(move |node| *node != me)
    }

    /// Whether this node votes and never leads.
    #[must_use]
    pub fn is_witness(&self) -> bool {
        self.witnesses.contains(&self.me)
    }

    /// More than half of the candidates.
    #[must_use]
    pub const fn majority(&self) -> usize {
        self.nodes as usize / 2 + 1
    }
}

/// A message of some algorithm.
pub trait Message: Clone + fmt::Debug {
    /// Its name in the literature.
    fn kind(&self) -> &'static str;

    /// What it carries, for people; empty if its name says everything.
    fn carries(&self) -> String {
        String::new()
    }

    /// How many bytes of payload it would have on a wire.
    fn bytes(&self) -> usize;

    /// Whether it is sent as long as all is well, rather than to elect somebody.
    fn is_upkeep(&self) -> bool;
}

/// One node of an algorithm.
///
/// The same events always give the same outputs. Messages may be lost, doubled, late and out of order;
/// a crash leaves what was durable and nothing else.
pub trait Protocol: Sized + fmt::Debug {
    /// What its nodes say to each other.
    type Message: Message;
    /// The names of its timers; setting one again moves it.
    type Timer: Copy + Ord + fmt::Debug;
    /// What survives a crash.
    type Kept: Clone + fmt::Debug;

    /// How many servers it needs beside its candidates.
    const SERVERS: u16 = 0;

    /// A process starts, with what is durable if it has run before.
    fn start(setup: &Setup, kept: Option<Self::Kept>, now: Moment, out: &mut Out<Self>) -> Self;

    /// A message has come.
    fn receive(&mut self, now: Moment, from: NodeId, message: Self::Message, out: &mut Out<Self>);

    /// A timer is over. On a loaded or paused machine that is later than it was set for.
    fn wake(&mut self, now: Moment, timer: Self::Timer, out: &mut Out<Self>);

    /// The oldest thing that it wanted kept and that was not confirmed is durable.
    fn durable(&mut self, _now: Moment, _out: &mut Out<Self>) {}

    /// Whom it takes for the leader, and whether it may itself act as one now.
    fn belief(&self, now: Moment) -> Belief;

    /// What a lying node sends in place of a message; the message itself if this algorithm's messages
    /// offer nothing to lie about.
    fn lie(_setup: &Setup, _to: NodeId, message: Self::Message) -> Self::Message {
        message
    }
}
