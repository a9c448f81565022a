//! `regent lab sweep`: many seeds on all cores, until enough are run or time is over.
//!
//! Every seed is a world of its own, so threads share nothing but the next number. A tenth of the
//! seeds is run twice: the same seed must give the same history.

use std::ops::ControlFlow;
use std::time::Duration;

use clap::Args;
use regent_lab::{StoreKind, SweepProgress, SweepReport, sweep_one};

use super::bar::Bar;
use super::each;
use crate::duration::show;
use crate::exit::Exit;
use crate::failure::CommandResult;
use crate::output::Screen;

/// Seeds if neither their number nor a time is given.
const SEEDS_DEFAULT: u64 = 1_000;
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
}

pub(super) fn thread_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=1024).contains(count));
    count.ok_or_else(|| "from 1 to 1024 threads".into())
}

/// Runs seeds and tells what they came to.
pub(crate) async fn run(args: SweepArgs) -> CommandResult {
    let SweepArgs { seeds, minutes, first, store, threads } = args;
    let limit = minutes.map(|minutes| Duration::from_secs(minutes * 60));
    let seeds = seeds.unwrap_or(if limit.is_some() { u64::MAX } else { SEEDS_DEFAULT });
    let (mut bar, mut whole) = (Bar::new(), SweepReport::default());
    let job = move |number| sweep_one(store, first, seeds, number);
    let is_whole = each(threads, job, |report| {
        whole.add(report);
        let SweepProgress { done, failed, void, stats, .. } = &whole.progress;
        let hours = stats.simulated_ns / 3_600_000_000_000;
        let words = format!(
            "{done} seeds, {failed} broken, {void} void, {hours} simulated hours, {} take-overs",
            stats.takeovers
        );
        let elapsed = bar.elapsed();
        let of_seeds = u128::from(*done) * 1_000_000 / u128::from(seeds);
        let of_time = limit.map_or(0, |limit| elapsed.as_millis() * 1_000_000 / limit.as_millis());
        bar.show(u64::try_from(of_seeds.max(of_time)).unwrap_or(1_000_000), &words);
        let is_late = limit.is_some_and(|limit| elapsed >= limit);
        let is_over = is_late || whole.failures.len() >= FAILURES_MAX;
        Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
    .await?;
    bar.clear();
    let took = show(Duration::from_secs(bar.elapsed().as_secs()));
    let screen = Screen::chosen();
    screen.answer(&whole.object(first), || whole.text(first, &took))?;
    Ok(match (whole.failures.is_empty(), is_whole) {
        (false, _) => Exit::No,
        (true, false) => Exit::Interrupted,
        (true, true) => Exit::Done,
    })
}
