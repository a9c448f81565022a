//! The model's fences: everything that ever happened to a group's resources, searched anew every time.

use regent_election::{Answer, Door, Group, Refusal, Resource, Term};

use super::model::Model;
use super::verbs::VerbResult;

/// One thing that happened to the resources of a group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Deed {
    /// No resource admits less from here on.
    Raised(Term),
    Admitted(Resource, Term),
    Forgot(Resource),
}

impl Model {
    pub(crate) fn admit(&mut self, name: &Group, resource: &Resource, given: Term) -> VerbResult {
        self.must_live_here(name)?;
        let current = self.group(name).map_or(self.floor, |group| group.term);
        if self.group(name).is_none() || given > current || given == Term::NONE {
            return Err(Refusal::NeverGranted { group: name.clone(), given, current });
        }
        let is_first = self.group(name).is_some_and(|group| group.deeds.is_empty());
        let mark = if is_first { current } else { self.mark(name, resource) };
        if given < mark {
            let (group, resource) = (name.clone(), Some(resource.clone()));
            return Err(Refusal::StaleTerm { group, resource, given, current: mark });
        }
        let deeds = &mut self.group_mut(name).deeds;
        if is_first {
            deeds.push(Deed::Raised(current));
        }
        deeds.push(Deed::Admitted(resource.clone(), given));
        Ok(Answer::Done)
    }

    pub(crate) fn forget_fence(&mut self, name: &Group, resource: &Resource) -> VerbResult {
        self.must_live_here(name)?;
        if !self.marks(name).iter().any(|(known, _)| known == resource) {
            let (group, resource) = (name.clone(), resource.clone());
            return Err(Refusal::FenceUnknown { group, resource });
        }
        let mark = self.mark(name, resource);
        let deeds = &mut self.group_mut(name).deeds;
        deeds.extend([Deed::Forgot(resource.clone()), Deed::Raised(mark)]);
        Ok(Answer::Done)
    }

    /// Terms of another store were granted meanwhile.
    pub(crate) fn raise_fences(&mut self, name: &Group, above: Term) {
        let deeds = &mut self.group_mut(name).deeds;
        if !deeds.is_empty() {
            deeds.push(Deed::Raised(above));
        }
    }

    /// The resources that are known, in the order of their names, and what they have admitted.
    pub(crate) fn marks(&self, name: &Group) -> Vec<(Resource, Term)> {
        let mut known: Vec<Resource> = Vec::new();
        for deed in self.group(name).into_iter().flat_map(|group| &group.deeds) {
            match deed {
                Deed::Admitted(resource, _) => known.push(resource.clone()),
                Deed::Forgot(resource) => known.retain(|one| one != resource),
                Deed::Raised(_) => {}
            }
        }
        known.sort();
        known.dedup();
        known.into_iter().map(|one| (one.clone(), self.mark(name, &one))).collect()
    }

    fn mark(&self, name: &Group, resource: &Resource) -> Term {
        let deeds = self.group(name).into_iter().flat_map(|group| &group.deeds);
        let counts = |deed: &Deed| match deed {
            Deed::Raised(term) => Some(*term),
            Deed::Admitted(at, term) if at == resource => Some(*term),
            Deed::Admitted(..) | Deed::Forgot(_) => None,
        };
        deeds.filter_map(counts).max().unwrap_or_default()
    }

    pub(crate) fn must_live_here(&self, name: &Group) -> Result<(), Refusal> {
        match self.group(name).map(|group| group.door.clone()) {
            None | Some(Door::Open | Door::Stopped { .. }) => Ok(()),
            Some(Door::Moved { to }) => Err(Refusal::Moved { group: name.clone(), to }),
            Some(Door::Expected { from, .. }) => {
                Err(Refusal::OnItsWay { group: name.clone(), from })
            }
        }
    }
}
