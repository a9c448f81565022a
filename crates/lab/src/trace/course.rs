//! What came about, held against what was recorded: who led which group, in which order, and why.
//!
//! Groups are compared one by one, because they have no order among each other that a rule promises. Terms
//! are compared by how much they rise: a recording may begin in the middle of a group's life. Times are shown
//! and not compared.

use std::collections::BTreeMap;

use regent_election::{Cause, Group, Node, Term};

/// One change of who leads a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub group: Group,
    /// Who leads after it.
    pub leader: Option<Node>,
    /// The term after it.
    pub term: Term,
    pub cause: Cause,
}

/// One row of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub group: Group,
    /// What was recorded, with its line; none if the simulation did more.
    pub recorded: Option<(usize, Step)>,
    /// What came about, with its time since the beginning in nanoseconds; none if it did less.
    pub acted: Option<(u64, Step)>,
    /// Whether the two are the same.
    pub is_same: bool,
}

/// The whole comparison, in the order of the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// Row by row.
    pub rows: Vec<Row>,
}

impl Course {
    /// Compares what was recorded with what came about.
    #[must_use]
    pub fn compare(recorded: &[(usize, Step)], acted: &[(u64, Step)]) -> Self {
        let mut of_group: BTreeMap<&Group, Vec<&(u64, Step)>> = BTreeMap::new();
        for step in acted {
            of_group.entry(&step.1.group).or_default().push(step);
        }
        let mut places: BTreeMap<&Group, ComparisonState> = BTreeMap::new();
        let mut rows = Vec::new();
        for (line, step) in recorded {
            let place = places.entry(&step.group).or_default();
            let found = of_group.get(&step.group).and_then(|steps| steps.get(place.at));
            let is_same = found.is_some_and(|(_, acted)| place.agrees(step, acted));
            place.at += 1;
            rows.push(Row {
                group: step.group.clone(),
                recorded: Some((*line, step.clone())),
                acted: found.map(|found| (*found).clone()),
                is_same,
            });
        }
        for (group, steps) in of_group {
            let told = places.get(group).map_or(0, |place| place.at);
            rows.extend(steps.into_iter().skip(told).map(|step| Row {
                group: group.clone(),
                recorded: None,
                acted: Some(step.clone()),
                is_same: false,
            }));
        }
        Self { rows }
    }

    /// Whether everything came about as it was recorded, and nothing else did.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.rows.iter().all(|row| row.is_same)
    }
}

/// How far the comparison of one group is.
#[derive(Debug, Default)]
struct ComparisonState {
    at: usize,
    /// The terms of the first pair, from which both are counted.
    first: Option<(u64, u64)>,
}

impl ComparisonState {
    fn agrees(&mut self, recorded: &Step, acted: &Step) -> bool {
        let terms = (recorded.term.get(), acted.term.get());
        let (from, acted_from) = *self.first.get_or_insert(terms);
        let is_risen_alike = terms.0.wrapping_sub(from) == terms.1.wrapping_sub(acted_from);
        // What stood before the recording began is elected at its beginning, whatever brought it there.
        let is_first = self.at == 0 && recorded.leader.is_some();
        recorded.leader == acted.leader
            && is_risen_alike
            && (is_first || is_same_cause(recorded.cause, acted.cause))
    }
}

/// A participant that leaves its office resigns it; over the API one may also withdraw from it.
fn is_same_cause(recorded: Cause, acted: Cause) -> bool {
    recorded == acted || (recorded == Cause::Withdrawn && acted == Cause::Resigned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(group: &str, leader: Option<&str>, term: u64, cause: Cause) -> Step {
        Step {
            group: Group::new(group).unwrap(),
            leader: leader.map(|leader| Node::new(leader).unwrap()),
            term: Term::new(term).unwrap(),
            cause,
        }
    }

    #[test]
    fn groups_are_compared_one_by_one_and_terms_by_how_they_rise() {
        let recorded = [
            (1, step("g", Some("a"), 7, Cause::Elected)),
            (2, step("h", Some("b"), 1, Cause::Elected)),
            (3, step("g", None, 7, Cause::Withdrawn)),
        ];
        let acted = [
            (5, step("h", Some("b"), 1, Cause::Elected)),
            (6, step("g", Some("a"), 1, Cause::Elected)),
            (7, step("g", None, 1, Cause::Resigned)),
        ];
        assert!(Course::compare(&recorded, &acted).is_same());
    }

    #[test]
    fn another_leader_another_cause_another_rise_and_more_or_less_are_differences() {
        let base = [
            (1, step("g", Some("a"), 1, Cause::Elected)),
            (2, step("g", Some("b"), 2, Cause::Expired)),
        ];
        let first = (5, step("g", Some("a"), 1, Cause::Elected));
        for other in [
            step("g", Some("c"), 2, Cause::Expired),
            step("g", Some("b"), 2, Cause::Resigned),
            step("g", Some("b"), 3, Cause::Expired),
        ] {
            let course = Course::compare(&base, &[first.clone(), (6, other)]);
            assert_eq!(
                course.rows.iter().map(|row| row.is_same).collect::<Vec<_>>(),
                [true, false]
            );
        }
        let less = Course::compare(&base, std::slice::from_ref(&first));
        assert!(!less.is_same() && less.rows[1].acted.is_none());
        let second = (6, step("g", Some("b"), 2, Cause::Expired));
        let more = [first, second, (7, step("g", None, 2, Cause::Expired))];
        let more = Course::compare(&base, &more);
        assert!(!more.is_same() && more.rows[2].recorded.is_none());
    }
}
