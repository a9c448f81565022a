//! Campaign: win a vacant office, or stand in line, or leave nothing behind.
//!
//! A newcomer wins only if no standby that can be heard would come before it: being first at the
//! door of a vacant office is worth nothing while others wait.

use std::cmp::Reverse;

use super::group::{GroupState, Office, Standby};
use super::{Rest, State, Turn, VerbResult};
use crate::command::{IfLost, Opening};
use crate::limits::{GROUPS_PER_SESSION_MAX, TTL_MS_DEFAULT};
use crate::name::{Group, Metadata, Node, SessionId, SessionNo};
use crate::outcome::{Answer, Cause, Refusal};
use crate::policy::Priority;
use crate::term::Revision;

/// Who campaigns: a session that is open, or one that this campaign may open.
struct Candidate {
    open: Option<SessionNo>,
    node: Node,
    ttl_ms: u64,
    passing: bool,
    groups: usize,
}

impl State {
    #[expect(clippy::too_many_arguments, reason = "they are the fields of one command")]
    pub(super) fn campaign(
        &mut self,
        turn: &mut Turn,
        group: Group,
        id: SessionId,
        opening: Option<Opening>,
        if_lost: IfLost,
        claimed: Priority,
        metadata: Metadata,
    ) -> VerbResult {
        let candidate = self.candidate(id, opening)?;
        if let Some(session) = candidate.open
            && let Some(answer) = self.campaign_of_holder(turn, &group, session, candidate.ttl_ms)
        {
            return Ok((answer, Rest::Nothing));
        }
        let priority = self.check_claim(&group, &candidate, claimed)?;
        // Who speaks is heard, whatever the proposer thought of it a moment before.
        turn.silent.retain(|silent| Some(*silent) != candidate.open);
        let place = self.place_now(&group, candidate.open);
        let arrived = self.arrival(&group, place).unwrap_or(turn.revision);
        let wins = self.would_win(turn, &group, candidate.open, (priority, Reverse(arrived)));
        match (wins, if_lost, place) {
            (false, IfLost::Leave, _) => {
                // The office may be vacant for a better standby that has become audible.
                self.fill(turn, &group, Cause::Elected, None);
                return Ok((Answer::Lost, Rest::Nothing));
            }
            (false, IfLost::Stand, None) => self.check_line(&group)?,
            (false, IfLost::Stand, Some(_)) | (true, _, _) => {}
        }
        let Candidate { open, node, ttl_ms, passing, .. } = candidate;
        let session = match open {
            Some(session) => session,
            None => self.open_fresh(turn, id, node, ttl_ms, passing)?,
        };
        let floor = self.term_floor;
        let creator = || turn.who.clone();
        let state = self.groups.get_or_insert(&group, || GroupState::new(floor, creator()));
        let payer = self.sessions.get(&session).and_then(|session| session.owner.clone());
        let standby = Standby { session, payer, priority, claimed, arrived, metadata };
        if wins {
            state.dequeue(session);
            if let Some(record) = self.sessions.get_mut(&session) {
                record.stands.remove(&group);
            }
            self.begin_tenure(turn, &group, standby, true, Cause::Elected, None);
            let term = self.groups.get(&group).map(|state| state.term).unwrap_or_default();
            return Ok((Answer::Elected { session, ttl_ms, term }, Rest::Nothing));
        }
        match place {
            Some(place) => state.requeue(place, standby),
            None => state.enqueue(standby),
        }
        if let Some(record) = self.sessions.get_mut(&session) {
            record.stands.insert(group.clone());
        }
        self.fill(turn, &group, Cause::Elected, None);
        self.reindex(turn, &group);
        self.prefer(turn, &group);
        let place = self.place_now(&group, Some(session)).unwrap_or_default() as u32;
        Ok((Answer::Standing { session, ttl_ms, place }, Rest::Nothing))
    }

    /// The session that campaigns. What is told about it must fit what is known of it.
    fn candidate(&self, id: SessionId, opening: Option<Opening>) -> Result<Candidate, Refusal> {
        match (self.known_session(id)?, opening) {
            (None, None) => Err(Refusal::SessionUnknown),
            (None, Some(opening)) => {
                let ttl_ms = opening.ttl_ms.unwrap_or(TTL_MS_DEFAULT);
                self.check_opening(ttl_ms)?;
                let Opening { node, passing, .. } = opening;
                Ok(Candidate { open: None, node, ttl_ms, passing, groups: 0 })
            }
            (Some((no, session)), opening) => {
                let fits = opening.is_none_or(|told| {
                    told.node == session.node
                        && told.ttl_ms.is_none_or(|ttl_ms| ttl_ms == session.ttl_ms)
                });
                if !fits {
                    return Err(Refusal::SessionMismatch);
                }
                Ok(Candidate {
                    open: Some(no),
                    node: session.node.clone(),
                    ttl_ms: session.ttl_ms,
                    passing: session.passing,
                    groups: session.leads.len() + session.stands.len(),
                })
            }
        }
    }

