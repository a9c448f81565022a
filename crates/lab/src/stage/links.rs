//! Who can hear whom, how late, and what is lost on the way.

use std::collections::{BTreeMap, BTreeSet};

use super::scenario::Links;
use crate::dice::Dice;
use crate::protocols::NodeId;

/// The network as it is at the moment.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) links: Links,
    dice: Dice,
    /// The part of each node, while there is a partition.
    parts: BTreeMap<NodeId, usize>,
    cuts: BTreeSet<(NodeId, NodeId)>,
    /// Nodes that everything takes longer to and from, in nanoseconds.
    pub(super) slow: BTreeMap<NodeId, u64>,
}

/// What becomes of a message.
#[derive(Debug)]
pub(super) enum Way {
    /// It arrives after so many nanoseconds, once or twice.
    Arrives(Vec<u64>),
    /// Somebody cut the way.
    Cut,
    /// Chance took it.
    Lost,
}

impl Network {
    pub(super) fn new(links: Links, dice: Dice) -> Self {
        let (parts, cuts, slow) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { links, dice, parts, cuts, slow }
    }

    pub(super) fn way(&mut self, from: NodeId, to: NodeId) -> Way {
        let is_apart = self.parts.get(&from) != self.parts.get(&to);
        // Rolled whether or not they are needed, so that a cut changes nothing for other messages.
        let is_lost = self.dice.chance(self.links.loss_ppm);
        let is_doubled = self.dice.chance(self.links.double_ppm);
        let times = [self.latency(from, to), self.latency(from, to)];
        if is_apart || self.cuts.contains(&(from, to)) {
            Way::Cut
        } else if is_lost {
            Way::Lost
        } else {
            Way::Arrives(times[..if is_doubled { 2 } else { 1 }].to_vec())
        }
    }

    /// How long one message takes, in nanoseconds.
    pub(super) fn latency(&mut self, from: NodeId, to: NodeId) -> u64 {
        let slow = |node: NodeId| self.slow.get(&node).copied().unwrap_or(0);
        let more = slow(from) + slow(to);
        self.dice.skewed(self.links.latency_us.clone()) * 1_000 + more
    }

    /// Makes these parts, in place of any that were.
    pub(super) fn part(&mut self, parts: &[BTreeSet<NodeId>]) {
        self.parts.clear();
        for (number, part) in parts.iter().enumerate() {
            self.parts.extend(part.iter().map(|node| (*node, number)));
        }
    }

    pub(super) fn cut(&mut self, from: NodeId, to: NodeId) {
        self.cuts.insert((from, to));
    }

    pub(super) fn heal(&mut self) {
        self.parts.clear();
        self.cuts.clear();
    }
}
