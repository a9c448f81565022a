//! What all runs of one setting came to, and whether it meets a target.

use regent_election::tuning::{Choice, Estimate, Target};

use super::runs::{Crash, calm, crash};
use super::seen::{RateVerdict, Seen};
use super::{NetworkConditions, Setting};

/// Leaders that die for every calm run: one run shows one failover, and of a hundred the longest
/// counts.
pub(super) const CRASHES_PER_SEED: u64 = 5;

/// What was measured of one setting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// False failovers, and how long was watched for them.
    pub false_failovers: Seen,
    /// How long each failover took, in nanoseconds, in no order.
    pub failovers_ns: Vec<u64>,
    /// Leaders whose death nobody made good as long as was watched.
    pub orphaned: u64,
}

impl Measured {
    /// One seed's worth of a setting: a calm run, and a few in which the leader dies.
    #[must_use]
    pub fn of_seed(setting: &Setting, place: &NetworkConditions, seed: u64) -> Self {
        let mut measured = Self {
            false_failovers: Seen {
                events: calm(setting, place, seed),
                watched_ms: u64::try_from(setting.calm_for().as_millis()).unwrap_or(u64::MAX),
            },
            ..Self::default()
        };
        for number in 0..CRASHES_PER_SEED {
            let seed = seed.wrapping_mul(CRASHES_PER_SEED).wrapping_add(number);
            measured.note_crash(crash(setting, place, seed));
        }
        measured
    }

    /// Adds a death.
    pub fn note_crash(&mut self, crash: Crash) {
        match crash {
            Crash::Void => {}
            Crash::Succeeded(ns) => self.failovers_ns.push(ns),
            Crash::Orphaned => self.orphaned += 1,
        }
    }

    /// Adds what other runs of the same setting came to, in any order.
    pub fn add(&mut self, other: Self) {
        self.false_failovers.events += other.false_failovers.events;
        self.false_failovers.watched_ms += other.false_failovers.watched_ms;
        self.failovers_ns.extend(other.failovers_ns);
        self.orphaned += other.orphaned;
    }

    /// What this share in a thousand of all failovers was not longer than, in whole milliseconds;
    /// none if that one never ended, or nobody died.
    #[must_use]
    pub fn failover_ms(&self, permille: usize) -> Option<u64> {
        let mut sorted = self.failovers_ns.clone();
        sorted.sort_unstable();
        let all = sorted.len() + usize::try_from(self.orphaned).unwrap_or(usize::MAX);
        let rank = (all * permille).div_ceil(1000).max(1);
        sorted.get(rank - 1).map(|ns| ns.div_ceil(1_000_000))
    }
}

/// One setting, as it was estimated and as it was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Rung {
    pub setting: Setting,
    /// By the arithmetic.
    pub estimate: Estimate,
    /// By playing it.
    pub measured: Measured,
}

impl Rung {
    /// What playing it says of false failovers.
    #[must_use]
    pub fn verdict(&self, target: &Target) -> RateVerdict {
        self.measured.false_failovers.against(target.false_failovers)
    }

    /// Whether it leaves living leaders alone as much as the target wants: as was seen, and where
    /// too little was seen to say, as the arithmetic says.
    #[must_use]
    pub fn is_calm(&self, target: &Target) -> bool {
        match self.verdict(target) {
            RateVerdict::Rarer => true,
            RateVerdict::MoreFrequent => false,
            RateVerdict::Open => self.estimate.is_calm(target),
        }
    }

    /// Whether dead leaders were succeeded as soon as the target wants.
    #[must_use]
    pub fn is_quick(&self, target: &Target) -> bool {
        self.measured.failover_ms(990).is_some_and(|ms| ms <= target.failover_ms)
    }

    /// The quickest of these, from quick to patient, that meets both targets.
    #[must_use]
    pub fn choose(rungs: &[Self], target: &Target) -> Choice {
        Choice::among(rungs.iter().map(|rung| (rung.is_calm(target), rung.is_quick(target))))
    }
}
