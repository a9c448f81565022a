//! `regent doctor`: whether a deployment keeps what elections need, before it is trusted with any.
//!
//! `regent_operate::examine` does it; here are its flags, its words and its exit codes.

mod recovery;
mod split_brain;

use std::time::Duration;

use clap::{Args, Subcommand};
use regent_election::{Budget, Drift};
use regent_operate::examine::{
    Check, ExamineError, ExamineProgress, ExamineReport, TIMED_WRITES, examine,
};
use regent_stores::open_register;
use regent_stores::register::RegisterError;

use crate::duration;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Output, Screen, Side, remark, table};
use crate::serve::unopened;

/// Flags of `regent doctor`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Exit code 0: it keeps the contract. 77: it does not, and must not keep elections. 69: it cannot
be asked.
Every run leaves some hundred small entries behind, all named contract/...

Examples:
  regent doctor --store file:///var/lib/elections
  regent doctor --store postgres://regent@db/elections --ttl 5s
  regent doctor --store redis://cache --output json
  regent doctor split-brain --server http://a:7400,http://b:7400")]
pub(crate) struct DoctorArgs {
    /// The deployment; `regent store list` shows how its URL is written
    #[arg(long, value_name = "URL", env = "REGENT_STORE", required = true)]
    store: Option<String>,
    /// The ttl that leaders shall have on it
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    ttl: Duration,
    #[command(subcommand)]
    verb: Option<DoctorVerb>,
}

/// What else can be looked into.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DoctorVerb {
    /// Find out whether two lead one group, and walk the way back to one
    SplitBrain(Box<split_brain::SplitBrainArgs>),
}

/// Runs the verb.
pub(crate) async fn run(args: DoctorArgs) -> CommandResult {
    if let Some(DoctorVerb::SplitBrain(args)) = args.verb {
        return split_brain::run(*args).await;
    }
    let store = args.store.ok_or_else(|| Failure::usage("--store says which deployment"))?;
    let drift = Drift::from_ppm(regent_clock::drift_ppm())
        .map_err(|error| Failure::usage(error.to_string()))?;
    let budget = Budget::new(duration::millis(args.ttl), drift)
        .map_err(|error| Failure::usage(format!("--ttl: {error}")))?;
    let open = || open_register(&store).map_err(unopened);
    let is_text = Output::chosen() == Output::Text;
    let mut tell = |progress: ExamineProgress<'_>| match progress {
        ExamineProgress::Began { name, place } => remark(&format!("{name} at {place} is examined")),
        ExamineProgress::Checked { done, total, is_broken } => {
            if is_text && (is_broken || done % 8 == 0) {
                remark(&format!("{done} of {total} checks done"));
            }
        }
    };
    let report = examine(open()?, open()?, &budget, &mut tell).await?;
    Screen::chosen().answer(&report, || show(&report, args.ttl))?;
    Ok(if report.keeps_the_contract { Exit::Done } else { Exit::Refused })
}

impl From<ExamineError> for Failure {
    fn from(error: ExamineError) -> Self {
        match error {
            ExamineError::Register(RegisterError::Unfit { why }) => {
                Self::new(Exit::Refused, format!("{why}; do not hold elections on it"))
            }
            ExamineError::Register(error) => {
                let why = format!("the deployment cannot be examined: {error}");
                Self::new(Exit::Unavailable, why)
            }
            ExamineError::LostWrite => Self::new(Exit::Refused, error.to_string()),
            ExamineError::BrokenOff(_) => Self::new(Exit::Unavailable, error.to_string()),
        }
    }
}

fn show(report: &ExamineReport, ttl: Duration) -> String {
    let head = [("check", Side::Left), ("result", Side::Left), ("note", Side::Left)];
    let cells = |check: &Check| {
        let name = check.check.replace('_', " ");
        vec![name, check.result.to_owned(), check.note.clone()]
    };
    let mut text = table(&head, report.checks.iter().map(cells).collect());
    text.push_str(&format!(
        "\n\nwrites take {:.1} ms, the slowest of {TIMED_WRITES} {:.1} ms\n",
        report.write_p50_ms, report.write_p99_ms
    ));
    if let Some(connection) = &report.connection {
        text.push_str(&format!("connection: {connection}\n"));
    }
    for warning in &report.warnings {
        text.push_str(&format!("WARNING: {warning}\n"));
    }
    text.push_str(&report.verdict(ttl));
    text
}
