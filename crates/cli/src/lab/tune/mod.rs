//! `regent lab tune`: which ttl and which time-outs suit a network, estimated and then played.
//!
//! The arithmetic proposes settings around the one it would choose; each is played in virtual time
//! on all cores, and the quickest that meets both targets as played is recommended. What is too
//! rare to be seen is told as such, with what the arithmetic says of it.

mod parse;
mod told;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use regent_election::Drift;
use regent_election::tuning::{Choice, Curve, Pause, Rate, Target, lease_ladder, log_ladder};
use regent_lab::tune::{Measured, Place, Rung, Setting, svg};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::bar::Bar;
use super::sweep::thread_count;
use super::{ShowArgs, spawn, threads};
use crate::duration::{self, millis};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Screen};
use crate::signals::Signals;

/// Settings that are played on either side of the one that the arithmetic would choose.
const BESIDE: usize = 3;
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
    #[command(flatten)]
    pub(super) show: ShowArgs,
}

/// One thing that is tuned, with what was found.
#[derive(Debug)]
struct Found {
    rungs: Vec<Rung>,
    choice: Choice,
}

/// Estimates, plays and tells.
pub(crate) async fn run(args: TuneArgs) -> Outcome {
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
    let place = Place { trip_us, loss_ppm, pause, voters };
    let target =
        Target { failover_ms: millis(args.failover), false_failovers: args.false_failovers };
    let (lease, log) = (lease_rungs(&place, &target), log_rungs(&place, &target));
    let leases = lease.len();
    let mut rungs = [lease, log].concat();
    let settings: Vec<Setting> = rungs.iter().map(|rung| rung.setting).collect();
    let Some(measured) = play(&args, &place, settings).await? else { return Ok(Exit::Interrupted) };
    for (rung, measured) in rungs.iter_mut().zip(measured) {
        rung.measured = measured;
    }
    let log = rungs.split_off(leases);
    let found = [rungs, log].map(|rungs| {
        let choice = Rung::choose(&rungs, &target);
        Found { rungs, choice }
    });
    if let Some(file) = &args.svg {
        let text = drawing(&found, &target);
        std::fs::write(file, text).map_err(|error| Failure::file(file, &error))?;
    }
    let screen = Screen { output: args.show.output() };
    match screen.output {
        Output::Json => {
            let [lease, log] = &found;
            let told = json!({
                "surroundings": told::place_json(&place),
                "target": told::target_json(&target),
                "seeds": args.seeds,
                "lease": told::found_json(lease, &place, &target),
                "log": told::found_json(log, &place, &target),
            });
            screen.line(&told.to_string())?;
        }
        Output::Text => screen.line(&told::text(&found, &place, &target, args.seeds))?,
    }
    let is_found = |found: &Found| matches!(found.choice, Choice::Found(_));
    Ok(if found.iter().all(is_found) { Exit::Done } else { Exit::No })
}

/// Ttls around the one that the arithmetic would choose.
fn lease_rungs(place: &Place, target: &Target) -> Vec<Rung> {
    let settings: Vec<Setting> =
        lease_ladder(Drift::DEFAULT).into_iter().map(Setting::Lease).collect();
    around(&settings, place, target)
}

/// Time-outs of the log around the one that the arithmetic would choose.
fn log_rungs(place: &Place, target: &Target) -> Vec<Rung> {
    let is_taken = |setting: &Setting| match setting {
        Setting::Log(timers) => Setting::timing(timers).is_ok(),
        Setting::Lease(_) => true,
    };
    let settings: Vec<Setting> =
        log_ladder().into_iter().map(Setting::Log).filter(is_taken).collect();
    around(&settings, place, target)
}

fn around(settings: &[Setting], place: &Place, target: &Target) -> Vec<Rung> {
    let curve = Curve::of(settings, |setting| setting.estimate(place));
    let (low, high) = match curve.choose(target) {
        Choice::Found(at) => (at, at),
        // Whatever lies between is in the way, and both ends are worth a look.
        Choice::TargetsConflict { calm: Some(calm), quick: Some(quick) } => {
            (calm.min(quick), calm.max(quick))
        }
        Choice::TargetsConflict { calm, quick } => {
            let end = calm.or(quick).unwrap_or(settings.len() - 1);
            (end, end)
        }
    };
    places(low, high, settings.len())
        .filter_map(|at| curve.0.get(at).copied())
        .map(|point| Rung {
            setting: point.setting,
            estimate: point.estimate,
            measured: Measured::default(),
        })
        .collect()
}

