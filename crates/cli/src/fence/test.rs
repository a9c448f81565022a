//! `regent fence test`: the conformance kit. Paused leaders against one target, and a judge.
//!
//! It knows nothing of the target but what a client sees, so it serves for our own adapters, for a gateway, and
//! for other people's storage (docs/fencing.md has the contract).

use clap::Args;
use regent::fencing::trial::{Fault, Options, Report, Tally, run as trials};
use serde_json::{Value, json};

use super::target::open;
use crate::duration::show;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::lab::Bar;
use crate::output::{Output, Screen};
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
    /// For people or for programs
    #[arg(short, long, value_enum, default_value_t, env = "REGENT_OUTPUT")]
    pub(crate) output: Output,
}

fn beside(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=256).contains(count));
    count.ok_or_else(|| "from 1 to 256".into())
}

/// What a run says about the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    /// It let a stale write pass, or lied.
    Fail,
    /// Too little happened.
    Void,
}

impl Verdict {
    fn of(report: &Report) -> Self {
        match (report.tally.faults, report.is_void()) {
            (1.., _) => Self::Fail,
            (0, true) => Self::Void,
            (0, false) => Self::Pass,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Void => "void",
        }
    }

    const fn exit(self) -> Exit {
        match self {
            Self::Pass => Exit::Done,
            Self::Fail => Exit::No,
            Self::Void => Exit::Uncertain,
        }
    }
}

/// Runs the verb.
pub(crate) async fn run(args: TestArgs) -> Outcome {
    let seed = match args.seed {
        Some(seed) => seed,
        // Short enough to be typed.
        None => regent::fresh::number()? % 1_000_000_000,
    };
    let room = format!("regent-trial-{:016x}", regent::fresh::number()?);
    let opened = open(&args.target, &room).await?;
    let options = Options {
        is_fenced: !args.unfenced,
        beside: args.beside,
        first_term: args.first_term,
        has_one_mark: args.one_mark,
        ..Options::new(args.trials, seed, room)
    };
    let mut bar = Bar::new();
    let mut progress = |report: &Report| {
        let Tally { trials, refused, stale, .. } = report.tally;
        let words = format!("{trials} trials, {refused} refused, {stale} stale writes");
        let done_ppm = u128::from(trials) * 1_000_000 / u128::from(args.trials);
        bar.show(u64::try_from(done_ppm).unwrap_or(1_000_000), &words);
    };
    let mut signals = Signals::listen()
        .map_err(|error| Failure::new(Exit::Unavailable, format!("signals: {error}")))?;
    let run = trials(std::sync::Arc::clone(&opened.target), options, &mut progress);
    let report = tokio::select! {
        report = run => Some(report),
        _ = signals.next() => None,
    };
    bar.clear();
    let kind = opened.kind;
    let cleared = opened.clear().await;
    let Some(report) = report else { return Ok(Exit::Interrupted) };
    let took = bar.elapsed();
    let verdict = Verdict::of(&report);
    let screen = Screen { output: args.output };
    match args.output {
        Output::Json => screen.line(&to_json(kind, seed, &args, &report, verdict).to_string())?,
        Output::Text => {
            let took = show(std::time::Duration::from_secs(took.as_secs()));
            screen.line(&to_text(kind, seed, &args, &report, verdict, &took))?;
        }
    }
    cleared?;
    if report.tally.accepted == 0 && verdict == Verdict::Void {
        let why = report.errors.first().map_or("no write was accepted", String::as_str);
        return Err(Failure::new(Exit::Unavailable, why));
    }
    Ok(verdict.exit())
}

fn to_json(kind: &str, seed: u64, args: &TestArgs, report: &Report, verdict: Verdict) -> Value {
    let Tally { trials, accepted, refused, uncertain, failed, unread, looks, faults, stale } =
        report.tally;
    let told: Vec<Value> = report.faults.iter().map(fault_json).collect();
    json!({
        "target": kind,
        "verdict": verdict.word(),
        "seed": seed,
        "is_fenced": !args.unfenced,
        "trials": trials,
        "accepted": accepted,
        "refused": refused,
        "uncertain": uncertain,
        "failed": failed,
        "reads": looks,
        "reads_failed": unread,
        "faults": faults,
        "stale_writes": stale,
        "told": told,
        "errors": report.errors,
    })
}

fn fault_json(fault: &Fault) -> Value {
    json!({"resource": fault.resource, "code": fault.kind.word(), "how": fault.to_string()})
}

fn to_text(
    kind: &str,
    seed: u64,
    args: &TestArgs,
    report: &Report,
    verdict: Verdict,
    took: &str,
) -> String {
    let Tally { trials, accepted, refused, uncertain, failed, faults, stale, .. } = report.tally;
    let mut lines: Vec<String> = report.faults.iter().map(ToString::to_string).collect();
    let more = faults.saturating_sub(lines.len() as u64);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.extend(report.errors.iter().map(|error| format!("error: {error}")));
    let how = if args.unfenced { "without the fence" } else { "fenced" };
    lines.push(format!(
        "{}: {kind}, {how}: {trials} trials by seed {seed} in {took}: {stale} stale writes; {accepted} writes accepted, \
         {refused} refused, {uncertain} uncertain, {failed} failed",
        verdict.word()
    ));
    match verdict {
        Verdict::Pass => {}
        Verdict::Fail => lines.push(format!(
            "the same again: regent fence test TARGET --trials {} --seed {seed}{}",
            args.trials,
            if args.unfenced { " --unfenced" } else { "" }
        )),
        Verdict::Void => lines.push(
            "too little happened to say anything: writes must be accepted, stale ones refused, and few may fail"
                .to_owned(),
        ),
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_something_to_judge() {
        let report = |tally| Report { tally, ..Report::default() };
        let good = Tally { trials: 10, accepted: 20, refused: 5, ..Tally::default() };
        assert_eq!(Verdict::of(&report(good)), Verdict::Pass);
        assert_eq!(Verdict::of(&report(Tally { refused: 0, ..good })), Verdict::Void);
        let bad = Tally { faults: 1, stale: 1, ..good };
        assert_eq!(Verdict::of(&report(bad)), Verdict::Fail);
        assert_eq!(Verdict::of(&report(Tally { accepted: 0, ..bad })), Verdict::Fail);
    }
}
