//! What must be true of every state.
//!
//! What concerns one group or session alone is also asked of every state that is read from bytes.
//! The relations between them are checked from scratch, for tests and the simulator.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::fences::Mark;
use super::group::{GroupState, Office};
use super::session::Session;
use super::{Index, State};
use crate::limits::{FENCES_PER_GROUP_MAX, HISTORY_PER_GROUP};
use crate::name::{Group, SessionNo};

fn holds(truth: bool, broken: impl FnOnce() -> String) -> Result<(), String> {
    if truth { Ok(()) } else { Err(broken()) }
}

impl State {
    /// Checks every relation between the parts of the state; the error names the first one broken.
    pub fn check_invariants(&self) -> Result<(), String> {
        let mut leads = BTreeSet::<(SessionNo, Group)>::new();
        let mut stands = BTreeSet::<(SessionNo, Group)>::new();
        for (name, group) in self.groups.iter() {
            self.check_group(name, group)?;
            if let Some(tenure) = group.office.tenure() {
                leads.insert((tenure.session, name.clone()));
            }
            for standby in &group.line {
                let is_first = stands.insert((standby.session, name.clone()));
                holds(is_first, || format!("{} stands twice in {name}", standby.session))?;
            }
        }
        for (no, session) in &self.sessions {
            self.check_session(*no, session)?;
            for group in &session.leads {
                let known = leads.remove(&(*no, group.clone()));
                holds(known, || format!("{no} believes to lead {group}"))?;
            }
            for group in &session.stands {
                let known = stands.remove(&(*no, group.clone()));
                holds(known, || format!("{no} believes to stand in {group}"))?;
            }
        }
        holds(leads.is_empty(), || format!("offices without their session: {leads:?}"))?;
        holds(stands.is_empty(), || format!("standbys without their session: {stands:?}"))?;
        holds(self.by_secret.len() == self.sessions.len(), || "secrets without session".into())?;
        self.check_proposals()?;
        let bytes = self.bytes_recomputed();
        holds(self.bytes() == bytes, || format!("{} bytes are {bytes} bytes", self.bytes()))?;
        let (kept, fresh) = (&self.accounts, self.accounts_recomputed());
        holds(*kept == fresh, || format!("the accounts {kept:?} are {fresh:?}"))?;
        holds(self.index == Index::recomputed(self), || "the index has drifted".into())
    }

    /// What must be true of one group.
    pub(super) fn check_group(&self, name: &Group, group: &GroupState) -> Result<(), String> {
        let stands = |session: SessionNo| group.place_of(session).is_some();
        let tenure = group.office.tenure();
        if let Some(tenure) = tenure {
            holds(group.term.get() > 0, || format!("{name} is led without a term"))?;
            holds(tenure.offer.is_none_or(|offer| stands(offer.to)), || {
                format!("{name} is offered to one who does not stand")
            })?;
        }
        holds(group.policy.is_some() || group.policy_payer.is_none(), || {
            format!("{name} has no policy, and somebody is charged for it")
        })?;
        holds(group.heir.is_none_or(stands), || format!("{name} has an heir who does not stand"))?;
        let rank = |at: usize| (Reverse(group.line[at].priority), group.line[at].arrived);
        holds((1..group.line.len()).all(|at| rank(at - 1) <= rank(at)), || {
            format!("the line of {name} is out of order")
        })?;
        let history = &group.history;
        let in_order = history.is_sorted_by_key(|change| (change.revision, change.term));
        holds(history.len() <= HISTORY_PER_GROUP && in_order, || {
            format!("the history of {name} is out of order")
        })?;
        let leader = tenure.and_then(|tenure| self.node(tenure.session));
        let remembers = history
            .last()
            .is_none_or(|change| change.term == group.term && change.leader.as_ref() == leader);
        holds(remembers, || format!("the history of {name} does not end with its office"))?;
        if let Some(fences) = group.fences.as_deref() {
            let is_within = |mark: &Mark| (fences.floor..=group.term).contains(&mark.term);
            let fits = fences.marks.len() <= FENCES_PER_GROUP_MAX && fences.floor <= group.term;
            holds(fits && fences.marks.values().all(is_within), || {
                format!("a fence of {name} lies beyond its terms")
            })?;
        }
        let is_ending = match group.office {
            Office::Ending { .. } => true,
            Office::Vacant | Office::Delayed { .. } | Office::Held { .. } => false,
        };
        holds(!group.doomed || (is_ending && group.line.is_empty()), || {
            format!("{name} is being deleted and lives on")
        })
    }

    /// What must be true of one session.
    pub(super) fn check_session(&self, no: SessionNo, session: &Session) -> Result<(), String> {
        holds(self.by_secret.get(&session.id) == Some(&no), || {
            format!("{no} cannot be found by its secret")
        })?;
        holds(!session.gone, || format!("{no} is gone and still here"))?;
        let lingers = session.passing && session.leads.is_empty() && session.stands.is_empty();
        holds(!lingers, || format!("{no} was passing and lingers"))
    }
}
