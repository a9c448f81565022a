//! Groups: policies, deletion, and what holds for the whole store.

use std::collections::BTreeSet;

use super::door::stopped;
use super::group::{GroupState, Marks, Office};
use super::{Rest, State, Turn, VerbResult, done};
use crate::door::Door;
use crate::mutant::{self, Mutant};
use crate::name::{Group, SessionNo};
use crate::outcome::{Answer, Cause, OfficeChange, Refusal};
use crate::policy::{Policy, Settings};

impl State {
    /// Creates a group or changes its policy. A leader that no longer fits is told to stop; standbys
    /// that no longer fit leave the line.
    pub(super) fn put_policy(
        &mut self,
        turn: &mut Turn,
        group: Group,
        policy: Option<Box<Policy>>,
    ) -> VerbResult {
        let policy = match policy {
            None => None,
            Some(policy) => Some(Box::new(policy.check(self.settings.ttl_ms_ceiling)?)),
        };
        // Without names nobody could ever approve anything, nor switch it off again.
        if turn.who.is_none() && policy.as_ref().is_some_and(|policy| policy.four_eyes) {
            return Err(Refusal::NobodyToApprove { group });
        }
        match self.groups.get_mut(&group) {
            Some(state) if state.doomed => return Err(Refusal::GroupEnding { group }),
            // The same again is no change: a wait for the minimum tenure must not start anew.
            Some(state) if state.policy == policy => return done(),
            Some(state) => {
                state.policy_payer = turn.who.clone().filter(|_| policy.is_some());
                state.policy = policy;
            }
            None => {
                self.check_groups()?;
                let mut state = GroupState::new(self.term_floor, turn.who.clone());
                state.policy_payer = turn.who.clone().filter(|_| policy.is_some());
                state.policy = policy;
                self.groups.insert(group.clone(), state);
            }
        }
        self.enforce(turn, &group);
        done()
    }

    /// Brings a group in line with its policy.
    pub(super) fn enforce(&mut self, turn: &mut Turn, group: &Group) {
        let Some(state) = self.groups.get_mut(group) else { return };
        let policy = state.policy.as_deref().unwrap_or(&self.settings.default_policy).clone();
        let sessions = &self.sessions;
        let fits = |session: SessionNo| {
            sessions
                .get(&session)
                .is_some_and(|session| policy.allows(&session.node) && policy.fits(session.ttl_ms))
        };
        let leader_fits = state.office.tenure().is_none_or(|tenure| fits(tenure.session));
        let misfits: BTreeSet<SessionNo> =
            state.line.iter().map(|one| one.session).filter(|session| !fits(*session)).collect();
        for standby in &mut state.line {
            if let Some(session) = sessions.get(&standby.session) {
                standby.priority = policy.priority(&session.node, standby.claimed);
            }
        }
        state.line.sort_by_key(|standby| (std::cmp::Reverse(standby.priority), standby.arrived));
        if let Some(tenure) = state.office.tenure_mut()
            && let Some(session) = sessions.get(&tenure.session)
        {
            tenure.priority = policy.priority(&session.node, tenure.claimed);
        }
        self.dismiss(turn, group, |session| !misfits.contains(&session));
        if !leader_fits {
            self.begin_ending(turn, group, Cause::Policy, None);
        }
        self.revise_season(turn, group);
        self.reindex(turn, group);
        self.prefer(turn, group);
    }

    /// A changed policy may start or stop to prefer somebody.
    fn revise_season(&mut self, turn: &mut Turn, group: &Group) {
        let Some(state) = self.groups.get(group) else { return };
        if let Office::Held { tenure } = &state.office
            && tenure.accepted
        {
            self.begin_season(turn, group);
        }
    }

    /// Ends a group. Its line is dissolved at once; a leader is told to stop first.
    pub(super) fn delete(&mut self, turn: &mut Turn, group: &Group) -> VerbResult {
        let state = self
            .groups
            .get_mut(group)
            .ok_or_else(|| Refusal::GroupUnknown { group: group.clone() })?;
        // Without its door, whoever comes would be elected, here and where the group is.
        match state.door.as_deref() {
            Some(Door::Moved { to }) => {
                return Err(Refusal::Moved { group: group.clone(), to: to.clone() });
            }
            Some(Door::Expected { from, .. }) => {
                return Err(Refusal::OnItsWay { group: group.clone(), from: from.clone() });
            }
            Some(Door::Stopped { since }) => return Err(stopped(group, *since)),
            Some(Door::Open) | None => {}
        }
        state.doomed = true;
        self.dismiss(turn, group, |_| false);
        let Some(state) = self.groups.get(group) else { return done() };
        let answer = match state.office {
            Office::Vacant | Office::Delayed { .. } => {
                self.forget(turn, group);
                Answer::Done
            }
            Office::Held { .. } => self.begin_ending(turn, group, Cause::Deleted, None),
            Office::Ending { .. } => self.ending_answer(group),
        };
        Ok((answer, Rest::Nothing))
    }

    /// Forgets a group and keeps its terms from coming back, for all groups at once: one number
    /// instead of a tombstone for every name that ever was (semantics 22).
    pub(super) fn forget(&mut self, turn: &mut Turn, group: &Group) {
        let Some(state) = self.groups.remove(group) else { return };
        self.drop_all_proposals(turn, group);
        self.index.note(group, state.marks, Marks::default());
        turn.time_office(group, OfficeChange::Gone);
        if !mutant::is(Mutant::TermsRestart) {
            self.term_floor = self.term_floor.max(state.term);
        }
        turn.tell(group, state.term, None, Cause::Deleted);
    }

    /// Changes what holds for the whole store. Policies that exist are not touched: the ceiling may
    /// only fall to where they all still fit.
    pub(super) fn put_settings(&mut self, settings: Settings) -> VerbResult {
        let settings = settings.check()?;
        for (_, state) in self.groups.iter() {
            if let Some(policy) = &state.policy {
                (**policy).clone().check(settings.ttl_ms_ceiling)?;
            }
        }
        let defaults_changed = settings.default_policy != self.settings.default_policy;
        self.settings = settings;
        if !defaults_changed {
            return done();
        }
        let by_default = self.groups.iter().rev().filter(|(_, state)| state.policy.is_none());
        let affected = by_default.map(|(group, _)| group.clone()).collect();
        Ok((Answer::Done, Rest::Enforce(affected)))
    }
}
