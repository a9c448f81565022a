//! All algorithms under all scenarios, with many seeds: what they cost and what they let happen, side by
//! side.
//!
//! A [`ComparePlan`] is a list of small jobs, each some seeds of one algorithm under one scenario; whoever has
//! threads plays them in any order and hands what they come to to a [`Comparison`], which only adds. So
//! the figures depend on the seeds and on nothing else. The road not taken is keeping every run: a
//! thousand seeds are two hundred thousand histories, and nothing of them is needed but sums and one
//! histogram.
//!
//! [`Measure`]s are what is shown of a cell; the table for people, [`markdown`], [`csv`] and [`html`] show
//! the same ones.

mod cell;
mod csv;
pub mod html;
mod json;
pub mod markdown;
mod measures;
mod scale;
mod seeds;
mod tables;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;

pub use cell::{Cell, Time, Times};
pub use csv::csv;
pub use json::comparison_json;
pub use measures::{Measure, hundredths};
pub use scale::{Noticer, SIZES, exponent};
pub use seeds::seeds;
pub use tables::{Table, blocks, matrix, scale_table, summary};

use super::algorithm::Algorithm;
use super::measure::{figures, figures_from};
use super::play::{RunError, fits, play};
use super::scenario::Scenario;

/// Seeds of one job at most.
const JOB_SEEDS_MAX: u64 = 8;
/// Seeds of a comparison at most: more tell nothing more, and would take days.
pub const SEEDS_MAX: u64 = 1_000_000;

/// What is to be compared.
#[derive(Clone, Debug)]
pub struct ComparePlan {
    algorithms: Vec<Algorithm>,
    scenarios: Vec<Scenario>,
    seeds: RangeInclusive<u64>,
    places: Vec<Place>,
}

/// Something whose runs are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// An algorithm under a scenario, by their numbers.
    Under { scenario: usize, algorithm: usize },
    /// An algorithm among so many nodes.
    Among { noticer: Noticer, algorithm: usize, nodes: u16 },
}

/// Why a plan is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// Nothing to compare, or no seeds.
    Empty,
    /// Something is named twice.
    Twice(String),
    /// Too many seeds.
    Seeds(u64),
    /// A scenario cannot be played.
    Scenario {
        name: String,
        /// By which algorithm.
        algorithm: &'static str,
        why: RunError,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => {
                write!(f, "nothing to compare: name an algorithm, a scenario and a seed")
            }
            Self::Twice(name) => write!(f, "{name} is named twice"),
            Self::Seeds(seeds) => write!(f, "{seeds} seeds are refused: at most {SEEDS_MAX}"),
            Self::Scenario { name, algorithm, why } => {
                write!(f, "{algorithm} cannot be played under {name}: {why}")
            }
        }
    }
}

impl std::error::Error for PlanError {}

impl ComparePlan {
    /// A plan for these; how messages grow is measured with these numbers of nodes.
    ///
    /// # Errors
    /// If there is nothing to compare, or a scenario cannot be played.
    pub fn new(
        algorithms: Vec<Algorithm>,
        scenarios: Vec<Scenario>,
        seeds: RangeInclusive<u64>,
        sizes: &[u16],
    ) -> Result<Self, PlanError> {
        if algorithms.is_empty() || scenarios.is_empty() || seeds.is_empty() {
            return Err(PlanError::Empty);
        }
        let count = (seeds.end() - seeds.start()).saturating_add(1);
        if count > SEEDS_MAX {
            return Err(PlanError::Seeds(count));
        }
        let names = algorithms.iter().map(|one| one.name().to_owned());
        twice(names)?;
        twice(scenarios.iter().map(|scenario| scenario.name.clone()))?;
        let mut places = Vec::new();
        for (scenario, told) in scenarios.iter().enumerate() {
            for (algorithm, one) in algorithms.iter().enumerate() {
                check(*one, told)?;
                places.push(Place::Under { scenario, algorithm });
            }
        }
        for noticer in Noticer::ALL {
            for (algorithm, one) in algorithms.iter().enumerate() {
                for nodes in sizes.iter().copied().filter(|_| noticer.is_for(*one)) {
                    check(*one, &noticer.scenario(nodes))?;
                    places.push(Place::Among { noticer: *noticer, algorithm, nodes });
                }
            }
        }
        Ok(Self { algorithms, scenarios, seeds, places })
    }

    /// How many jobs there are.
    #[must_use]
    pub fn jobs(&self) -> u64 {
        self.places.len() as u64 * self.seed_count().div_ceil(JOB_SEEDS_MAX)
    }

