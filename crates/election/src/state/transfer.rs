//! Hand-over: offer, warm, transfer, and the acceptance by which any promoted session takes office.
//!
//! Two steps (semantics 15): the leader offers while it goes on leading and the standby gets warm;
//! then, its work drained, it transfers. The second step alone is a plain transfer.

use super::group::{Offer, Office, PreemptionWindow};
use super::office::End;
use super::{State, Turn, VerbResult, done};
use crate::name::{Group, Node, SessionId, SessionNo};
use crate::outcome::{Cause, Refusal};
use crate::term::Term;

impl State {
    pub(super) fn accept(
        &mut self,
        turn: &mut Turn,
        group: &Group,
        id: SessionId,
        term: Term,
    ) -> VerbResult {
        let session = self.session_of(id)?;
        self.check_leader(group, session, term)?;
        self.take_office(turn, group);
        done()
    }

    pub(super) fn offer(
        &mut self,
        turn: &Turn,
        group: &Group,
        id: SessionId,
        term: Term,
        to: &Node,
    ) -> VerbResult {
        let session = self.session_of(id)?;
        self.check_leader(group, session, term)?;
        let successor = self.successor(turn, group, to)?;
        self.make_offer(group, successor);
        done()
    }

    pub(super) fn warm(&mut self, group: &Group, id: SessionId, term: Term) -> VerbResult {
        let session = self.session_of(id)?;
        let no_offer = || Refusal::NoOffer { group: group.clone() };
        let state = self.groups.get_mut(group).ok_or_else(no_offer)?;
        if state.term != term {
            return Err(no_offer());
        }
        let Office::Held { tenure } = &mut state.office else { return Err(no_offer()) };
        match &mut tenure.offer {
            Some(offer) if offer.to == session => offer.warm = true,
            Some(_) | None => return Err(no_offer()),
        }
        if let Some(leader) = self.sessions.get_mut(&tenure.session) {
            leader.epoch += 1;
        }
        done()
    }

    pub(super) fn transfer(
        &mut self,
        turn: &mut Turn,
        group: &Group,
        id: SessionId,
        term: Term,
        to: &Node,
    ) -> VerbResult {
        let session = self.session_of(id)?;
        self.check_leader(group, session, term)?;
        let successor = self.successor(turn, group, to)?;
        if let Some(state) = self.groups.get_mut(group) {
            state.heir = Some(successor);
        }
        self.vacate(turn, group, End::by_holder(Cause::Transferred));
        done()
    }

    /// The one standby of that name that can be heard.
    pub(super) fn successor(
        &self,
        turn: &Turn,
        group: &Group,
        to: &Node,
    ) -> Result<SessionNo, Refusal> {
        let line = self.groups.get(group).map(|state| state.line.as_slice()).unwrap_or_default();
        let mut named = line
            .iter()
            .map(|standby| standby.session)
            .filter(|session| self.sessions.get(session).is_some_and(|record| record.node == *to));
        let Some(successor) = named.next() else {
            return Err(Refusal::SuccessorUnknown { group: group.clone(), to: to.clone() });
        };
        let others = named.count() as u32;
        if others > 0 {
            return Err(Refusal::SuccessorAmbiguous {
                group: group.clone(),
                to: to.clone(),
                count: others + 1,
            });
        }
        if turn.is_silent(successor) {
            return Err(Refusal::SuccessorSilent { group: group.clone(), to: to.clone() });
        }
        Ok(successor)
    }

    /// Offers the office to a better candidate, once the leader has served its minimum tenure
    /// (semantics 16). It deposes nobody: the leader drains and transfers, or does not.
    pub(super) fn prefer(&mut self, turn: &mut Turn, group: &Group) {
        let Some(state) = self.groups.get(group) else { return };
        let Office::Held { tenure } = &state.office else { return };
        let goes = self.sessions.get(&tenure.session).is_none_or(|session| session.gone);
        if goes || tenure.preemption_window != PreemptionWindow::Open || tenure.offer.is_some() {
            return;
        }
        let leader_priority = tenure.priority;
        let Some(best) = self.best_standby(turn, group) else { return };
        let is_better =
            state.place_of(best).is_some_and(|place| state.line[place].priority > leader_priority);
        if !is_better {
            return;
        }
        self.make_offer(group, best);
        // The next automatic offer is as far away as the first one was.
        self.begin_season(turn, group);
        self.reindex(turn, group);
    }

    /// Offered again, a standby that is warm stays so. Everybody whose list this changes is told: the
    /// leader, who is asked, and who is not asked any more.
    pub(super) fn make_offer(&mut self, group: &Group, to: SessionNo) {
        let Some(state) = self.groups.get_mut(group) else { return };
        let Office::Held { tenure } = &mut state.office else { return };
        let before = tenure.offer;
        let warm = before.is_some_and(|offer| offer.to == to && offer.warm);
        tenure.offer = Some(Offer { to, warm });
        let other = before.map(|offer| offer.to).filter(|before| *before != to);
        for session in [Some(tenure.session), Some(to), other].into_iter().flatten() {
            if let Some(session) = self.sessions.get_mut(&session) {
                session.epoch += 1;
            }
        }
    }
}
