//! A recorded course, acted again: what a flight recorder wrote down of a real cluster, as a simulation.
//!
//! - [`Trace`]: the lines of a recording (`regent_recording`), checked, in the order of the store's revisions.
//! - `script`: what has to be done, and when, so that the same comes about: a pure function of the trace.
//! - `act`: does it, in a world with the real replica, the real rules and the real library's driver.
//! - `course`: holds what came about against what was recorded.
//!
//! The intuition: a recording names deeds (who stood, resigned, fell silent, was stepped down) and changes
//! (who leads, and why). Deeds of people are repeated; everything else must follow from them by the rules, as
//! it did then. Where it does not, either the recording lacks something or the code decides otherwise
//! today, and both are worth knowing.
//!
//! Road not taken: feeding the recorded entries to the state machine. It would always agree, and would
//! show nothing: expiry, promotion and acceptance would not be acted but dictated.

mod act;
mod course;
mod script;
mod told;

use std::collections::BTreeSet;
use std::fmt;

use regent_election::{Group, Revision, SessionNo};
use regent_recording::{LineContent, RecordedLine};

pub use act::{Reenactment, reenact};
pub use course::{Course, Row, Step as Change};

/// Most lines of a trace: a hundred thousand elections are more than anybody reads.
pub const LINES_MAX: usize = 100_000;
/// Most sessions of a trace: each is a simulated process that shows itself three times in a ttl.
pub const SESSIONS_MAX: usize = 500;
/// Most groups of a trace.
pub const GROUPS_MAX: usize = 500;
/// Most replicas of the store that is simulated.
pub const REPLICAS_MAX: usize = 9;

/// Why a recording cannot be acted again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    pub number: usize,
    /// What is wrong with it, and what to do.
    pub what: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.number, self.what)
    }
}

impl std::error::Error for TraceError {}

/// A recording that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    lines: Vec<RecordedLine>,
    /// By how much wall clocks went back at most: whoever proposes next has another clock.
    back_ms_max: u64,
}

impl Trace {
    /// Checks the lines of a recording. Times may go back, because they are notes of several clocks; they
    /// are taken as if they had not. Revisions may not.
    ///
    /// # Errors
    /// If it is too large to be acted, or in no order.
    pub fn new(mut lines: Vec<RecordedLine>) -> Result<Self, TraceError> {
        let mut limits = Limits::default();
        let (mut last, mut now_ms, mut back_ms_max) = (Revision(0), 0, 0);
        for line in &mut lines {
            limits.count(line)?;
            if let Some(revision) = line.told.revision() {
                if revision < last {
                    let what = format!(
                        "revision {revision} comes after {last}; a recording is in the order of \
                         revisions: give one replica's files, oldest first"
                    );
                    return Err(TraceError { number: line.number, what });
                }
                last = revision;
            }
            back_ms_max = back_ms_max.max(u64::saturating_sub(now_ms, line.at_ms));
            line.at_ms = line.at_ms.max(now_ms);
            now_ms = line.at_ms;
        }
        Ok(Self { lines, back_ms_max })
    }

    /// Its lines, with times that never go back.
    #[must_use]
    pub fn lines(&self) -> &[RecordedLine] {
        &self.lines
    }

    /// How long it lasts.
    #[must_use]
    pub fn lasts_ms(&self) -> u64 {
        let first = self.lines.first().map_or(0, |line| line.at_ms);
        self.lines.last().map_or(0, |line| line.at_ms - first)
    }

    /// By how much its clocks went back at most.
    #[must_use]
    pub const fn back_ms_max(&self) -> u64 {
        self.back_ms_max
    }

    /// The groups whose leader changed.
    #[must_use]
    pub fn groups(&self) -> BTreeSet<&Group> {
        self.lines.iter().filter_map(|line| line.told.group()).collect()
    }

    /// The most replicas that ever voted; one if nobody says.
    #[must_use]
    pub fn replicas(&self) -> usize {
        let voters = self.lines.iter().map(|line| match &line.told {
            LineContent::LogLeader { voters, .. } => *voters,
            LineContent::Begin { .. }
            | LineContent::Deed { .. }
            | LineContent::Change { .. }
            | LineContent::Gap { .. }
            | LineContent::End => 1,
        });
        voters.max().unwrap_or(1).clamp(1, REPLICAS_MAX)
    }
}

/// What a trace has in it so far.
#[derive(Debug, Default)]
struct Limits {
    lines: usize,
    sessions: BTreeSet<SessionNo>,
    groups: BTreeSet<Group>,
}

impl Limits {
    fn count(&mut self, line: &RecordedLine) -> Result<(), TraceError> {
        self.lines += 1;
        if let LineContent::Deed { party: Some(party), .. } = &line.told {
            self.sessions.insert(party.session);
        }
        if let Some(group) = line.told.group()
            && !self.groups.contains(group)
        {
            self.groups.insert(group.clone());
        }
        for (what, count, max) in [
            ("lines", self.lines, LINES_MAX),
            ("sessions", self.sessions.len(), SESSIONS_MAX),
            ("groups", self.groups.len(), GROUPS_MAX),
        ] {
            if count > max {
                let what = format!(
                    "more than {max} {what} are too many to act; take fewer groups, or a shorter time, from the recording"
                );
                return Err(TraceError { number: line.number, what });
            }
        }
        Ok(())
    }
}
