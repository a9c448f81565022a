//! S5: a watch of one group delivers every change after its cursor, in order, exactly once, or an explicit
//! gap. A watch of several has no order between groups and resumes with a gap; within each group, between
//! two gaps, it misses nothing either.

use std::collections::BTreeMap;

use regent_election::store::Scope;
use regent_election::{Cursor, Event as Change, Group};

use crate::checkers::{Case, CheckResult, Violation};
use crate::history::{Watched, What};

/// The changes of every group, with the true time of each.
type Reference<'a> = BTreeMap<&'a Group, Vec<(u64, &'a Change)>>;

/// One watch as it goes.
struct Course {
    /// The group, if it is one.
    one: Option<Group>,
    /// How many changes of each group are behind it; none where it does not know where it began.
    next: BTreeMap<Group, usize>,
    cursor: Option<Cursor>,
}

pub(in crate::checkers) fn check(case: &Case<'_>) -> CheckResult {
    let reference: Reference<'_> = case
        .chronicle
        .ledger
        .groups
        .iter()
        .map(|(group, writes)| {
            let changes = writes.iter();
            let told = changes.flat_map(|write| write.changes.iter().map(|it| (write.at, it)));
            (group, told.collect())
        })
        .collect();
    let mut courses: BTreeMap<u64, Course> = BTreeMap::new();
    for event in &case.history.events {
        let What::Watch { watch, what } = &event.what else { continue };
        let broken = |how: String| Violation::new("S5", event.at, format!("watch {watch} {how}"));
        if let Watched::Open { scope, cursor, .. } = what {
            courses.insert(*watch, Course::open(&reference, scope, *cursor));
            continue;
        }
        let Some(course) = courses.get_mut(watch) else { continue };
        match what {
            Watched::Changed(change) => {
                course.changed(&reference, event.at, change).map_err(broken)?;
            }
            Watched::Gap { oldest, at } => {
                course.gap(&reference, *oldest, *at).map_err(broken)?;
            }
            Watched::Mark(cursor) => course.mark(&reference, *cursor).map_err(broken)?,
            Watched::Open { .. } | Watched::End => {}
        }
    }
    Ok(())
}

/// How many changes of a group lie at or before a place.
fn after(reference: &Reference<'_>, group: &Group, cursor: Cursor) -> usize {
    let changes = reference.get(group).map(Vec::as_slice).unwrap_or_default();
    changes.partition_point(|(_, change)| {
        (change.revision, change.ordinal) <= (cursor.revision, cursor.ordinal)
    })
}

impl Course {
    fn open(reference: &Reference<'_>, scope: &Scope, cursor: Option<Cursor>) -> Self {
        let one = match scope {
            Scope::Group(group) | Scope::Turn(group) => Some(group.clone()),
            Scope::Groups(_) | Scope::Prefix(_) => None,
        };
        let mut next = BTreeMap::new();
        if let (Some(group), Some(cursor)) = (&one, cursor) {
            next.insert(group.clone(), after(reference, group, cursor));
        }
        Self { one, next, cursor }
    }

    fn changed(
        &mut self,
        reference: &Reference<'_>,
        at: u64,
        change: &Change,
    ) -> Result<(), String> {
        let known = reference.get(&change.group).map(Vec::as_slice).unwrap_or_default();
        let Some(found) = known.iter().position(|(_, it)| *it == change) else {
            return Err(format!("delivered what never happened: {change:?}"));
        };
        if known[found].0 > at {
            return Err(format!("delivered {} before it was written", change.revision));
        }
        match self.next.insert(change.group.clone(), found + 1) {
            Some(next) if next != found => {
                let verb = if found < next { "repeated" } else { "skipped to" };
                Err(format!("{verb} revision {} of {}", change.revision, change.group))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn gap(&mut self, reference: &Reference<'_>, oldest: Cursor, at: Cursor) -> Result<(), String> {
        self.next.clear();
        if let Some(group) = &self.one {
            let is_known = self
                .cursor
                .is_some_and(|cursor| cursor.incarnation == oldest.incarnation && cursor >= oldest);
            if is_known {
                return Err(format!("has a gap although everything after {oldest} is known"));
            }
            self.next.insert(group.clone(), after(reference, group, at));
        }
        self.cursor = Some(at);
        Ok(())
    }

    /// What a watch of one group says to have told, it has.
    fn mark(&mut self, reference: &Reference<'_>, cursor: Cursor) -> Result<(), String> {
        let Some(group) = self.one.clone() else { return Ok(()) };
        let behind = after(reference, &group, cursor);
        let next = *self.next.entry(group.clone()).or_insert(behind);
        self.cursor = Some(cursor);
        if behind > next {
            return Err(format!(
                "claims to have told all of {group} up to {cursor} and has told {next} of {behind}"
            ));
        }
        Ok(())
    }
}
