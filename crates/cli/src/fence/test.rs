//! `regent fence test`: the conformance kit. Paused leaders against one target, and a judge.
//!
//! It knows nothing of the target but what a client sees, so it serves for our own adapters, for a gateway, and
//! for other people's storage (docs/fencing.md has the contract).

use clap::Args;
use regent_fencekit::{
    FenceVerdict, Shown, Tally, TargetError, TrialOptions, TrialReport, open, run as trials,
};

use crate::duration::show;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::lab::Bar;
use crate::output::Screen;
use crate::signals::Signals;

/// The most trials of one run: more than a week of them.
const TRIALS_MAX: u64 = 100_000_000;

/// Flags of `regent fence test`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Two or more leaders with rising terms write to each resource; some are paused between their check
and their write, until their successor has written. A passing target refuses every one of those.
With --unfenced terms are not sent or not compared: then stale writes must be found.

Exit code 0: no stale write, and stale leaders were refused. 1: the target let a stale write pass,
or lied. 70: too little happened to say anything. 69: it cannot be reached.

Examples:
  regent fence test file:///var/tmp
  regent fence test postgres://admin@db/shop --trials 10000
  regent fence test redis://cache --seed 7 --output json
  regent fence test http://127.0.0.1:8080/objects
  regent fence test http://127.0.0.1:7410/objects --one-mark --first-term 1000
  regent fence test exec:./my-writer --trials 2000")]
pub(crate) struct TestArgs {
    /// What to hammer: a storage by URL, an address of your own, or a program
    #[arg(value_name = "TARGET")]
    target: String,
    /// How many trials
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..=TRIALS_MAX))]
    trials: u64,
    /// Decides what is tried [default: a random one, which is shown]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Write without comparing terms: the trials must be able to fail
    #[arg(long)]
    unfenced: bool,
    /// How many resources are tried beside each other
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = beside)]
    beside: usize,
    /// The target has one mark for all its resources, as a gateway has
    #[arg(long)]
    one_mark: bool,
    /// The first term: above every mark that the target has already
    #[arg(long, value_name = "TERM", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=(1 << 52)))]
    first_term: u64,
}

fn beside(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=256).contains(count));
    count.ok_or_else(|| "from 1 to 256".into())
}

/// Runs the verb.
pub(crate) async fn run(args: TestArgs) -> CommandResult {
    let seed = match args.seed {
        Some(seed) => seed,
        // Short enough to be typed.
        None => regent::fresh::number()? % 1_000_000_000,
    };
    let room = format!("regent-trial-{:016x}", regent::fresh::number()?);
    let opened = open(&args.target, &room).await.map_err(failure)?;
    let options = TrialOptions {
        is_fenced: !args.unfenced,
        beside: args.beside,
        first_term: args.first_term,
        has_one_mark: args.one_mark,
        ..TrialOptions::new(args.trials, seed, room)
    };
    let mut bar = Bar::new();
    let mut progress = |report: &TrialReport| {
        let Tally { trials, refused, stale, .. } = report.tally;
        let words = format!("{trials} trials, {refused} refused, {stale} stale writes");
        let done_ppm = u128::from(trials) * 1_000_000 / u128::from(args.trials);
        bar.show(u64::try_from(done_ppm).unwrap_or(1_000_000), &words);
    };
    let mut signals = Signals::listen()?;
    let run = trials(std::sync::Arc::clone(&opened.target), options.clone(), &mut progress);
    let report = tokio::select! {
        report = run => Some(report),
        _ = signals.next() => None,
    };
    bar.clear();
    let kind = opened.kind;
    let cleared = opened.clear().await;
    let Some(report) = report else { return Ok(Exit::Interrupted) };
    let took = show(std::time::Duration::from_secs(bar.elapsed().as_secs()));
    let shown = Shown { kind, options: &options, report: &report, took: &took };
    Screen::chosen().answer(&shown.object(), || shown.text())?;
    cleared.map_err(failure)?;
    let verdict = report.verdict();
    if report.tally.accepted == 0 && verdict == FenceVerdict::Void {
        let why = report.errors.first().map_or("no write was accepted", String::as_str);
        return Err(Failure::new(Exit::Unavailable, why));
    }
    Ok(match verdict {
        FenceVerdict::Pass => Exit::Done,
        FenceVerdict::Fail => Exit::No,
        FenceVerdict::Void => Exit::Uncertain,
    })
}

fn failure(error: TargetError) -> Failure {
    match error {
        TargetError::Url(why) => Failure::usage(why),
        TargetError::File { path, error } => Failure::file(&path, &error),
        TargetError::Unreached(why) => Failure::new(Exit::Unavailable, why),
        TargetError::NotBuiltIn(_) => Failure::new(Exit::Config, error.to_string()),
    }
}
