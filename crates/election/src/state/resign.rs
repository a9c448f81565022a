//! Resign and withdraw: the holder's own ways out.

use super::group::Office;
use super::office::End;
use super::{Rest, State, Turn, VerbResult, done};
use crate::name::{Group, SessionId, SessionNo};
use crate::outcome::{Answer, Cause, Refusal};
use crate::term::Term;

impl State {
    /// Gives the office up. For a tenure that is ending it is the holder's word that it has stopped.
    pub(super) fn resign(
        &mut self,
        turn: &mut Turn,
        group: &Group,
        id: SessionId,
        term: Term,
    ) -> VerbResult {
        let session = self.session_of(id)?;
        self.check_holder(group, session, term)?;
        let (cause, reason) = self.cause_of_ending(group).unwrap_or((Cause::Resigned, None));
        self.vacate(turn, group, End { cause, reason, stopped: true, asked: true });
        done()
    }

    /// Leaves the line. A leader that withdraws is told to stop and confirms by resigning: a
    /// withdrawal names no term, so a late duplicate of one must not end a later office under its
    /// holder's feet.
    pub(super) fn withdraw(&mut self, turn: &mut Turn, group: &Group, id: SessionId) -> VerbResult {
        let session = self.session_of(id)?;
        self.leave_line(turn, group, session);
        let tenure = self.groups.get(group).and_then(|state| state.office.tenure());
        let answer = match tenure.filter(|tenure| tenure.session == session) {
            None => Answer::Done,
            Some(tenure) if tenure.accepted => {
                self.begin_ending(turn, group, Cause::Withdrawn, None)
            }
            // It never acted, so there is nothing to wait for.
            Some(_) => {
                self.vacate(turn, group, End::by_holder(Cause::Withdrawn));
                Answer::Done
            }
        };
        self.settle(turn, session);
        Ok((answer, Rest::Nothing))
    }

    /// Whether this session holds this term, ending or not.
    pub(super) fn check_holder(
        &self,
        group: &Group,
        session: SessionNo,
        term: Term,
    ) -> Result<(), Refusal> {
        let Some(state) = self.groups.get(group) else {
            return Err(Refusal::NotLeader {
                group: group.clone(),
                given: term,
                term: self.term_floor,
                leader: None,
            });
        };
        let tenure = state.office.tenure();
        if tenure.is_some_and(|tenure| tenure.session == session) && state.term == term {
            return Ok(());
        }
        let leader = tenure.and_then(|tenure| self.sessions.get(&tenure.session));
        Err(Refusal::NotLeader {
            group: group.clone(),
            given: term,
            term: state.term,
            leader: leader.map(|session| session.node.clone()),
        })
    }

    /// Whether this session holds this term and nobody has told it to stop.
    pub(super) fn check_leader(
        &self,
        group: &Group,
        session: SessionNo,
        term: Term,
    ) -> Result<(), Refusal> {
        self.check_holder(group, session, term)?;
        match self.groups.get(group).map(|state| &state.office) {
            Some(Office::Ending { cause, .. }) => {
                Err(Refusal::TenureEnding { group: group.clone(), term, cause: *cause })
            }
            Some(Office::Held { .. } | Office::Vacant | Office::Delayed { .. }) | None => Ok(()),
        }
    }
}
