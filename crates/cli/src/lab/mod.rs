//! `regent lab`: the simulator by hand. Whole clusters in virtual time, judged by the promises.
//!
//! Everything here only calls the library and shows what it says. Exit code 0: every promise was
//! kept; 1: one was broken, with the command that replays it and the story that led to it.

mod bar;
mod compare;
mod mutants;
mod play;
mod reenact;
mod replay;
mod scenarios;
mod sweep;
mod tune;

use std::ops::ControlFlow;

use clap::Subcommand;
use regent_lab::Block;
use regent_lab::pool::{self, Pool, PoolError, cores};

pub(crate) use bar::Bar;

use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Side, facts, table};
use crate::signals::Signals;

const EXAMPLES: &str = "\
Examples:
  regent lab sweep --seeds 1000
  regent lab sweep --seeds 1000 --store lease
  regent lab replay --seed 7
  regent lab replay trace.jsonl
  regent lab scenarios
  regent lab scenario 1
  regent lab algorithms
  regent lab run bully flapping
  regent lab compare --html report.html
  regent lab tune --rtt 2ms..20ms --loss 1% --pause 300ms

`run` plays an algorithm of the literature under a scenario, `compare` measures them all, and
`tune` finds time-outs for a network. The other verbs test Regent itself: the simulator runs
the real replica or the real lease, the real rules and the real participant in virtual time,
with faulty links, disks, registers, clocks and processes. One seed decides everything, so
whatever breaks can be replayed. A release build is faster:
cargo run --release -- lab sweep --seeds 1000";

/// Verbs of `regent lab`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum LabVerb {
    /// Run seed after seed and judge every one by the promises
    Sweep(sweep::SweepArgs),
    /// Run one seed again, or act a recording, and tell its history
    Replay(replay::ReplayArgs),
    /// List the stories that are told by name
    Scenarios(scenarios::ScenariosArgs),
    /// Tell one of them
    Scenario(scenarios::ScenarioArgs),
    /// Prove that deliberate mistakes are found
    Mutants(mutants::MutantsArgs),
    /// Play an algorithm of the literature under a scenario and tell what happens
    Run(play::RunArgs),
    /// Compare algorithms under scenarios with many seeds: cost, speed, and what goes wrong
    Compare(compare::CompareArgs),
    /// Say whether a scenario of your own can be read
    Check(play::CheckArgs),
    /// List the algorithms and the scenarios that `run` plays
    Algorithms(play::AlgorithmsArgs),
    /// Find the ttl and the time-outs that suit a network
    Tune(tune::TuneArgs),
}

/// Runs one of the verbs.
pub(crate) async fn run(verb: LabVerb) -> CommandResult {
    pool::silence_panics();
    match verb {
        LabVerb::Sweep(args) => sweep::run(args).await,
        LabVerb::Replay(args) => replay::run(&args),
        LabVerb::Scenarios(args) => scenarios::list(&args),
        LabVerb::Scenario(args) => scenarios::run(&args),
        LabVerb::Mutants(args) => mutants::run(args).await,
        LabVerb::Run(args) => play::run(&args),
        LabVerb::Compare(args) => compare::run(args).await,
        LabVerb::Check(args) => play::check(&args),
        LabVerb::Algorithms(args) => play::list(&args),
        LabVerb::Tune(args) => tune::run(args).await,
    }
}

/// Does jobs on all cores and takes each result, until there are no more or `take` breaks off. False if a
/// signal interrupted it.
async fn each<T: Send + 'static>(
    threads: Option<usize>,
    job: impl Fn(u64) -> Option<T> + Send + Sync + 'static,
    mut take: impl FnMut(T) -> Result<ControlFlow<()>, Failure>,
) -> Result<bool, Failure> {
    let mut signals = Signals::listen()?;
    let mut pool = Pool::start(threads.unwrap_or_else(cores), job).map_err(unrun)?;
    loop {
        tokio::select! {
            result = pool.next() => match result {
                // Jobs that are under way still end and count.
                Some(result) => if take(result)?.is_break() { pool.stop() },
                None => return Ok(true),
            },
            _ = signals.next() => return Ok(false),
        }
    }
}

/// Runs one simulation on a thread of its own and waits for it.
fn alone<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    pool::alone(body).map_err(unrun)
}

fn unrun(error: PoolError) -> Failure {
    match error {
        PoolError::NoThread(error) => {
            Failure::new(Exit::Unavailable, format!("no thread: {error}"))
        }
        PoolError::Failed => simulator_failed(),
    }
}

fn simulator_failed() -> Failure {
    Failure::new(Exit::Uncertain, "the simulator itself failed")
}

/// A report for a terminal.
fn laid_out(blocks: Vec<Block>) -> String {
    let laid_out = blocks.into_iter().map(|block| match block {
        Block::Text(text) => text,
        Block::Table { head, rows } => {
            let side = |side: &regent_lab::Side| match side {
                regent_lab::Side::Left => Side::Left,
                regent_lab::Side::Right => Side::Right,
            };
            let head: Vec<(&str, Side)> =
                head.iter().map(|(name, of)| (name.as_str(), side(of))).collect();
            table(&head, rows)
        }
        Block::Facts(all) => facts(all),
    });
    laid_out.collect()
}
