//! `regent record`: what the flight recorder of a replica has kept, oldest first.
//!
//! It reads the files beside the replica's data and asks nobody: a cluster that is down can still be
//! asked what happened.

use std::path::PathBuf;

use clap::Args;
use regent_election::Group;
use regent_recording::Recording;

use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Output, Screen, remark};

/// Lines written at once.
const PAGE_LINES: usize = 1_000;

/// Flags of `regent record`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent record /var/lib/regent > trace.jsonl
  regent record ./data --group billing
  regent lab replay trace.jsonl

Every replica records what it applies: who stood, resigned, fell silent or was stepped down, and
who led from when on and why. No session's secret is in it. One JSON object per line; the fields
are in docs/formats.md. The same can be acted again in the simulator with `regent lab replay`.")]
pub(crate) struct RecordArgs {
    /// The data directory of a replica, or its recording
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Only what concerns this group and those who stood in it; may be given again
    #[arg(long, value_name = "GROUP")]
    group: Vec<Group>,
}

/// Prints the lines.
pub(crate) fn run(args: &RecordArgs) -> CommandResult {
    let recording = Recording::in_directory(&args.directory)?;
    let screen = Screen { output: Output::Json };
    let mut page = Vec::new();
    let damaged = recording.select(&args.group, |text| {
        page.push(text.to_owned());
        if page.len() == PAGE_LINES {
            screen.line(&page.join("\n"))?;
            page.clear();
        }
        Ok::<_, Failure>(())
    })?;
    if !page.is_empty() {
        screen.line(&page.join("\n"))?;
    }
    if damaged > 0 {
        remark(&format!("{damaged} lines are no lines of a recording and are left out"));
        return Ok(Exit::Files);
    }
    Ok(Exit::Done)
}
