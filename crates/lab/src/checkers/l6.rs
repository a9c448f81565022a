//! L6: nobody starves. While every leader gives its office up in turn, one who stands in line and can be
//! heard wins within as many hand-overs as there are waiting, and one more.

use std::collections::BTreeMap;

use regent_election::{Group, SessionNo};
use regent_replica::ReplicatedState;

use super::{Case, CheckResult, Violation};
use crate::chronicle::{AppliedEntry, Step, replay};
use crate::history::Stage;

/// One who waits.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// Grants to others since it joined the line.
    passed: usize,
    /// The longest line it stood in.
    line: usize,
}

#[derive(Default)]
struct Lines(BTreeMap<Group, BTreeMap<SessionNo, Wait>>);

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    let (Some((from, _)), Some((to, _))) = (case.stage(Stage::Rotation), case.stage(Stage::Healed))
    else {
        return Ok(());
    };
    let mut lines = Lines::default();
    let mut verdict = Ok(());
    replay(case.history, |replicated, step| {
        if let Step::Applied(record) = step
            && from < record.at
            && record.at < to
            && verdict.is_ok()
        {
            verdict = lines.follow(replicated, &record);
        }
    })?;
    verdict
}

impl Lines {
    fn follow(&mut self, replicated: &ReplicatedState, record: &AppliedEntry) -> CheckResult {
        let mut touched: Vec<Group> =
            record.applied.events.iter().map(|change| change.group.clone()).collect();
        touched.extend(record.command.group().cloned());
        touched.sort_unstable();
        touched.dedup();
        for group in touched {
            let granted = record
                .applied
                .events
                .iter()
                .filter(|change| change.group == group && change.leader.is_some())
                .count();
            let standing: Vec<SessionNo> = replicated.state.standbys(&group).collect();
            let line = self.0.entry(group.clone()).or_default();
            line.retain(|session, _| standing.contains(session));
            for session in &standing {
                let wait = line.entry(*session).or_insert(Wait { passed: 0, line: 0 });
                wait.line = wait.line.max(standing.len());
                // One who could not be heard was passed over with reason.
                let is_silent = record.silent.contains(session);
                wait.passed = if is_silent { 0 } else { wait.passed + granted };
                if wait.passed > wait.line + 1 {
                    let how = format!(
                        "{session} stood in a line of {} for {group} through {} hand-overs",
                        wait.line, wait.passed
                    );
                    return Err(Violation::new("L6", record.at, how));
                }
            }
        }
        Ok(())
    }
}
