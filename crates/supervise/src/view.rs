//! What a supervisor lets others see of itself: one view, shown as a line, a file, a status page and
//! to the service manager.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regent::fresh;
use regent_election::{Group, Moment, Node, Term};
use serde::Serialize;

use crate::machine::Shown;
use crate::plan::{millis, show};
use crate::supervisor::SuperviseError;

/// What is known.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) group: Group,
    pub(crate) node: Node,
    pub(crate) shown: Shown,
    /// Who leads, as far as it was seen.
    pub(crate) leader: Option<Node>,
    pub(crate) term: Term,
    /// Until when this process leads unless it is renewed; none if it does not.
    pub(crate) valid_until: Option<Moment>,
    /// The program, under its number in its own pid namespace.
    pub(crate) pid: Option<u32>,
    pub(crate) means: String,
}

/// The view, for whoever looks at any time.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Mutex<View>>);

impl Shared {
    pub(crate) fn new(view: View) -> Self {
        Self(Arc::new(Mutex::new(view)))
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut View)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn get(&self) -> View {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The view as an object for programs.
#[derive(Debug, Serialize)]
struct Object {
    group: String,
    node: String,
    phase: &'static str,
    /// Whether this process leads at this moment.
    leading: bool,
    leader: Option<String>,
    term: u64,
    remaining_ms: u64,
    program_pid: Option<u32>,
    program_exit_code: Option<u8>,
    contained_by: String,
}

impl View {
    /// How long this process leads from `now` on if nothing is renewed.
    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        self.valid_until.map_or(Duration::ZERO, |until| now.until(until))
    }

    fn object(&self, now: Moment) -> Object {
        let remaining = self.remaining(now);
        let leads = !remaining.is_zero();
        let leader = if leads { Some(&self.node) } else { self.leader.as_ref() };
        Object {
            group: self.group.to_string(),
            node: self.node.to_string(),
            phase: word(self.shown),
            leading: leads,
            leader: leader.map(ToString::to_string),
            term: self.term.get(),
            remaining_ms: millis(remaining),
            program_pid: self.pid,
            program_exit_code: match self.shown {
                Shown::Ended(status) => Some(status.exit_code()),
                Shown::Standby
                | Shown::Fencing
                | Shown::Leading
                | Shown::Jeopardy
                | Shown::Stopping
                | Shown::Lost
                | Shown::Leaving => None,
            },
            contained_by: self.means.clone(),
        }
    }

    /// The same as a line of JSON.
    pub(crate) fn json(&self, now: Moment) -> String {
        serde_json::to_string(&self.object(now)).expect("a view is made of text and numbers")
    }

    /// One line for a person; `why` is why a stop was demanded.
    pub(crate) fn line(&self, now: Moment, why: &str) -> String {
        let Self { group, node, term, .. } = self;
        let valid = format!("term {term}, valid for {}", show(self.remaining(now)));
        match self.shown {
            Shown::Standby => format!("{group}: {node} stands by"),
            Shown::Fencing => format!("{group}: {node} leads, {valid}; fencing whoever led before"),
            Shown::Leading => format!("{group}: {node} leads, {valid}; the program runs"),
            Shown::Jeopardy => format!("{group}: {node} leads in jeopardy, {valid}; renewals fail"),
            Shown::Stopping => format!("{group}: the program is told to stop, {valid} ({why})"),
            Shown::Lost => format!("{group}: {node} has lost term {term} ({why}); all is killed"),
            Shown::Ended(status) => format!("{group}: the program {status}, {valid}"),
            Shown::Leaving => format!("{group}: {node} leaves"),
        }
    }
}

const fn word(shown: Shown) -> &'static str {
    match shown {
        Shown::Standby => "standby",
        Shown::Fencing => "fencing",
        Shown::Leading => "leading",
        Shown::Jeopardy => "jeopardy",
        Shown::Stopping => "stopping",
        Shown::Lost => "lost",
        Shown::Ended(_) => "ended",
        Shown::Leaving => "leaving",
    }
}

/// The file of `REGENT_FILE`: replaced whole, never seen half written. Dropped, it is removed.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    /// A directory made for it alone.
    directory: Option<PathBuf>,
}

impl StateFile {
    /// At the given place, or in a directory of its own that nobody else can write to.
    pub(crate) fn new(given: Option<PathBuf>) -> Result<Self, SuperviseError> {
        if let Some(path) = given {
            return Ok(Self { path, directory: None });
        }
        let base = std::env::var_os("XDG_RUNTIME_DIR")
            .map(PathBuf::from)
            .filter(|base| base.is_dir())
            .unwrap_or_else(std::env::temp_dir);
        let directory = base.join(format!("regent-run-{:016x}", fresh::number()?));
        fs::DirBuilder::new()
            .mode(0o755)
            .create(&directory)
            .map_err(|error| SuperviseError::File { path: directory.clone(), error })?;
        Ok(Self { path: directory.join("state.json"), directory: Some(directory) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn write(&self, text: &str) -> io::Result<()> {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let beside = self.path.with_file_name(name);
        let written = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .open(&beside)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&beside, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regent_tether::Status;

    fn view() -> View {
        View {
            group: "billing".parse().unwrap(),
            node: "a".parse().unwrap(),
            shown: Shown::Leading,
            leader: Some("b".parse().unwrap()),
            term: Term::new(7).unwrap(),
            valid_until: Some(Moment::from_millis(10_000)),
            pid: Some(2),
            means: "a pid namespace".into(),
        }
    }

    #[test]
    fn a_lease_that_is_over_is_never_shown_as_leadership() {
        let before = serde_json::to_value(view().object(Moment::from_millis(9_000))).unwrap();
        assert_eq!(before["leading"], true);
        assert_eq!((&before["leader"], &before["remaining_ms"]), (&"a".into(), &1000.into()));
        let after = serde_json::to_value(view().object(Moment::from_millis(10_000))).unwrap();
        assert_eq!(after["leading"], false);
        assert_eq!((&after["leader"], &after["remaining_ms"]), (&"b".into(), &0.into()));
    }

    #[test]
    fn the_end_of_the_program_is_shown_with_its_code() {
        let ended = View { shown: Shown::Ended(Status::Signal(15)), ..view() };
        let object = serde_json::to_value(ended.object(Moment::ZERO)).unwrap();
        assert_eq!(object["program_exit_code"], 143);
        assert!(ended.line(Moment::ZERO, "").contains("was ended by signal 15"));
    }

    #[test]
    fn the_file_is_replaced_whole_and_removed_with_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        let file = StateFile::new(Some(path.clone())).unwrap();
        file.write("one").unwrap();
        let reader = fs::File::open(&path).unwrap();
        file.write("two").unwrap();
        assert_eq!(io::read_to_string(reader).unwrap(), "one", "whoever reads it reads one whole");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        drop(file);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let own = StateFile::new(None).unwrap();
        own.write("x").unwrap();
        let place = own.path().parent().unwrap().to_owned();
        drop(own);
        assert!(!place.exists());
    }
}
