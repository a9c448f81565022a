//! L4: a change reaches every healthy watcher within a second, or it is told of a gap.
//!
//! Healthy: connected to a host of the core from a second before the change to a second after.

use std::collections::BTreeMap;

use regent_election::store::Scope;
use regent_election::{Event as Change, Group, Revision};

use crate::checkers::{Case, CheckResult, Violation};
use crate::history::{Stage, Watched, What};

const WITHIN_NS: u64 = 1_000_000_000;

struct Course<'a> {
    scope: &'a Scope,
    host: u64,
    from: u64,
    to: u64,
    /// What was delivered, and when.
    told: BTreeMap<(&'a Group, Revision, u32), u64>,
    gaps: Vec<u64>,
}

pub(in crate::checkers) fn check(case: &Case<'_>) -> CheckResult {
    let (Some((_, core)), Some((from, _)), Some((to, _))) =
        (case.stage(Stage::Core), case.stage(Stage::Steady), case.stage(Stage::Healed))
    else {
        return Ok(());
    };
    let courses = courses(case);
    for (group, writes) in &case.chronicle.ledger.groups {
        for write in writes.iter().filter(|it| from <= it.at && it.at + WITHIN_NS <= to) {
            let by = write.at + WITHIN_NS;
            for course in courses.values() {
                let is_there = course.from + WITHIN_NS < write.at && by < course.to;
                if !is_there || !core.contains(&course.host) || !course.scope.covers(group) {
                    continue;
                }
                if course.gaps.iter().any(|gap| (write.at..=by).contains(gap)) {
                    continue;
                }
                if let Some(change) = write.changes.iter().find(|it| !course.has_told(it, by)) {
                    let how = format!(
                        "a watcher at host {} did not hear of revision {} of {group} within a second",
                        course.host, change.revision
                    );
                    return Err(Violation::new("L4", by, how));
                }
            }
        }
    }
    Ok(())
}

impl Course<'_> {
    fn has_told(&self, change: &Change, by: u64) -> bool {
        let told = self.told.get(&(&change.group, change.revision, change.ordinal));
        told.is_some_and(|at| *at <= by)
    }
}

fn courses<'a>(case: &Case<'a>) -> BTreeMap<u64, Course<'a>> {
    let mut courses = BTreeMap::new();
    for event in &case.history.events {
        let What::Watch { watch, what } = &event.what else { continue };
        if let Watched::Open { replica, scope, .. } = what {
            let (from, host, to) = (event.at, *replica, u64::MAX);
            let (told, gaps) = (BTreeMap::new(), Vec::new());
            courses.insert(*watch, Course { scope, host, from, to, told, gaps });
            continue;
        }
        let Some(course) = courses.get_mut(watch) else { continue };
        match what {
            Watched::Changed(change) => {
                let place = (&change.group, change.revision, change.ordinal);
                course.told.insert(place, event.at);
            }
            Watched::Gap { .. } => course.gaps.push(event.at),
            Watched::End => course.to = event.at,
            Watched::Open { .. } | Watched::Mark(_) => {}
        }
    }
    courses
}
