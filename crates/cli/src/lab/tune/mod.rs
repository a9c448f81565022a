//! `regent lab tune`: which ttl and which time-outs suit a network, estimated and then played.
//!
//! The arithmetic proposes settings around the one it would choose; each is played in virtual time
//! on all cores, and the quickest that meets both targets as played is recommended. What is too
//! rare to be seen is told as such, with what the arithmetic says of it.

use std::ops::{ControlFlow, RangeInclusive};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use regent_election::tuning::{Pause, Rate, Target};
use regent_lab::tune::{
    Found, Measured, NetworkConditions, Rung, Tuned, lease_rungs, log_rungs, parse,
};

use super::bar::Bar;
use super::sweep::thread_count;
use super::{each, laid_out, simulator_failed};
use crate::duration::{self, millis};
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::Screen;

/// Replicas that vote at most: each of them is a whole replica in the simulator.
const VOTERS_MAX: i64 = 9;

/// Flags of `regent lab tune`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent lab tune --rtt 2ms..20ms --loss 1% --pause 300ms --failover 5s
  regent lab tune --rtt 80ms..200ms --loss 0.5% --false-failovers 1/day --seeds 200
  regent lab tune --rtt 500us..2ms --svg curve.svg --output json

Two things are tuned, each on its own: the ttl of sessions, and the time-outs of the replicated
log. Exit code 1 says that no setting meets both targets, and what is in the way. What the model
leaves out is in docs/tuning.md. A release build is faster.")]
pub(crate) struct TuneArgs {
    /// The shortest and the longest round trip
    #[arg(long, value_name = "FROM..TO", value_parser = parse::trips)]
    rtt: RangeInclusive<u64>,
    /// How many messages are lost, each way
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = parse::loss)]
    loss: u32,
    /// For how long a process stands still now and then
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pause: Option<Duration>,
    /// How often each process does
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    pause_every: Duration,
    /// A dead leader is to be succeeded within this, 99 times of 100
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    failover: Duration,
    /// A living leader may lose its office this often, like 1/week or 2/day
    #[arg(long, value_name = "N/TIME", default_value = "1/week", value_parser = parse::rate)]
    false_failovers: Rate,
    /// How many replicas vote
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u16).range(2..=VOTERS_MAX))]
    voters: u16,
    /// How many runs of every setting
    #[arg(long, value_name = "N", default_value_t = 40,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    first: u64,
    /// How many runs beside each other [default: one for each core]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    threads: Option<usize>,
    /// Draw the curves into this file, too
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Estimates, plays and tells.
pub(crate) async fn run(args: TuneArgs) -> CommandResult {
    let pause = args
        .pause
        .filter(|pause| !pause.is_zero())
        .map(|pause| Pause { length_ms: millis(pause), every_ms: millis(args.pause_every) });
    if pause.is_some_and(|pause| pause.every_ms <= pause.length_ms) {
        let message =
            "processes that stand still as long as they run elect nobody; raise --pause-every";
        return Err(Failure::usage(message));
    }
    let (trip_us, loss_ppm, voters) = (args.rtt.clone(), args.loss, args.voters);
    let place = NetworkConditions { trip_us, loss_ppm, pause, voters };
    let target =
        Target { failover_ms: millis(args.failover), false_failovers: args.false_failovers };
    let lease = lease_rungs(&place, &target);
    let leases = lease.len();
    let mut rungs = [lease, log_rungs(&place, &target)].concat();
    if !play(&args, &place, &mut rungs).await? {
        return Ok(Exit::Interrupted);
    }
    let log = Found::among(rungs.split_off(leases), &target);
    let lease = Found::among(rungs, &target);
    let tuned = Tuned { place, target, seeds: args.seeds, lease, log };
    if let Some(file) = &args.svg {
        std::fs::write(file, tuned.drawing()).map_err(|error| Failure::file(file, &error))?;
    }
    let screen = Screen::chosen();
    screen.answer(&tuned.object(), || laid_out(tuned.blocks()))?;
    Ok(if tuned.is_found() { Exit::Done } else { Exit::No })
}

/// Plays every setting with every seed. False if it was interrupted.
async fn play(
    args: &TuneArgs,
    place: &NetworkConditions,
    rungs: &mut [Rung],
) -> Result<bool, Failure> {
    let (place, first, seeds) = (place.clone(), args.first, args.seeds);
    let settings: Vec<_> = rungs.iter().map(|rung| rung.setting).collect();
    let all = (settings.len() as u64).saturating_mul(seeds);
    let job = move |number: u64| {
        let at = usize::try_from(number / seeds).ok()?;
        let seed = first.wrapping_add(number % seeds);
        Some((at, Measured::of_seed(settings.get(at)?, &place, seed)))
    };
    let (mut bar, mut done) = (Bar::new(), 0_u64);
    let is_whole = each(args.threads, job, |(at, of_seed)| {
        done += 1;
        rungs[at].measured.add(of_seed);
        let ppm = u128::from(done) * 1_000_000 / u128::from(all.max(1));
        bar.show(ppm as u64, &format!("{done} of {all} runs"));
        Ok(ControlFlow::Continue(()))
    })
    .await?;
    bar.clear();
    if is_whole && done < all {
        // A thread that is gone took its runs with it: figures of fewer would look like figures of
        // all.
        return Err(simulator_failed());
    }
    Ok(is_whole)
}
