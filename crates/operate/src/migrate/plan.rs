//! What is left to do of a move: a pure function of what the two stores say about the group.

use regent_election::store::GroupView;
use regent_election::{Door, Group, Home, Refusal};

/// What is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Nothing: the new store has opened its door above the old terms.
    Finished,
    /// Only to close the old store: the group was expected there and never left the new one.
    NeverLeft,
    /// All steps, of which some may have been taken.
    Move {
        /// Whether the old store has told its leader to stop already.
        has_departed: bool,
    },
}

/// Whether the group is the old store's to give: not if it moved elsewhere, is only on its way there, or is
/// stopped for recovery.
pub(super) fn check_departure(
    group: &Group,
    old: &GroupView,
    forward: &Home,
) -> Result<(), Refusal> {
    match &old.door {
        Door::Moved { to } if to != forward => {
            Err(Refusal::Moved { group: group.clone(), to: to.clone() })
        }
        // It can only be turned round.
        Door::Expected { from, .. } if from != forward => {
            Err(Refusal::OnItsWay { group: group.clone(), from: from.clone() })
        }
        Door::Stopped { since } => Err(Refusal::Stopped { group: group.clone(), since: *since }),
        Door::Open | Door::Moved { .. } | Door::Expected { .. } => Ok(()),
    }
}

/// What is left to do of the move of a group that may depart.
pub(super) fn plan(old: Option<&GroupView>, new: Option<&GroupView>) -> Plan {
    let Some(old) = old else { return Plan::Move { has_departed: false } };
    let all = Plan::Move { has_departed: old.door.moved_to().is_some() };
    let Some(new) = new.filter(|view| view.door == Door::Open) else { return all };
    match &old.door {
        // The new store opens only at the end of a move, and then above the old terms.
        Door::Moved { .. } if new.office.term >= old.office.term => Plan::Finished,
        Door::Expected { .. } => Plan::NeverLeft,
        Door::Moved { .. } | Door::Open | Door::Stopped { .. } => all,
    }
}

#[cfg(test)]
mod tests {
    use regent_election::store::{LeaderView, OfficeState};
    use regent_election::{Cursor, Incarnation, Metadata, Policy, Revision, Term};

    use super::*;

    fn home(url: &str) -> Home {
        Home::new(url).unwrap()
    }

    fn view(door: Door, term: u64) -> GroupView {
        let office = LeaderView {
            group: Group::new("g").unwrap(),
            leader: None,
            term: Term::new(term).unwrap(),
            metadata: Metadata::NONE,
            state: OfficeState::Vacant,
            valid_for: None,
            revision: Revision(1),
            cursor: Cursor { incarnation: Incarnation(0), revision: Revision(1), ordinal: 0 },
            moved_to: None,
        };
        let (policy, standbys) = (Policy::default(), Vec::new());
        GroupView {
            office,
            policy,
            own_policy: false,
            door,
            came_from: None,
            ending: None,
            standbys,
            standbys_count: 0,
        }
    }

    #[test]
    fn only_a_group_that_lives_in_the_old_store_or_departs_to_the_new_one_may_depart() {
        let (group, there) = (Group::new("g").unwrap(), home("memory:there"));
        let since = Revision(7);
        let check = |door| check_departure(&group, &view(door, 1), &there);
        assert_eq!(check(Door::Open), Ok(()));
        assert_eq!(check(Door::Moved { to: home("memory:there") }), Ok(()));
        assert_eq!(check(Door::Expected { from: home("memory:there"), since }), Ok(()));
        let elsewhere = home("memory:elsewhere");
        assert!(matches!(check(Door::Moved { to: elsewhere.clone() }), Err(Refusal::Moved { .. })));
        assert!(matches!(
            check(Door::Expected { from: elsewhere, since }),
            Err(Refusal::OnItsWay { .. })
        ));
        assert!(matches!(check(Door::Stopped { since }), Err(Refusal::Stopped { .. })));
    }

    #[test]
    fn what_was_done_before_is_seen_in_the_two_stores() {
        let moved = || view(Door::Moved { to: home("memory:there") }, 5);
        let expected = || view(Door::Expected { from: home("memory:x"), since: Revision(3) }, 5);
        let open = |term| view(Door::Open, term);
        let begin = Plan::Move { has_departed: false };
        let go_on = Plan::Move { has_departed: true };
        assert_eq!(plan(None, None), begin);
        assert_eq!(plan(Some(&open(5)), Some(&open(9))), begin);
        assert_eq!(plan(Some(&moved()), Some(&expected())), go_on);
        assert_eq!(plan(Some(&moved()), None), go_on);
        assert_eq!(plan(Some(&moved()), Some(&open(5))), Plan::Finished);
        // A new store that was emptied meanwhile has a lower term.
        assert_eq!(plan(Some(&moved()), Some(&open(4))), go_on);
        assert_eq!(plan(Some(&expected()), Some(&open(1))), Plan::NeverLeft);
    }
}
