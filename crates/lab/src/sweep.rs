//! Many seeds, one after the other, until enough are run or somebody says stop.
//!
//! A seed that passes is run a second time and must give the very same history: a simulator that is not
//! deterministic finds bugs that nobody can find again. A seed that fails is shrunk, told as a story
//! ([`Failure::story`]) and comes with the words that replay it ([`Failure::command`]).

use std::ops::ControlFlow;

use serde_json::{Value, json};

use crate::checkers::Violation;
use crate::plan::{Plan, StoreKind};
use crate::shrink::shrink;
use crate::stats::Stats;
use crate::trial::{Trial, TrialVerdict, run};

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
pub struct SweepProgress {
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

    fn text(&self) -> String {
        format!(
            "seed {} broke a promise; as small as it could be made, this led to it:\n{}replay it with\n  regent lab {}\n",
            self.seed,
            self.story,
            self.command()
        )
    }
}

/// What a sweep came to.
#[derive(Debug, Default)]
pub struct SweepReport {
    /// The last state of its progress.
    pub progress: SweepProgress,
    /// The failures, at most as many as asked for.
    pub failures: Vec<Failure>,
}

/// One of so many seeds is run twice where they are run beside each other.
const TWICE_EVERY: u64 = 10;

/// One seed of a sweep whose seeds are run beside each other, by its number from 0; none after the last.
#[must_use]
pub fn sweep_one(store: StoreKind, first: u64, seeds: u64, number: u64) -> Option<SweepReport> {
    let seed = first.checked_add(number).filter(|_| number < seeds)?;
    let options = SweepOptions {
        store,
        first: seed,
        seeds: 1,
        twice_every: u64::from(number.is_multiple_of(TWICE_EVERY)),
        ..SweepOptions::default()
    };
    Some(sweep(options, &mut |_| ControlFlow::Continue(())))
}

/// Runs seeds. `progress` is told after each of them and may end the sweep.
pub fn sweep(
    options: SweepOptions,
    progress: &mut dyn FnMut(&SweepProgress) -> ControlFlow<()>,
) -> SweepReport {
    let mut report = SweepReport {
        progress: SweepProgress { of: options.seeds, ..SweepProgress::default() },
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
    if matches!(trial.verdict, TrialVerdict::Failed(_)) {
        return;
    }
    let (again, _) = crate::world::live(trial.plan.clone()).into_history();
    if again.events != trial.history.events {
        let (first, second) = (&trial.history.events, &again.events);
        let apart = first.iter().zip(second).find(|(one, other)| one != other);
        let how = format!("the same seed gave two histories; they part at {apart:?}");
        let at = apart.map_or(0, |(one, _)| one.at);
        trial.verdict = TrialVerdict::Failed(vec![Violation::new("determinism", at, how)]);
    }
}

impl SweepReport {
    /// Adds another one, of other seeds. Failures stay sorted by seed.
    pub fn add(&mut self, more: Self) {
        self.progress.done += more.progress.done;
        self.progress.failed += more.progress.failed;
        self.progress.void += more.progress.void;
        self.progress.stats += more.progress.stats;
        self.failures.extend(more.failures);
        self.failures.sort_by_key(|failure| failure.seed);
    }

    /// For programs.
    #[must_use]
    pub fn object(&self, first: u64) -> Value {
        let failures: Vec<Value> = self.failures.iter().map(failure_json).collect();
        json!({
            "first": first,
            "done": self.progress.done,
            "failed": self.progress.failed,
            "void": self.progress.void,
            "stats": stats_json(&self.progress.stats),
            "failures": failures,
        })
    }

    /// For people: what was broken and how to replay it, and the figures of a sweep that took so long.
    #[must_use]
    pub fn text(&self, first: u64, took: &str) -> String {
        let SweepProgress { done, failed, void, stats, .. } = &self.progress;
        let broken = match failed {
            0 => "no promise was broken".to_owned(),
            1 => "1 seed broke a promise".to_owned(),
            more => format!("{more} seeds broke a promise"),
        };
        let mut text: String = self.failures.iter().map(Failure::text).collect();
        text.push_str(&format!(
            "{done} seeds from {first} on in {took}: {broken}, {void} void\n{stats}"
        ));
        text
    }

    fn take(&mut self, seed: u64, trial: Trial, shrink_runs_max: usize) {
        self.progress.done += 1;
        self.progress.stats += trial.stats;
        match &trial.verdict {
            TrialVerdict::Passed => {}
            TrialVerdict::Void(_) => self.progress.void += 1,
            TrialVerdict::Failed(violations) => {
                self.progress.failed += 1;
                let violations = violations.clone();
                let small = shrink(&trial, shrink_runs_max);
                let story = small.story();
                self.failures.push(Failure { seed, violations, small: small.plan, story });
            }
        }
    }
}

fn failure_json(failure: &Failure) -> Value {
    let violations: Vec<Value> = failure
        .violations
        .iter()
        .map(|violation| {
            json!({"promise": violation.promise, "at_ns": violation.at, "how": violation.how})
        })
        .collect();
    json!({
        "seed": failure.seed,
        "violations": violations,
        "replay": format!("regent lab {}", failure.command()),
        "story": failure.story,
    })
}

fn stats_json(stats: &Stats) -> Value {
    json!({
        "simulated_ms": stats.simulated_ns / 1_000_000,
        "raft_elections": stats.raft_elections,
        "takeovers": stats.takeovers,
        "faults": stats.faults,
        "crashes": stats.crashes,
        "commits": stats.commits,
        "calls": stats.calls,
        "answers": stats.answers,
        "messages": stats.messages,
        "guards": stats.guards,
        "fenced_off": stats.fenced_off,
        "unfenced_harm": stats.unfenced_harm,
        "watched": stats.watched,
        "gaps": stats.gaps,
    })
}
