//! L4: a committed change reaches every healthy watcher within a second.
//!
//! Healthy: connected to a replica of the core from a second before the change to a second after,
//! while the Raft leader is of the core, too. One outside of it may lead with the votes of a majority
//! and still not reach everybody in the core.

use std::collections::BTreeMap;

use regent_election::store::Scope;
use regent_election::{Cursor, Incarnation, Revision};

use super::{Case, CheckResult, Violation};
use crate::history::{Proc, Stage, Watched, What};

const WITHIN_NS: u64 = 1_000_000_000;

struct Course<'a> {
    scope: &'a Scope,
    replica: u64,
    from: u64,
    to: u64,
    /// Up to where it had delivered, by true time.
    reached: Vec<(u64, Cursor)>,
}

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    let (Some((_, core)), Some((from, _)), Some((to, _))) =
        (case.stage(Stage::Core), case.stage(Stage::Steady), case.stage(Stage::Healed))
    else {
        return Ok(());
    };
    let courses = courses(case);
    let healthy = |course: &&Course<'_>| core.contains(&course.replica);
    for (record, change) in case.chronicle.changes() {
        if record.at < from || record.at + WITHIN_NS > to {
            continue;
        }
        if leader_at(case, record.at).is_none_or(|leader| !core.contains(&leader)) {
            continue;
        }
        let place = Cursor::after(Incarnation(1), Revision(change.revision.0.saturating_sub(1)));
        for course in courses.values().filter(healthy) {
            let is_there = course.from + WITHIN_NS < record.at && record.at + WITHIN_NS < course.to;
            let by = record.at + WITHIN_NS;
            let is_told = course.reached.iter().any(|(at, cursor)| *at <= by && *cursor > place);
            if is_there && course.scope.covers(&change.group) && !is_told {
                let how = format!(
                    "a watcher at replica {} did not hear of revision {} within a second",
                    course.replica, change.revision
                );
                return Err(Violation::new("L4", by, how));
            }
        }
    }
    Ok(())
}

/// Who led the log at an instant.
fn leader_at(case: &Case<'_>, at: u64) -> Option<u64> {
    let before = case.history.events.iter().take_while(|event| event.at <= at);
    let elected = before.filter(|event| matches!(event.what, What::RaftLeader { .. }));
    match elected.last()?.proc {
        Proc::Replica { id, .. } => Some(id),
        Proc::World | Proc::Client { .. } => None,
    }
}

fn courses<'a>(case: &Case<'a>) -> BTreeMap<u64, Course<'a>> {
    let mut courses = BTreeMap::new();
    for event in &case.history.events {
        let What::Watch { watch, what } = &event.what else { continue };
        if let Watched::Open { replica, scope, .. } = what {
            let (from, replica) = (event.at, *replica);
            let course = Course { scope, replica, from, to: u64::MAX, reached: Vec::new() };
            courses.insert(*watch, course);
            continue;
        }
        let Some(course) = courses.get_mut(watch) else { continue };
        match what {
            Watched::Changed(change) => {
                let (revision, ordinal) = (change.revision, change.ordinal);
                let cursor = Cursor { incarnation: Incarnation(1), revision, ordinal };
                course.reached.push((event.at, cursor));
            }
            Watched::Gap { at: cursor, .. } | Watched::Mark(cursor) => {
                course.reached.push((event.at, *cursor));
            }
            Watched::End => course.to = event.at,
            Watched::Open { .. } => {}
        }
    }
    courses
}
