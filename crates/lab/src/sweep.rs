//! Many seeds, one after the other, until enough are run or somebody says stop.
//!
//! A seed that passes is run a second time and must give the very same history: a simulator that is not
//! deterministic finds bugs that nobody can find again. A seed that fails is shrunk, told as a story
//! ([`Failure::story`]) and comes with the words that replay it ([`Failure::command`]).

use std::ops::ControlFlow;

use crate::checkers::Violation;
use crate::plan::{Plan, StoreKind};
use crate::shrink::shrink;
use crate::stats::Stats;
use crate::trial::{Trial, Verdict, run};

/// What to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepOptions {
    /// What keeps the elections.
    pub store: StoreKind,
    /// The first seed.
    pub first: u64,
    /// How many seeds, counted from the first.
    pub seeds: u64,
    /// Every so many seeds one that passed is run twice; 1 means all, 0 none.
    pub twice_every: u64,
    /// Failures after which the sweep ends.
    pub failures_max: usize,
    /// Runs spent on shrinking each failure.
    pub shrink_runs_max: usize,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self {
            store: StoreKind::default(),
            first: 1,
            seeds: 1_000,
            twice_every: 1,
            failures_max: 10,
            shrink_runs_max: 100,
        }
    }
}

/// How far a sweep is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Seeds run.
    pub done: u64,
    /// Seeds to be run.
    pub of: u64,
    /// Seeds that broke a promise.
    pub failed: u64,
    /// Seeds that did too little.
    pub void: u64,
    /// What it amounted to so far.
    pub stats: Stats,
}

/// A seed that broke a promise.
#[derive(Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What was broken, in the whole run.
    pub violations: Vec<Violation>,
    /// The smallest plan found that breaks the same promise.
    pub small: Plan,
    /// What leads to it there, for people.
    pub story: String,
}

impl Failure {
    /// The words after `regent lab` that replay it.
    #[must_use]
    pub fn command(&self) -> String {
        format!("replay {}", self.small.arguments())
    }
}

/// What a sweep came to.
#[derive(Debug)]
pub struct SweepReport {
    /// The last state of its progress.
    pub progress: Progress,
    /// The failures, at most as many as asked for.
    pub failures: Vec<Failure>,
}

/// Runs seeds. `progress` is told after each of them and may end the sweep.
pub fn sweep(
    options: SweepOptions,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> SweepReport {
    let mut report = SweepReport {
        progress: Progress { of: options.seeds, ..Progress::default() },
        failures: Vec::new(),
    };
    for seed in options.first..options.first.saturating_add(options.seeds) {
        let mut trial = run(Plan::draw_for(options.store, seed));
        let at = seed - options.first;
        if options.twice_every > 0 && at.is_multiple_of(options.twice_every) {
            run_again(&mut trial);
        }
        report.take(seed, trial, options.shrink_runs_max);
        if progress(&report.progress).is_break() || report.failures.len() >= options.failures_max {
            break;
        }
    }
    report
}

/// The same plan once more: another history is a failure of its own. One that failed is run again
/// anyway, by whoever shrinks it.
fn run_again(trial: &mut Trial) {
    if matches!(trial.verdict, Verdict::Failed(_)) {
        return;
    }
    let (again, _) = crate::world::live(trial.plan.clone()).into_history();
    if again.events != trial.history.events {
        let (first, second) = (&trial.history.events, &again.events);
        let apart = first.iter().zip(second).find(|(one, other)| one != other);
        let how = format!("the same seed gave two histories; they part at {apart:?}");
        let at = apart.map_or(0, |(one, _)| one.at);
        trial.verdict = Verdict::Failed(vec![Violation::new("determinism", at, how)]);
    }
}

impl SweepReport {
    fn take(&mut self, seed: u64, trial: Trial, shrink_runs_max: usize) {
        self.progress.done += 1;
        self.progress.stats += trial.stats;
        match &trial.verdict {
            Verdict::Passed => {}
            Verdict::Void(_) => self.progress.void += 1,
            Verdict::Failed(violations) => {
                self.progress.failed += 1;
                let violations = violations.clone();
                let small = shrink(&trial, shrink_runs_max);
                let story = small.story();
                self.failures.push(Failure { seed, violations, small: small.plan, story });
            }
        }
    }
}