    /// How many runs there are.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.places.len() as u64 * self.seed_count()
    }

    /// The seeds.
    #[must_use]
    pub const fn seeds(&self) -> &RangeInclusive<u64> {
        &self.seeds
    }

    fn seed_count(&self) -> u64 {
        self.seeds.end() - self.seeds.start() + 1
    }

    /// Plays one job, counted from 0: the same job always comes to the same.
    ///
    /// # Errors
    /// None of a plan that was made: every scenario was checked.
    pub fn play(&self, job: u64) -> Result<JobResult, RunError> {
        // Neighbours are of different places, so that long and short ones take turns.
        let places = self.places.len() as u64;
        let (place, part) = ((job % places) as usize, job / places);
        let first = self.seeds.start() + part * JOB_SEEDS_MAX;
        let last = (first + (JOB_SEEDS_MAX - 1)).min(*self.seeds.end());
        let mut cell = Cell::default();
        for seed in first..=last {
            cell.merge(&self.play_one(self.places[place], seed)?);
        }
        Ok(JobResult { place, cell })
    }

    fn play_one(&self, place: Place, seed: u64) -> Result<Cell, RunError> {
        match place {
            Place::Under { scenario, algorithm } => {
                let run = play(self.algorithms[algorithm], &self.scenarios[scenario], seed)?;
                Ok(Cell::of(&figures(&run.record), run.is_cut_short))
            }
            Place::Among { noticer, algorithm, nodes } => {
                let run = play(self.algorithms[algorithm], &noticer.scenario(nodes), seed)?;
                let from = scale::died_at(&run.record);
                Ok(Cell::of(&figures_from(&run.record, from), run.is_cut_short))
            }
        }
    }

    /// Plays everything, one job after the other.
    ///
    /// # Errors
    /// See [`ComparePlan::play`].
    pub fn play_all(self) -> Result<Comparison, RunError> {
        let mut comparison = Comparison::new(self);
        for job in 0..comparison.plan.jobs() {
            let done = comparison.plan.play(job)?;
            comparison.take(&done);
        }
        Ok(comparison)
    }
}

fn twice(names: impl Iterator<Item = String>) -> Result<(), PlanError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name.clone()) {
            return Err(PlanError::Twice(name));
        }
    }
    Ok(())
}

fn check(algorithm: Algorithm, scenario: &Scenario) -> Result<(), PlanError> {
    fits(algorithm, scenario).map_err(|why| PlanError::Scenario {
        name: scenario.name.clone(),
        algorithm: algorithm.name(),
        why,
    })
}

/// What one job came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobResult {
    place: usize,
    cell: Cell,
}

/// Messages of one algorithm against the number of nodes.
#[derive(Clone, Debug)]
pub struct Series<'a> {
    pub algorithm: Algorithm,
    /// Who noticed.
    pub noticer: Noticer,
    /// The number of nodes, and what the runs with it came to.
    pub points: Vec<(u16, &'a Cell)>,
}

impl Series<'_> {
    /// The exponent of messages per election in the number of nodes.
    #[must_use]
    pub fn exponent(&self) -> Option<f64> {
        let point = |(nodes, cell): &(u16, &Cell)| Some((*nodes, cell.messages_per_election()?));
        exponent(&self.points.iter().map(point).collect::<Option<Vec<_>>>()?)
    }
}

/// What all jobs of a plan come to, or those of them that are done.
#[derive(Clone, Debug)]
pub struct Comparison {
    plan: ComparePlan,
    cells: Vec<Cell>,
}

impl Comparison {
    /// Nothing is played yet.
    #[must_use]
    pub fn new(plan: ComparePlan) -> Self {
        let cells = vec![Cell::default(); plan.places.len()];
        Self { plan, cells }
    }

    /// Adds what a job of the same plan came to. In whatever order, the sum is the same.
    pub fn take(&mut self, done: &JobResult) {
        self.cells[done.place].merge(&done.cell);
    }

    /// The algorithms, in the order of the plan.
    #[must_use]
    pub fn algorithms(&self) -> &[Algorithm] {
        &self.plan.algorithms
    }

    /// The scenarios, in the order of the plan.
    #[must_use]
    pub fn scenarios(&self) -> &[Scenario] {
        &self.plan.scenarios
    }

    /// The seeds.
    #[must_use]
    pub const fn seeds(&self) -> &RangeInclusive<u64> {
        &self.plan.seeds
    }

    /// How many runs there are in it.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.cells.iter().map(|cell| cell.runs).sum()
    }

    /// Runs that were stopped because too much happened.
    #[must_use]
    pub fn cut_short(&self) -> u64 {
        self.cells.iter().map(|cell| cell.cut_short).sum()
    }

    /// What an algorithm came to under a scenario.
    #[must_use]
    pub fn cell(&self, algorithm: Algorithm, scenario: &str) -> Option<&Cell> {
        let place = self.plan.places.iter().position(|place| match place {
            Place::Under { scenario: number, algorithm: one } => {
                self.plan.algorithms[*one] == algorithm
                    && self.plan.scenarios[*number].name == scenario
            }
            Place::Among { .. } => false,
        })?;
        Some(&self.cells[place])
    }

    /// What an algorithm came to under all scenarios of some kind together.
    #[must_use]
    pub fn whole(&self, algorithm: Algorithm, is_wanted: impl Fn(&Scenario) -> bool) -> Cell {
        let mut whole = Cell::default();
        for scenario in self.plan.scenarios.iter().filter(|scenario| is_wanted(scenario)) {
            if let Some(cell) = self.cell(algorithm, &scenario.name) {
                whole.merge(cell);
            }
        }
        whole
    }

    /// How messages grow with the number of nodes.
    #[must_use]
    pub fn series(&self) -> Vec<Series<'_>> {
        let mut all: Vec<Series<'_>> = Vec::new();
        for (place, cell) in self.plan.places.iter().zip(&self.cells) {
            let Place::Among { noticer, algorithm, nodes } = place else { continue };
            let algorithm = self.plan.algorithms[*algorithm];
            match all.last_mut() {
                Some(last) if (last.algorithm, last.noticer) == (algorithm, *noticer) => {
                    last.points.push((*nodes, cell));
                }
                Some(_) | None => {
                    let points = vec![(*nodes, cell)];
                    all.push(Series { algorithm, noticer: *noticer, points });
                }
            }
        }
        all
    }
}
