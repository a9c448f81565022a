//! S5: after cursor c, a watch delivers every change, in order, exactly once, or an explicit gap.
//!
//! The reference is the list of committed changes. A change that was served from a group's own memory
//! has lost its ordinal and the metadata of leaders long gone, so changes are compared by revision,
//! group, term, leader and cause; a group changes at most once in an entry.

use std::collections::BTreeMap;

use regent_election::store::Scope;
use regent_election::{Cursor, Event as Change, Incarnation};

use super::{Case, CheckResult, Violation};
use crate::history::{Watched, What};

/// One watch as it goes.
struct Course<'a> {
    /// The committed changes it covers, with the true time of each.
    reference: Vec<(u64, &'a Change)>,
    /// How many of them are behind it; none while it does not know where it began.
    next: Option<usize>,
    /// The place up to which it says to have delivered everything.
    cursor: Option<Cursor>,
}

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    let mut courses: BTreeMap<u64, Course<'_>> = BTreeMap::new();
    for event in &case.history.events {
        let What::Watch { watch, what } = &event.what else { continue };
        let broken = |how: String| Violation::new("S5", event.at, format!("watch {watch} {how}"));
        if let Watched::Open { scope, cursor, .. } = what {
            courses.insert(*watch, Course::open(case, scope, *cursor));
            continue;
        }
        let Some(course) = courses.get_mut(watch) else { continue };
        match what {
            Watched::Changed(change) => course.changed(event.at, change).map_err(broken)?,
            Watched::Gap { oldest, at } => course.gap(*oldest, *at).map_err(broken)?,
            Watched::Mark(cursor) => course.mark(*cursor).map_err(broken)?,
            Watched::Open { .. } | Watched::End => {}
        }
    }
    Ok(())
}

const fn place(change: &Change) -> Cursor {
    Cursor { incarnation: Incarnation(1), revision: change.revision, ordinal: change.ordinal }
}

impl<'a> Course<'a> {
    fn open(case: &Case<'a>, scope: &Scope, cursor: Option<Cursor>) -> Self {
        let covered = case.chronicle.changes().filter(|(_, change)| scope.covers(&change.group));
        let reference: Vec<_> = covered.map(|(record, change)| (record.at, change)).collect();
        let mut course = Self { reference, next: None, cursor };
        course.next = cursor.map(|cursor| course.after(cursor));
        course
    }

    /// How many changes lie at or before a place.
    fn after(&self, cursor: Cursor) -> usize {
        // A place within a group's own memory stands after all of its revision.
        let cursor = if cursor.ordinal == Cursor::WHOLE - 1 {
            Cursor::after(cursor.incarnation, cursor.revision)
        } else {
            cursor
        };
        self.reference.partition_point(|(_, change)| place(change) <= cursor)
    }

    fn changed(&mut self, at: u64, change: &Change) -> Result<(), String> {
        let found = self.reference.iter().position(|(_, known)| is_same(known, change));
        let Some(found) = found else {
            return Err(format!("delivered what never happened: {change:?}"));
        };
        if self.reference[found].0 > at {
            return Err(format!("delivered {} before it was committed", change.revision));
        }
        match self.next {
            Some(next) if found != next => {
                let verb = if found < next { "repeated" } else { "skipped to" };
                return Err(format!("{verb} revision {}", change.revision));
            }
            Some(_) | None => {}
        }
        self.next = Some(found + 1);
        self.cursor = Some(place(change));
        Ok(())
    }

    fn gap(&mut self, oldest: Cursor, at: Cursor) -> Result<(), String> {
        if self.cursor.is_some_and(|cursor| cursor >= oldest) {
            return Err(format!("has a gap although everything after {oldest} is known"));
        }
        self.next = Some(self.after(at));
        self.cursor = Some(at);
        Ok(())
    }

    fn mark(&mut self, cursor: Cursor) -> Result<(), String> {
        let behind = self.after(cursor);
        match self.next {
            Some(next) if behind > next => {
                return Err(format!(
                    "claims to have told all up to {cursor} and has not told revision {}",
                    self.reference[next].1.revision
                ));
            }
            // It began at the present, wherever that was.
            None => self.next = Some(behind),
            Some(_) => {}
        }
        self.cursor = Some(cursor);
        Ok(())
    }
}

fn is_same(known: &Change, told: &Change) -> bool {
    let of = |change: &Change| (change.revision, change.term, change.cause);
    let is_replayed = told.ordinal == Cursor::WHOLE - 1;
    of(known) == of(told)
        && known.group == told.group
        && known.leader == told.leader
        && (is_replayed || (known.ordinal, &known.metadata) == (told.ordinal, &told.metadata))
}
