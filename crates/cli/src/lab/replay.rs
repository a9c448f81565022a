//! `regent lab replay`: one seed again, with its history for people or programs; or a recording
//! (`reenact`).

use std::path::PathBuf;

use clap::Args;
use regent_lab::{Cuts, Fault, Plan, StoreKind, Trial, TrialVerdict};

use super::{alone, reenact};
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Output, Screen};

/// Lines written at once: a reader that has seen enough may leave in between.
const PAGE_LINES: usize = 1_000;

/// The seed of a recording that is acted again, if nobody says.
const SEED_DEFAULT: u64 = 1;

/// Flags of `regent lab replay`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent lab replay --seed 7
  regent lab replay --seed 7 --without loss,crash --chaos-ms 2000 --members 2
  regent lab replay --seed 7 --story
  regent lab replay --seed 7 --json
  regent lab replay --seed 7 --store lease
  regent record /var/lib/regent --group billing > trace.jsonl
  regent lab replay trace.jsonl

A broken seed prints the words that replay it. Exit code 1 says that a promise was broken. With
--json the history is one object per line, and the verdict is the exit code.

With a FILE, or the data directory of a replica, what its flight recorder wrote down is acted
again by the real replica, rules and participants: everybody stands, resigns, falls silent and is
stepped down as it was recorded, and what came about is shown beside what was recorded. Exit code
65 says that the two differ.")]
pub(crate) struct ReplayArgs {
    /// A recording to be acted again: a file, or the data directory of a replica
    #[arg(value_name = "FILE", conflicts_with_all = ["store", "without", "chaos_ms", "members",
        "callers", "watchers", "groups", "story"])]
    trace: Option<PathBuf>,
    /// Which seed; it decides delays and timers of a recording that is acted again
    #[arg(long, value_name = "N", required_unless_present = "trace")]
    seed: Option<u64>,
    /// What keeps the elections: our own replicas, or the lease in a register
    #[arg(long, value_name = "replica|lease", default_value_t)]
    store: StoreKind,
    /// Faults that do not happen, with commas between
    #[arg(long, value_name = "FAULTS", value_delimiter = ',')]
    without: Vec<Fault>,
    /// How long faults strike
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    chaos_ms: Option<u64>,
    /// How many take part in elections
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    members: Option<u32>,
    /// How many ask and administer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    callers: Option<u32>,
    /// How many watch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100))]
    watchers: Option<u32>,
    /// How many groups
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    groups: Option<u32>,
    /// With a recording: the whole history of its simulation, too
    #[arg(long, requires = "trace")]
    history: bool,
    #[command(flatten)]
    told: ToldArgs,
}

/// How much of a history is told.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct ToldArgs {
    /// Only what led to the first broken promise, and the verdict
    #[arg(long)]
    story: bool,
}

impl ReplayArgs {
    fn plan(&self) -> Plan {
        let cuts = Cuts {
            store: self.store,
            without: self.without.clone(),
            chaos_ms: self.chaos_ms,
            members: self.members,
            callers: self.callers,
            watchers: self.watchers,
            groups: self.groups,
        };
        Plan::cut(self.seed.unwrap_or(SEED_DEFAULT), &cuts)
    }
}

/// Runs the seed and tells its history.
pub(crate) fn run(args: &ReplayArgs) -> CommandResult {
    if let Some(path) = &args.trace {
        let seed = args.seed.unwrap_or(SEED_DEFAULT);
        return reenact::run(path, seed, args.history);
    }
    let plan = args.plan();
    let about = plan.about();
    let trial = alone(move || regent_lab::run(plan))?;
    tell(&trial, &about, args.told)
}

/// Tells a run and its verdict.
pub(super) fn tell(trial: &Trial, about: &str, told: ToldArgs) -> CommandResult {
    let screen = Screen::chosen();
    match screen.output {
        Output::Json => screen.line(&trial.history.to_json_lines())?,
        Output::Text => {
            screen.line(about)?;
            if told.story {
                screen.line(&trial.story())?;
            } else {
                tell_history(trial, screen)?;
            }
            screen.line(&format!("{}\n{}", trial.stats, trial.verdict))?;
        }
    }
    Ok(match trial.verdict {
        TrialVerdict::Passed | TrialVerdict::Void(_) => Exit::Done,
        TrialVerdict::Failed(_) => Exit::No,
    })
}

pub(super) fn tell_history(trial: &Trial, screen: Screen) -> Result<(), Failure> {
    for page in trial.history.events.chunks(PAGE_LINES) {
        let lines: Vec<String> = page.iter().map(ToString::to_string).collect();
        screen.line(&lines.join("\n"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: ReplayArgs,
    }

    #[test]
    fn the_words_of_any_smaller_plan_make_the_very_same_plan() {
        let all = [StoreKind::Replica, StoreKind::Lease];
        for (seed, store) in (1..200).flat_map(|seed| all.map(|store| (seed, store))) {
            let mut plan = Plan::draw_for(store, seed);
            let faults: Vec<Fault> = plan.faults.iter().copied().step_by(2).collect();
            for fault in faults {
                plan.leave_out(fault);
            }
            if seed % 2 == 0 {
                plan.chaos_ms /= 2;
                plan.members = 1;
                plan.watchers = 0;
            }
            let words = plan.arguments();
            let parsed = Words::try_parse_from(["replay"].into_iter().chain(words.split(' ')));
            let again = parsed.unwrap_or_else(|error| panic!("{words}: {error}")).args.plan();
            assert_eq!(again, plan, "{words}");
        }
    }
}