    /// The leader's own session campaigning again keeps its term; a promoted one thereby accepts.
    fn campaign_of_holder(
        &mut self,
        turn: &mut Turn,
        group: &Group,
        session: SessionNo,
        ttl_ms: u64,
    ) -> Option<Answer> {
        let state = self.groups.get(group)?;
        let term = state.term;
        match &state.office {
            Office::Held { tenure } if tenure.session == session => {
                self.take_office(turn, group);
                Some(Answer::Elected { session, ttl_ms, term })
            }
            Office::Held { .. }
            | Office::Ending { .. }
            | Office::Vacant
            | Office::Delayed { .. } => None,
        }
    }

    /// Whether the candidate may stand here at all, and with which priority.
    fn check_claim(
        &self,
        group: &Group,
        candidate: &Candidate,
        claimed: Priority,
    ) -> Result<Priority, Refusal> {
        let state = self.groups.get(group);
        match state {
            None if !self.settings.auto_create => {
                return Err(Refusal::GroupUnknown { group: group.clone() });
            }
            None => self.check_groups()?,
            Some(state) if state.doomed => {
                return Err(Refusal::GroupEnding { group: group.clone() });
            }
            Some(GroupState { door: Some(door), .. }) if let Some(to) = door.moved_to() => {
                return Err(Refusal::Moved { group: group.clone(), to: to.clone() });
            }
            Some(state) if state.term.next().is_none() => {
                return Err(Refusal::TermsExhausted { group: group.clone() });
            }
            Some(_) => {}
        }
        self.check_ttl(group, candidate.ttl_ms)?;
        let policy = state
            .and_then(|state| state.policy.as_deref())
            .unwrap_or(&self.settings.default_policy);
        if !policy.allows(&candidate.node) {
            return Err(Refusal::NotAllowed { group: group.clone(), node: candidate.node.clone() });
        }
        let is_known_here = state.is_some_and(|state| {
            candidate.open.is_some_and(|session| state.place_of(session).is_some())
        });
        if !is_known_here && candidate.groups >= GROUPS_PER_SESSION_MAX {
            return Err(Refusal::Full {
                what: "the list of this session's groups",
                max: GROUPS_PER_SESSION_MAX as u64,
            });
        }
        Ok(policy.priority(&candidate.node, claimed))
    }

    /// Whether another group fits.
    pub(super) fn check_groups(&self) -> Result<(), Refusal> {
        let max = self.settings.groups_max;
        if self.groups.len() as u64 >= max {
            return Err(Refusal::Full { what: "the table of groups", max });
        }
        if self.term_floor.next().is_none() {
            return Err(Refusal::Full { what: "the range of terms", max: self.term_floor.get() });
        }
        Ok(())
    }

    fn check_line(&self, group: &Group) -> Result<(), Refusal> {
        let Some(state) = self.groups.get(group) else { return Ok(()) };
        let max = self.policy_of(state).standbys_max;
        if state.line.len() >= max as usize {
            return Err(Refusal::Full { what: "the line of standbys", max: max.into() });
        }
        Ok(())
    }

    fn place_now(&self, group: &Group, session: Option<SessionNo>) -> Option<usize> {
        self.groups.get(group)?.place_of(session?)
    }

    fn arrival(&self, group: &Group, place: Option<usize>) -> Option<Revision> {
        self.groups.get(group)?.line.get(place?).map(|standby| standby.arrived)
    }

    /// Whether the office is vacant and nobody who can be heard comes before this candidate, either
    /// as it stands or with the claim it makes: higher priority first, then first come.
    fn would_win(
        &self,
        turn: &Turn,
        group: &Group,
        candidate: Option<SessionNo>,
        claim: (Priority, Reverse<Revision>),
    ) -> bool {
        let Some(state) = self.groups.get(group) else { return true };
        if state.office != Office::Vacant || !state.is_open() {
            return false;
        }
        match self.best_standby(turn, group) {
            None => true,
            Some(best) if Some(best) == candidate => true,
            Some(best) if state.heir == Some(best) => false,
            Some(best) => state.place_of(best).is_none_or(|place| {
                let best = &state.line[place];
                claim > (best.priority, Reverse(best.arrived))
            }),
        }
    }
}
