//! `regent lab replay FILE`: a recording acted again, and what came about beside what was recorded.

use std::path::Path;
use std::time::Duration;

use regent_lab::TrialVerdict;
use regent_lab::trace::{LINES_MAX, Reenactment, Trace, TraceError, reenact};
use regent_recording::{Recording, lines};

use super::replay::tell_history;
use super::{alone, laid_out};
use crate::duration::show;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Output, Screen};

/// Acts a recording again and tells what came of it.
pub(super) fn run(path: &Path, seed: u64, is_whole: bool) -> CommandResult {
    let trace = read(path)?;
    let about = format!(
        "{}: {} lines, {} groups, {} replicas, {}; seed {seed}",
        path.display(),
        trace.lines().len(),
        trace.groups().len(),
        trace.replicas(),
        show(Duration::from_millis(trace.lasts_ms())),
    );
    let acted = alone(move || reenact(&trace, seed))?;
    let screen = Screen::chosen();
    match screen.output {
        Output::Json => tell_programs(&acted, screen)?,
        Output::Text => tell_people(&acted, &about, is_whole, screen)?,
    }
    Ok(match (&acted.trial.verdict, acted.course.is_same()) {
        (TrialVerdict::Failed(_), _) => Exit::No,
        (TrialVerdict::Passed | TrialVerdict::Void(_), true) => Exit::Done,
        (TrialVerdict::Passed | TrialVerdict::Void(_), false) => Exit::Differs,
    })
}

fn tell_people(
    acted: &Reenactment,
    about: &str,
    is_whole: bool,
    screen: Screen,
) -> Result<(), Failure> {
    screen.line(about)?;
    if is_whole {
        tell_history(&acted.trial, screen)?;
    } else if !acted.trial.violations().is_empty() {
        screen.line(&acted.trial.story())?;
    }
    screen.line(&laid_out(acted.blocks()))
}

/// The history as always, then one object for every change, then one for the whole.
fn tell_programs(acted: &Reenactment, screen: Screen) -> Result<(), Failure> {
    screen.line(&acted.trial.history.to_json_lines())?;
    acted.objects().iter().try_for_each(|told| screen.line(&told.to_string()))
}

/// Reads a recording: one file, or the directory that a replica records into.
fn read(path: &Path) -> Result<Trace, Failure> {
    let recording = Recording::open(path)?;
    let lines = lines(&recording, LINES_MAX)?;
    if lines.is_empty() {
        return Err(Failure::new(
            Exit::Files,
            format!("{}: there is nothing in it", path.display()),
        ));
    }
    let at = match recording.files() {
        [one] => one.as_path(),
        _ => path,
    };
    Trace::new(lines).map_err(|TraceError { number, what }| {
        Failure::new(Exit::Files, format!("{}:{number}: {what}", at.display()))
    })
}
