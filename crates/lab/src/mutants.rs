//! Deliberate mistakes, and the proof that the suite notices each of them.
//!
//! A mistake is planted in the rules or the replica ([`Mutant`]), in the driver around them
//! ([`Sabotage`]), or in the lease ([`lease::Mutant`]), which has worlds of its own. The suite is a few seeds, the named scenarios, and then seed after seed; whoever breaks
//! a promise first has found it. The checkers replay the log with the same mistake in the rules, so a mutant of
//! the state machine is found by what it breaks and not by being different.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use regent_election::mutant::{self, Mutant};
use regent_stores::lease::mutant as lease;

use crate::checkers::Violation;
use crate::plan::{Plan, Sabotage, StoreKind};
use crate::scenarios;
use crate::trial::{TrialVerdict, run};

/// The seeds in whose worlds each scenario is told.
const TELLINGS: RangeInclusive<u64> = 1..=2;

/// Seeds that are tried before the scenarios: most mistakes show at once.
const FIRST_SEEDS: u64 = 10;

/// Seeds of leases that have found mistakes that are seldom met: they are tried first.
const FOUND_BEFORE: [u64; 1] = [60];

/// A mistake, wherever it is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Planted {
    /// In the rules or the replica.
    Rule(Mutant),
    /// In the driver.
    Driver(Sabotage),
    /// In the lease.
    Lease(lease::Mutant),
}

impl Planted {
    /// All of them.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let rules = Mutant::ALL.into_iter().map(Self::Rule);
        let drivers = Sabotage::ALL.into_iter().map(Self::Driver);
        rules.chain(drivers).chain(lease::Mutant::ALL.into_iter().map(Self::Lease)).collect()
    }
}

impl fmt::Display for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(mutant) => mutant.fmt(f),
            Self::Driver(sabotage) => f.pad(sabotage.word()),
            Self::Lease(mutant) => f.pad(mutant.word()),
        }
    }
}

impl FromStr for Planted {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::all().into_iter().find(|planted| planted.to_string() == word);
        found.ok_or_else(|| {
            let known: Vec<String> = Self::all().iter().map(ToString::to_string).collect();
            format!("there is no mutant {word}; there are {}", known.join(", "))
        })
    }
}

/// How a mistake was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// By which scenario or seed.
    pub by: String,
    /// The seed that found it; zero if a scenario did.
    pub seeds: u64,
    /// What it broke.
    pub violation: Violation,
}

/// Plants a mistake and runs the suite until something breaks; none if nothing does.
#[must_use]
pub fn hunt(planted: Planted, seeds_max: u64) -> Option<Found> {
    let (rule, sabotage) = match planted {
        Planted::Rule(mutant) => (Some(mutant), None),
        Planted::Driver(sabotage) => (None, Some(sabotage)),
        Planted::Lease(mutant) => {
            lease::plant(Some(mutant));
            let before = FOUND_BEFORE.into_iter().filter(|seed| *seed <= seeds_max);
            let found = by_seed(StoreKind::Lease, None, before.chain(1..=seeds_max));
            lease::plant(None);
            return found;
        }
    };
    mutant::switch(rule);
    let first = seeds_max.min(FIRST_SEEDS);
    let found = by_seed(StoreKind::Replica, sabotage, 1..=first)
        .or_else(|| by_scenario(sabotage))
        .or_else(|| by_seed(StoreKind::Replica, sabotage, first + 1..=seeds_max));
    mutant::switch(None);
    found
}

fn by_scenario(sabotage: Option<Sabotage>) -> Option<Found> {
    let told =
        scenarios::ALL.iter().flat_map(|scenario| TELLINGS.map(move |seed| (scenario, seed)));
    told.into_iter().find_map(|(scenario, seed)| {
        let trial = scenario.run(seed, sabotage);
        let violation = trial.violations().first()?.clone();
        Some(Found { by: format!("scenario {}", scenario.name), seeds: 0, violation })
    })
}

fn by_seed(
    store: StoreKind,
    sabotage: Option<Sabotage>,
    mut seeds: impl Iterator<Item = u64>,
) -> Option<Found> {
    seeds.find_map(|seed| {
        let trial = run(Plan { sabotage, ..Plan::draw_for(store, seed) });
        match trial.verdict {
            TrialVerdict::Failed(violations) => {
                let violation = violations.into_iter().next()?;
                Some(Found { by: format!("seed {seed}"), seeds: seed, violation })
            }
            TrialVerdict::Passed | TrialVerdict::Void(_) => None,
        }
    })
}
