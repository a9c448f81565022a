//! Your own leader code in the lab: a mistake that no ordinary test finds, found, and its cure proved.
//!
//! ```text
//! cargo run -p regent-lab --example rehearsed_job
//! cargo run -p regent-lab --example rehearsed_job -- 1000
//! ```
//! A job computes for a while and then writes what it computed. The careless one checks that it leads
//! before it begins, and not again before it writes. On a developer's machine that always works. Here two
//! such processes take part in real elections, in virtual time, while chance pauses, kills and cuts
//! off whom it likes: sooner or later one is paused between its check and its write, another leads, and the
//! first one wakes up and writes. The checker names the write; the storage with a fence has refused
//! it, and the one without has it.

use std::time::Duration;

use regent_lab::election::{Group, Moment, Term};
use regent_lab::{Application, Context, Rehearsal, RehearsalOutcome};

fn main() {
    let seeds = std::env::args().nth(1).and_then(|seeds| seeds.parse().ok()).unwrap_or(100);
    let (broken, late) = sweep(Habit::Careless, seeds);
    println!(
        "careless: {} of {seeds} seeds broke a promise, {late} writes came late",
        broken.len()
    );
    if let Some(outcome) = broken.first() {
        println!("  seed {}: {}", outcome.history.setup.seed, outcome.violations[0]);
    }
    let (broken, late) = sweep(Habit::Careful, seeds);
    println!(
        "careful:  {} of {seeds} seeds broke a promise, {late} writes came late",
        broken.len()
    );
}

/// Whether the job asks again before it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// It checked when it began, and that was a moment ago.
    Careless,
    /// It checks right before it writes.
    Careful,
}

/// Computes for a while, then writes.
#[derive(Debug)]
pub struct Job {
    habit: Habit,
    group: Group,
    /// The term it began under, and when the result is there.
    under_way: Option<(Term, Moment)>,
    done: u64,
}

impl Job {
    /// A job that has not begun.
    #[must_use]
    pub fn new(habit: Habit, group: Group) -> Self {
        Self { habit, group, under_way: None, done: 0 }
    }
}

impl Application for Job {
    fn on_start(&mut self, _cx: &mut Context<'_>) {
        // A process that died remembers nothing.
        self.under_way = None;
    }

    fn on_tick(&mut self, cx: &mut Context<'_>) {
        match self.under_way {
            None => {
                if let Some((term, _)) = cx.check(&self.group) {
                    let takes = Duration::from_millis(50 + cx.dice(300));
                    self.under_way = Some((term, cx.now() + takes));
                }
            }
            Some((_, ready_at)) if cx.now() < ready_at => {}
            Some((term, _)) => {
                self.under_way = None;
                let may_write = match self.habit {
                    Habit::Careless => true,
                    Habit::Careful => cx.check(&self.group).is_some_and(|(now, _)| now == term),
                };
                if may_write {
                    self.done += 1;
                    cx.write(&self.group, term, &format!("result {}", self.done));
                }
            }
        }
    }

    fn on_stop(&mut self, cx: &mut Context<'_>, group: &Group, _term: Term, _left: Duration) {
        if self.habit == Habit::Careful {
            self.under_way = None;
        }
        cx.stopped(group);
    }

    fn tick_every(&self) -> Duration {
        Duration::from_millis(40)
    }
}

/// One rehearsal: two processes, three replicas, half a minute of trouble.
#[must_use]
pub fn rehearse(habit: Habit, seed: u64) -> RehearsalOutcome {
    let group = Group::new("invoices").expect("a word is a name");
    let mut lab = Rehearsal::new(seed, 3);
    for name in ["ann", "bob"] {
        lab.participant(
            name,
            Duration::from_secs(2),
            &["invoices"],
            Job::new(habit, group.clone()),
        );
    }
    lab.trouble(Duration::from_secs(30));
    lab.run_for(Duration::from_secs(5));
    lab.finish()
}

/// Many of them: those in which a promise was broken, and how many writes came after a later leader's.
#[must_use]
pub fn sweep(habit: Habit, seeds: u64) -> (Vec<RehearsalOutcome>, usize) {
    let outcomes: Vec<RehearsalOutcome> = (0..seeds).map(|seed| rehearse(habit, seed)).collect();
    let late = outcomes.iter().map(|outcome| outcome.late_writes("invoices").len()).sum();
    (outcomes.into_iter().filter(|outcome| !outcome.violations.is_empty()).collect(), late)
}
