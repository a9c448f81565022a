//! `regent record`: what the flight recorder of a replica has kept, oldest first.
//!
//! It reads the files beside the replica's data and asks nobody: a cluster that is down can still be
//! asked what happened.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use regent_election::Group;

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::flight::{DIRECTORY, Row, each_line, of_directory};
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
pub(crate) fn run(args: &RecordArgs) -> Outcome {
    let files = files(&args.directory)?;
    let wanted = Wanted::of(&files, &args.group)?;
    let screen = Screen { output: Output::Json };
    let mut page = Vec::new();
    let mut damaged = 0;
    each_of(&files, |text| {
        match Row::parse(text) {
            Ok(row) if wanted.covers(&row) => page.push(text.to_owned()),
            Ok(_) => {}
            Err(_) => damaged += 1,
        }
        if page.len() == PAGE_LINES {
            screen.line(&page.join("\n"))?;
            page.clear();
        }
        Ok(())
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

/// The files of a recording: in a data directory, or in the recording's own.
pub(crate) fn files(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let below = directory.join(DIRECTORY);
    let directory = if below.is_dir() { below } else { directory.to_owned() };
    let files = of_directory(&directory).map_err(|error| Failure::file(&directory, &error))?;
    if files.is_empty() {
        let why = format!(
            "{} holds no recording; name the data directory of a replica whose flight_bytes is not 0",
            directory.display()
        );
        return Err(Failure::new(Exit::Files, why));
    }
    Ok(files)
}

fn each_of(
    files: &[PathBuf],
    mut take: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    files.iter().try_for_each(|path| each_line(path, |_, text| take(text)))
}

/// What is to be printed.
enum Wanted {
    All,
    /// What concerns these groups, or these sessions by no group in particular.
    Some {
        groups: BTreeSet<String>,
        sessions: BTreeSet<u64>,
    },
}

impl Wanted {
    fn of(files: &[PathBuf], groups: &[Group]) -> Result<Self, Failure> {
        if groups.is_empty() {
            return Ok(Self::All);
        }
        let groups: BTreeSet<String> = groups.iter().map(ToString::to_string).collect();
        let mut sessions = BTreeSet::new();
        each_of(files, |text| {
            if let Ok(row) = Row::parse(text)
                && row.group().is_some_and(|group| groups.contains(group))
            {
                sessions.extend(row.session());
            }
            Ok(())
        })?;
        Ok(Self::Some { groups, sessions })
    }

    fn covers(&self, row: &Row) -> bool {
        match self {
            Self::All => true,
            Self::Some { groups, sessions } => match (row.group(), row.session()) {
                (Some(group), _) => groups.contains(group),
                (None, Some(session)) => sessions.contains(&session),
                (None, None) => true,
            },
        }
    }
}
