//! The fences of a group: for each resource the highest term that was admitted there (S3).
//!
//! A resource that cannot keep a mark of its own asks here before it writes. The check and the raising are one
//! entry, so of two leaders that ask at once the later term shuts the earlier one out, whatever the clocks say.
//!
//! **No mark ever falls.** A fence that is forgotten raises the floor under all fences of its group; so does
//! whatever makes terms leap: a restore, a group that arrives from another store, a store that finds less than
//! somebody has seen. The first fence of a group begins at its current term, because nothing is known of
//! what a former life of the same name admitted; so a deleted group needs no tombstone (semantics 22).
//!
//! The road not taken: refusing every term below the group's current one. That is what asking without a resource
//! does. Here an old leader may finish what nobody has taken over yet, as with a fence beside the data.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::accounts::Payer;
use super::{State, Turn, VerbResult, done};
use crate::door::Door;
use crate::fence::{Fence, FenceError};
use crate::limits::FENCES_PER_GROUP_MAX;
use crate::name::{Group, Resource};
use crate::outcome::Refusal;
use crate::store::{FenceView, FencesPage};
use crate::term::Term;

/// What is remembered of one group's resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fences {
    /// No resource admits a term below this one.
    pub(super) floor: Term,
    /// The marks, none of them below the floor.
    pub(super) marks: BTreeMap<Resource, Mark>,
}

/// What is remembered of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The highest term that was admitted.
    pub(super) term: Term,
    /// Who asked for it first, and is charged.
    pub(super) payer: Payer,
}

impl Fences {
    fn mark(&self, resource: &Resource) -> Term {
        self.marks.get(resource).map_or(self.floor, |mark| self.floor.max(mark.term))
    }

    /// Makes sure that no resource admits a term below this one any more.
    pub(super) fn raise(&mut self, floor: Term) {
        self.floor = self.floor.max(floor);
        for mark in self.marks.values_mut() {
            mark.term = self.floor.max(mark.term);
        }
    }
}

impl State {
    /// Admits a term at a resource, unless a higher one was admitted there or it was never granted.
    pub(super) fn admit(
        &mut self,
        turn: &Turn,
        group: &Group,
        resource: Resource,
        given: Term,
    ) -> VerbResult {
        self.check_home(group)?;
        let current = self.last_term(group);
        let never = || Refusal::NeverGranted { group: group.clone(), given, current };
        let Some(state) = self.groups.get_mut(group).filter(|_| given <= current) else {
            return Err(never());
        };
        let known = state.fences.as_deref();
        let mark = known.map_or(current, |fences| fences.mark(&resource));
        let is_full = known.is_some_and(|fences| {
            fences.marks.len() >= FENCES_PER_GROUP_MAX && !fences.marks.contains_key(&resource)
        });
        let mut fence = Fence::at(mark);
        match fence.admit(given) {
            Ok(()) => {}
            Err(FenceError::NeverGranted) => return Err(never()),
            Err(FenceError::Stale { given, current }) => {
                let (group, resource) = (group.clone(), Some(resource));
                return Err(Refusal::StaleTerm { group, resource, given, current });
            }
        }
        if is_full {
            let (what, max) = ("the list of fences of this group", FENCES_PER_GROUP_MAX as u64);
            return Err(Refusal::Full { what, max });
        }
        let fresh = || Box::new(Fences { floor: current, marks: BTreeMap::new() });
        let marks = &mut state.fences.get_or_insert_with(fresh).marks;
        let made = || Mark { term: Term::NONE, payer: turn.who.clone() };
        marks.entry(resource).or_insert_with(made).term = fence.mark();
        done()
    }

    /// Forgets a resource; what it admitted is remembered for all of its group's.
    pub(super) fn forget_fence(&mut self, group: &Group, resource: &Resource) -> VerbResult {
        self.check_home(group)?;
        let fences = self.groups.get_mut(group).and_then(|state| state.fences.as_deref_mut());
        let forgotten = fences.and_then(|fences| {
            let mark = fences.marks.remove(resource)?;
            fences.raise(mark.term);
            Some(())
        });
        match forgotten {
            Some(()) => done(),
            None => {
                let (group, resource) = (group.clone(), resource.clone());
                Err(Refusal::FenceUnknown { group, resource })
            }
        }
    }

    /// A group that lives elsewhere has its fences there.
    pub(super) fn check_home(&self, group: &Group) -> Result<(), Refusal> {
        match self.door(group) {
            Door::Open | Door::Stopped { .. } => Ok(()),
            Door::Moved { to } => Err(Refusal::Moved { group: group.clone(), to: to.clone() }),
            Door::Expected { from, .. } => {
                Err(Refusal::OnItsWay { group: group.clone(), from: from.clone() })
            }
        }
    }

    /// The fences of a group whose names open with `prefix`, after `after`, at most `count` of them.
    #[must_use]
    pub fn fences_page(
        &self,
        group: &Group,
        prefix: &str,
        after: Option<&Resource>,
        count: usize,
    ) -> FencesPage {
        let known = self.groups.get(group).and_then(|state| state.fences.as_deref());
        let from: (Bound<&str>, Bound<&str>) = match after {
            Some(after) if after.as_str() >= prefix => {
                (Bound::Excluded(after.as_str()), Bound::Unbounded)
            }
            Some(_) | None => (Bound::Included(prefix), Bound::Unbounded),
        };
        let mut fences: Vec<FenceView> = known
            .into_iter()
            .flat_map(|fences| fences.marks.range::<str, _>(from))
            .take_while(|(resource, _)| resource.as_str().starts_with(prefix))
            .take(count.saturating_add(1))
            .map(|(resource, mark)| FenceView { resource: resource.clone(), mark: mark.term })
            .collect();
        let is_more = fences.len() > count;
        fences.truncate(count);
        let next = fences.last().filter(|_| is_more).map(|last| last.resource.clone());
        FencesPage {
            floor: known.map_or(Term::NONE, |fences| fences.floor),
            fences,
            next,
            term: self.last_term(group),
            moved_to: self.door(group).moved_to().cloned(),
            is_home: self.door(group).is_home(),
            revision: self.revision,
        }
    }
}
