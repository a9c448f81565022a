//! Links: everything that can go wrong between two processes.
//!
//! A link is a direction. It delays, and may lose, repeat and reorder; it may be cut, and a cut is
//! always one-way, so a partition is many of them. Nothing is corrupted here: the transport's
//! checksums are tested where they are.

use std::collections::{BTreeMap, BTreeSet};

use crate::dice::Dice;
use crate::plan::NetPlan;

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    Replica(u64),
    Client(u32),
    /// The registers that leaders write to.
    Registers,
    /// The engine that keeps the entries of a leased world.
    Engine,
}

/// All links.
#[derive(Debug)]
pub(super) struct Net {
    plan: NetPlan,
    dice: Dice,
    cut: BTreeMap<(Address, Address), u32>,
    slow: BTreeMap<(Address, Address), u64>,
}

/// When the copies of one message arrive: none, one or more.
pub(super) type Arrivals = Vec<u64>;

impl Net {
    pub(super) const fn new(plan: NetPlan, dice: Dice) -> Self {
        Self { plan, dice, cut: BTreeMap::new(), slow: BTreeMap::new() }
    }

    /// The fates of one message that leaves at `now`. `is_once` is for what a connection never
    /// repeats.
    pub(super) fn send(&mut self, now: u64, from: Address, to: Address, is_once: bool) -> Arrivals {
        if self.is_cut(from, to) || self.dice.chance(self.plan.loss_ppm) {
            return Vec::new();
        }
        let mut arrivals = vec![now + self.delay(from, to)];
        if !is_once && self.dice.chance(self.plan.duplicate_ppm) {
            arrivals.push(now + self.delay(from, to) + self.dice.skewed(0..=50_000_000));
        }
        arrivals
    }

    fn delay(&mut self, from: Address, to: Address) -> u64 {
        let mut delay = self.dice.skewed(self.plan.delay_ns.clone());
        if self.dice.chance(self.plan.reorder_ppm) {
            delay += self.dice.skewed(0..=self.plan.reorder_ns_max);
        }
        delay + self.slow.get(&(from, to)).copied().unwrap_or(0)
    }

    pub(super) fn is_cut(&self, from: Address, to: Address) -> bool {
        self.cut.contains_key(&(from, to))
    }

    /// Cuts one direction; cuts add up, each must be healed.
    pub(super) fn cut(&mut self, from: Address, to: Address) {
        *self.cut.entry((from, to)).or_default() += 1;
    }

    pub(super) fn heal(&mut self, from: Address, to: Address) {
        if let Some(count) = self.cut.get_mut(&(from, to)) {
            *count -= 1;
            if *count == 0 {
                self.cut.remove(&(from, to));
            }
        }
    }

    pub(super) fn slow_down(&mut self, from: Address, to: Address, by_ns: u64) {
        self.slow.insert((from, to), by_ns);
    }

    pub(super) fn speed_up(&mut self, from: Address, to: Address) {
        self.slow.remove(&(from, to));
    }

    /// Heals every link between these, and ends loss and delay everywhere: a link that is slower than an
    /// election time-out is not what these timers are for.
    pub(super) fn heal_among(&mut self, healthy: &BTreeSet<Address>) {
        let both = |(from, to): &(Address, Address)| healthy.contains(from) && healthy.contains(to);
        self.cut.retain(|link, _| !both(link));
        self.slow.clear();
        self.plan.loss_ppm = 0;
        self.plan.duplicate_ppm = 0;
        self.plan.reorder_ppm = 0;
    }

    /// Every direction that is cut.
    pub(super) fn cuts(&self) -> Vec<(Address, Address)> {
        self.cut.keys().copied().collect()
    }

    /// Heals everything.
    pub(super) fn heal_all(&mut self) {
        self.cut.clear();
        self.slow.clear();
    }
}