/// Places of a ladder with so many rungs: both of these and those around them, and of a wide gap
/// some, evenly.
fn places(low: usize, high: usize, rungs: usize) -> impl Iterator<Item = usize> {
    const COUNT: usize = 2 * BESIDE + 1;
    let spare = COUNT.saturating_sub(high - low + 1);
    let from = low.saturating_sub(spare.div_ceil(2)).min(rungs.saturating_sub(COUNT));
    let to = (from + COUNT - 1).max(high).min(rungs.saturating_sub(1));
    let steps = (COUNT - 1).min(to - from);
    (0..=steps).map(move |step| from + (to - from) * step / steps.max(1))
}

/// What all threads share.
#[derive(Debug)]
struct Shared {
    place: Place,
    settings: Vec<Setting>,
    first: u64,
    seeds: usize,
    next: AtomicUsize,
    is_over: AtomicBool,
}

/// Plays every setting with every seed. None if somebody interrupted it.
async fn play(
    args: &TuneArgs,
    place: &Place,
    settings: Vec<Setting>,
) -> Result<Option<Vec<Measured>>, Failure> {
    let mut signals = Signals::listen()
        .map_err(|error| Failure::new(Exit::Unavailable, format!("signals: {error}")))?;
    let seeds = usize::try_from(args.seeds).unwrap_or(usize::MAX);
    let all = settings.len().saturating_mul(seeds);
    let mut measured = vec![Measured::default(); settings.len()];
    let shared = Arc::new(Shared {
        place: place.clone(),
        settings,
        first: args.first,
        seeds,
        next: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
    });
    let (send, mut reports) = unbounded_channel();
    for _ in 0..threads(args.threads) {
        let (shared, send) = (Arc::clone(&shared), send.clone());
        spawn(move || work(&shared, &send))?;
    }
    drop(send);
    let mut bar = Bar::new();
    let mut done = 0_usize;
    loop {
        tokio::select! {
            report = reports.recv() => match report {
                Some((at, of_seed)) => {
                    done += 1;
                    let of: &mut Measured = &mut measured[at];
                    of.add(of_seed);
                }
                None => break,
            },
            _ = signals.next() => {
                shared.is_over.store(true, Ordering::Relaxed);
                bar.clear();
                return Ok(None);
            }
        }
        let ppm = (done as u128 * 1_000_000 / all.max(1) as u128) as u64;
        bar.show(ppm, &format!("{done} of {all} runs"));
    }
    bar.clear();
    if done < all {
        // A thread that is gone took its runs with it: figures of fewer would look like figures of
        // all.
        return Err(Failure::new(Exit::Uncertain, "the simulator itself failed"));
    }
    Ok(Some(measured))
}

/// One thread: the next run, and the next, until there is none or nobody listens.
fn work(shared: &Shared, send: &UnboundedSender<(usize, Measured)>) {
    while !shared.is_over.load(Ordering::Relaxed) {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let (at, seed) = (number / shared.seeds, number % shared.seeds);
        let Some(setting) = shared.settings.get(at) else { return };
        let seed = shared.first.wrapping_add(seed as u64);
        let measured = Measured::of_seed(setting, &shared.place, seed);
        if send.send((at, measured)).is_err() {
            return;
        }
    }
}

/// Both curves, one below the other.
fn drawing(found: &[Found; 2], target: &Target) -> String {
    let pictures = found.iter().zip(["ttl of sessions", "election time-out of the log"]);
    let pictures = pictures.map(|(found, title)| {
        let chosen = match found.choice {
            Choice::Found(at) => Some(at),
            Choice::TargetsConflict { .. } => None,
        };
        svg(title, &found.rungs, target, chosen, told::name)
    });
    let mut text =
        String::from("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"640\">\n");
    for (number, picture) in pictures.enumerate() {
        text.push_str(&format!("<g transform=\"translate(0 {})\">\n{picture}</g>\n", 320 * number));
    }
    text.push_str("</svg>\n");
    text
}

#[cfg(test)]
mod tests;
