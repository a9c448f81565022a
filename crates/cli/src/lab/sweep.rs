//! `regent lab sweep`: many seeds on all cores, until enough are run or time is over.
//!
//! Every seed is a world of its own, so threads share nothing but the next number. A tenth of the
//! seeds is run twice: the same seed must give the same history.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use regent_lab::{Failure as Broken, Progress, Stats, StoreKind, SweepOptions, SweepReport, sweep};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::bar::Bar;
use super::{ShowArgs, spawn, threads};
use crate::duration::show;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Screen};
use crate::signals::Signals;

/// Seeds if neither their number nor a time is given.
const SEEDS_DEFAULT: u64 = 1_000;
/// One of so many seeds is run twice.
const TWICE_EVERY: u64 = 10;
/// Broken seeds after which nothing more is learnt by going on.
const FAILURES_MAX: usize = 10;
/// The longest sweep: a year of minutes.
const MINUTES_MAX: u64 = 366 * 24 * 60;

/// Flags of `regent lab sweep`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent lab sweep --seeds 1000
  regent lab sweep --minutes 30 --first 1000000
  regent lab sweep --seeds 200 --json
  regent lab sweep --store lease --seeds 1000

Exit code 1 says that a promise was broken; the seed, the command that replays it and what led to
it are printed. Runs in which too little happened to mean anything are counted as void.")]
pub(crate) struct SweepArgs {
    /// How many seeds [default: 1000, or as many as the time allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Begin no more seeds after so many minutes
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..=MINUTES_MAX))]
    minutes: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    first: u64,
    /// What keeps the elections: our own replicas, or the lease in a register
    #[arg(long, value_name = "replica|lease", default_value_t)]
    store: StoreKind,
    /// How many seeds are run beside each other [default: one for each core]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    threads: Option<usize>,
    #[command(flatten)]
    pub(super) show: ShowArgs,
}

pub(super) fn thread_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=1024).contains(count));
    count.ok_or_else(|| "from 1 to 1024 threads".into())
}

/// What all threads share.
#[derive(Debug)]
struct Shared {
    store: StoreKind,
    first: u64,
    seeds: u64,
    next: AtomicU64,
    is_over: AtomicBool,
}

/// Runs seeds and tells what they came to.
pub(crate) async fn run(args: SweepArgs) -> Outcome {
    let SweepArgs { seeds, minutes, first, store, threads: said, show: told } = args;
    let limit = minutes.map(|minutes| Duration::from_secs(minutes * 60));
    let seeds = seeds.unwrap_or(if limit.is_some() { u64::MAX } else { SEEDS_DEFAULT });
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let shared = Arc::new(Shared { store, first, seeds, next, is_over });
    let mut signals = Signals::listen()
        .map_err(|error| Failure::new(Exit::Unavailable, format!("signals: {error}")))?;
    let (send, mut reports) = unbounded_channel();
    for _ in 0..threads(said) {
        let (shared, send) = (Arc::clone(&shared), send.clone());
        spawn(move || work(&shared, &send))?;
    }
    drop(send);
    let mut whole = Whole::new(limit, seeds);
    let mut is_interrupted = false;
    loop {
        tokio::select! {
            report = reports.recv() => match report {
                Some(report) => whole.take(report),
                None => break,
            },
            _ = signals.next() => {
                is_interrupted = true;
                break;
            }
        }
        if whole.is_over() {
            shared.is_over.store(true, Ordering::Relaxed);
        }
    }
    whole.bar.clear();
    whole.tell(told.output(), first)?;
    Ok(match (whole.failures.is_empty(), is_interrupted) {
        (false, _) => Exit::No,
        (true, true) => Exit::Interrupted,
        (true, false) => Exit::Done,
    })
}

/// One thread: the next seed, and the next, until there is none or nobody listens.
fn work(shared: &Shared, send: &UnboundedSender<SweepReport>) {
    while !shared.is_over.load(Ordering::Relaxed) {
        let at = shared.next.fetch_add(1, Ordering::Relaxed);
        let Some(seed) = shared.first.checked_add(at).filter(|_| at < shared.seeds) else { return };
        let options = SweepOptions {
            store: shared.store,
            first: seed,
            seeds: 1,
            twice_every: u64::from(at.is_multiple_of(TWICE_EVERY)),
            ..SweepOptions::default()
        };
        let report = sweep(options, &mut |_| ControlFlow::Continue(()));
        if send.send(report).is_err() {
            return;
        }
    }
}

/// What all seeds together came to.
#[derive(Debug)]
struct Whole {
    bar: Bar,
    limit: Option<Duration>,
    progress: Progress,
    failures: Vec<Broken>,
}

impl Whole {
    fn new(limit: Option<Duration>, seeds: u64) -> Self {
        let progress = Progress { of: seeds, ..Progress::default() };
        Self { bar: Bar::new(), limit, progress, failures: Vec::new() }
    }

    fn take(&mut self, report: SweepReport) {
        self.progress.done += report.progress.done;
        self.progress.failed += report.progress.failed;
        self.progress.void += report.progress.void;
        self.progress.stats += report.progress.stats;
        self.failures.extend(report.failures);
        let Progress { done, failed, void, stats, .. } = &self.progress;
        let hours = stats.simulated_ns / 3_600_000_000_000;
        let words = format!(
            "{done} seeds, {failed} broken, {void} void, {hours} simulated hours, {} take-overs",
            stats.takeovers
        );
        self.bar.show(self.done_ppm(), &words);
    }

    fn done_ppm(&self) -> u64 {
        let of_seeds = u128::from(self.progress.done) * 1_000_000 / u128::from(self.progress.of);
        let of_time = self.limit.map_or(0, |limit| {
            self.bar.elapsed().as_millis() * 1_000_000 / limit.as_millis().max(1)
        });
        u64::try_from(of_seeds.max(of_time)).unwrap_or(1_000_000)
    }

    fn is_over(&self) -> bool {
        let is_late = self.limit.is_some_and(|limit| self.bar.elapsed() >= limit);
        is_late || self.failures.len() >= FAILURES_MAX
    }

    fn tell(&mut self, output: Output, first: u64) -> Result<(), Failure> {
        self.failures.sort_by_key(|failure| failure.seed);
        let screen = Screen { output };
        if output == Output::Json {
            return screen.line(&self.to_json(first).to_string());
        }
        for failure in &self.failures {
            screen.line(&told(failure))?;
        }
        let Progress { done, failed, void, stats, .. } = &self.progress;
        let broken = match failed {
            0 => "no promise was broken".to_owned(),
            1 => "1 seed broke a promise".to_owned(),
            more => format!("{more} seeds broke a promise"),
        };
        let took = show(Duration::from_secs(self.bar.elapsed().as_secs()));
        screen.line(&format!(
            "{done} seeds from {first} on in {took}: {broken}, {void} void\n{stats}"
        ))
    }

    fn to_json(&self, first: u64) -> Value {
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
}

fn told(failure: &Broken) -> String {
    format!(
        "seed {} broke a promise; as small as it could be made, this led to it:\n{}replay it with\n  regent lab {}\n",
        failure.seed,
        failure.story,
        failure.command()
    )
}

fn failure_json(failure: &Broken) -> Value {
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
