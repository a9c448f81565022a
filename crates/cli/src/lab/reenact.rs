//! `regent lab replay FILE`: a recording acted again, and what came about beside what was recorded.

use std::path::Path;
use std::time::Duration;

use regent_lab::Verdict;
use regent_lab::trace::{Change, LINES_MAX, Line, Reenactment, Row, Trace, reenact};
use serde_json::{Value, json};

use super::alone;
use super::replay::{tell_history, verdict};
use crate::duration::show;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::flight;
use crate::output::{Output, Screen, Side, table};
use crate::record;

/// Acts a recording again and tells what came of it.
pub(super) fn run(path: &Path, seed: u64, is_whole: bool, output: Output) -> Outcome {
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
    let screen = Screen { output };
    match output {
        Output::Json => tell_programs(&acted, screen)?,
        Output::Text => tell_people(&acted, &about, is_whole, screen)?,
    }
    Ok(match (&acted.trial.verdict, acted.course.is_same()) {
        (Verdict::Failed(_), _) => Exit::No,
        (Verdict::Passed | Verdict::Void(_), true) => Exit::Done,
        (Verdict::Passed | Verdict::Void(_), false) => Exit::Differs,
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
    let head = [
        ("line", Side::Right),
        ("", Side::Left),
        ("recorded", Side::Left),
        ("at", Side::Right),
        ("acted", Side::Left),
    ];
    screen.line(&table(&head, acted.course.rows.iter().map(cells).collect()))?;
    if acted.shortened_ms > 0 {
        let ms = Duration::from_millis(acted.shortened_ms);
        screen.line(&format!("{} in which nobody did anything were left out", show(ms)))?;
    }
    for remark in &acted.remarks {
        screen.line(remark)?;
    }
    let count = acted.course.rows.iter().filter(|row| !row.is_same).count();
    let course = match (acted.course.rows.len(), count) {
        (0, _) => "nobody ever led".to_owned(),
        (all, 0) => format!("all {all} changes came about as they were recorded"),
        (all, count) => format!("{count} of {all} changes differ"),
    };
    screen.line(&format!("{course}\n{}", verdict(&acted.trial.verdict)))
}

fn cells(row: &Row) -> Vec<String> {
    let change = |change: &Change| match &change.leader {
        Some(leader) => {
            format!("{}: {leader} leads, term {} ({})", change.group, change.term, change.cause)
        }
        None => {
            format!("{}: nobody leads, last term {} ({})", change.group, change.term, change.cause)
        }
    };
    let dash = || "-".to_owned();
    vec![
        row.recorded.as_ref().map_or_else(dash, |(line, _)| line.to_string()),
        if row.is_same { "" } else { "!" }.to_owned(),
        row.recorded.as_ref().map_or_else(dash, |(_, step)| change(step)),
        row.acted.as_ref().map_or_else(dash, |(at, _)| {
            format!("{}.{:03}s", at / 1_000_000_000, at / 1_000_000 % 1_000)
        }),
        row.acted.as_ref().map_or_else(dash, |(_, step)| change(step)),
    ]
}

/// The history as always, then one object for every change, then one for the whole.
fn tell_programs(acted: &Reenactment, screen: Screen) -> Result<(), Failure> {
    screen.line(&acted.trial.history.to_json_lines())?;
    let step = |step: &Change| {
        json!({
            "group": step.group.to_string(), "leader": step.leader.as_ref().map(ToString::to_string),
            "term": step.term.get(), "cause": step.cause.word(),
        })
    };
    for row in &acted.course.rows {
        let told = json!({
            "ev": "compared", "same": row.is_same,
            "line": row.recorded.as_ref().map(|(line, _)| line),
            "recorded": row.recorded.as_ref().map(|(_, it)| step(it)),
            "t": row.acted.as_ref().map(|(at, _)| at),
            "acted": row.acted.as_ref().map(|(_, it)| step(it)),
        });
        screen.line(&told.to_string())?;
    }
    let broken: Vec<Value> =
        acted.trial.violations().iter().map(|violation| violation.to_string().into()).collect();
    let told = json!({
        "ev": "reenacted", "same": acted.course.is_same(), "broken": broken,
        "remarks": acted.remarks, "shortened_ms": acted.shortened_ms,
    });
    screen.line(&told.to_string())
}

/// Reads a recording: one file, or the directory that a replica records into.
fn read(path: &Path) -> Result<Trace, Failure> {
    let files = if path.is_dir() { record::files(path)? } else { vec![path.to_owned()] };
    let mut lines = Vec::new();
    for file in &files {
        read_file(file, &mut lines)?;
    }
    if lines.is_empty() {
        return Err(Failure::new(
            Exit::Files,
            format!("{}: there is nothing in it", path.display()),
        ));
    }
    let at = match files.as_slice() {
        [one] => one.clone(),
        _ => path.to_owned(),
    };
    Trace::new(lines).map_err(|error| wrong(&at, error.number, &error.what))
}

fn read_file(path: &Path, lines: &mut Vec<Line>) -> Result<(), Failure> {
    flight::each_line(path, |number, text| {
        if text.is_empty() {
            return Ok(());
        }
        if lines.len() == LINES_MAX {
            let what = format!(
                "more than {LINES_MAX} lines are too many to act; take fewer groups \
                 (regent record DIR --group GROUP), or a shorter time, from the recording"
            );
            return Err(wrong(path, number, &what));
        }
        let line = flight::Row::parse(text).and_then(|row| row.line(number));
        lines.push(line.map_err(|what| wrong(path, number, &what))?);
        Ok(())
    })
}

fn wrong(path: &Path, number: usize, what: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Files, format!("{}:{number}: {what}", path.display()))
}
