//! What a scenario says: how many nodes, how fast everything is, and what goes wrong when.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::protocols::{NodeId, Pace};

/// A scenario, as its text says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    pub name: String,
    /// What it shows, in a sentence.
    pub about: String,
    /// How many candidates there are.
    pub nodes: u16,
    /// How long it lasts.
    pub lasts: Duration,
    /// The paces of the algorithms.
    pub pace: Pace,
    /// The links between nodes, as they are at first.
    pub links: Links,
    /// How long a disk takes to make something durable, in microseconds.
    pub disk_us: RangeInclusive<u64>,
    /// How long a leader works between its check and its write.
    pub work: Duration,
    /// What goes wrong, in order of time.
    pub strikes: Vec<Strike>,
}

/// Clocks are taken to run wrong by so many parts in a million at most.
const DRIFT_PPM_MAX: u64 = 10_000;

impl Scenario {
    /// Whether clocks keep the bound that algorithms rely on, and nobody lies.
    #[must_use]
    pub fn keeps_bounds(&self) -> bool {
        self.strikes.iter().all(|strike| match &strike.blow {
            Blow::Drift(_, ppm) => ppm.unsigned_abs() <= DRIFT_PPM_MAX,
            // A clock that shows something else from the start does no harm: nobody compares two of them.
            Blow::Clock(..) => strike.at.is_zero(),
            Blow::Lie(_) => false,
            Blow::Crash(..)
            | Blow::Restart(_)
            | Blow::Pause(..)
            | Blow::Partition(_)
            | Blow::Cut(..)
            | Blow::Heal
            | Blow::Latency(_)
            | Blow::Loss(_)
            | Blow::Double(_)
            | Blow::Slow(..)
            | Blow::Disk(..)
            | Blow::Witness(_) => true,
        })
    }

    /// Whether it is about a network that falls apart.
    #[must_use]
    pub fn has_partitions(&self) -> bool {
        let is_one = |strike: &Strike| matches!(strike.blow, Blow::Partition(_) | Blow::Cut(..));
        self.keeps_bounds() && self.strikes.iter().any(is_one)
    }

    /// Whether it is about processes that stand still.
    #[must_use]
    pub fn has_pauses(&self) -> bool {
        let is_one = |strike: &Strike| matches!(strike.blow, Blow::Pause(..));
        self.keeps_bounds() && self.strikes.iter().any(is_one)
    }
}

/// What messages meet on their way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Links {
    /// How long one takes, in microseconds. Whatever the range allows may overtake.
    pub latency_us: RangeInclusive<u64>,
    /// Chances in a million that one is lost.
    pub loss_ppm: u32,
    /// Chances in a million that one comes twice.
    pub double_ppm: u32,
}

/// Something happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strike {
    /// When, from the start.
    pub at: Duration,
    pub blow: Blow,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blow {
    /// Processes die, and come back after some time if it is said.
    Crash(Who, Option<Duration>),
    /// Processes that had died come back.
    Restart(Who),
    /// Processes stand still, as in a garbage collection, and then go on as if nothing had been.
    Pause(Who, Duration),
    /// The network falls into parts that do not hear each other.
    Partition(Vec<Vec<Who>>),
    /// Messages from the first to the second are lost; in both directions if it says so.
    Cut(Who, Who, bool),
    /// Every partition and every cut is over.
    Heal,
    /// Links have another latency, in microseconds.
    Latency(RangeInclusive<u64>),
    /// Links lose messages with these chances in a million.
    Loss(u32),
    /// Links double messages with these chances in a million.
    Double(u32),
    /// Messages to and from these nodes take so much longer.
    Slow(Who, Duration),
    /// Clocks show more from here on.
    Clock(Who, Duration),
    /// Clocks run too fast, or too slow, by so many parts in a million.
    Drift(Who, i64),
    /// Disks take so long, in microseconds.
    Disk(Who, RangeInclusive<u64>),
    /// Nodes lie from here on.
    Lie(Who),
    /// Nodes vote and never lead, from the start.
    Witness(Who),
}

/// Whom it strikes. Words are resolved when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// This one.
    Node(NodeId),
    /// Whoever acts as leader; the lowest of several; nobody if nobody does.
    Leader,
    /// The highest name.
    Highest,
    /// The lowest name.
    Lowest,
    /// One that does not act as leader, by lot.
    Follower,
    /// The leader, and as many of the lowest names as still make a minority with it.
    Minority,
    /// All candidates.
    All,
    /// Everybody who was not named in this partition.
    Rest,
    /// Servers beside the candidates, such as the store of a lease.
    Store,
}
