//! The office: where every tenure begins and ends.
//!
//! Promise kept here (S2): a term is granted once, and the next one is higher, because `begin_tenure`
//! is the only function that writes the `GroupState::term` of an open group, and it only ever adds one.

use super::group::{Marks, Office, PreemptionWindow, Standby, Tenure};
use super::{State, Turn};
use crate::command::WaitKind;
use crate::mutant::{self, Mutant};
use crate::name::{Group, Reason, SessionNo};
use crate::outcome::{Answer, Cause, Change, Effect, OfficeChange};

/// How a tenure came to its end.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) cause: Cause,
    pub(super) reason: Option<Box<Reason>>,
    /// Whether the holder is known to have stopped. If not, the lock delay applies.
    pub(super) stopped: bool,
    /// Whether the holder asked for it; if not, its epoch rises so that it looks.
    pub(super) asked: bool,
}

impl End {
    /// The holder ended it itself.
    pub(super) const fn by_holder(cause: Cause) -> Self {
        Self { cause, reason: None, stopped: true, asked: true }
    }

    /// It was ended for the holder.
    pub(super) const fn by_others(cause: Cause, stopped: bool) -> Self {
        Self { cause, reason: None, stopped, asked: false }
    }
}

impl State {
    /// Ends the tenure in office and fills the office in the same entry, unless a delay is set or
    /// the group goes with it. Without a tenure it does nothing.
    pub(super) fn vacate(&mut self, turn: &mut Turn, group: &Group, end: End) {
        let Some(state) = self.groups.get_mut(group) else { return };
        let Some(tenure) = state.office.tenure().cloned() else { return };
        state.office = Office::Vacant;
        // An offer lapses with its tenure, but the standby that was asked comes first.
        if let Some(offer) = tenure.offer
            && state.heir.is_none()
        {
            state.heir = Some(offer.to);
        }
        let has_acted = tenure.accepted;
        if !has_acted {
            turn.time_office(group, OfficeChange::NotAccepted);
        }
        let cause = end.cause;
        if let Some(session) = self.sessions.get_mut(&tenure.session) {
            session.leads.remove(group);
            if !end.asked {
                session.epoch += 1;
            }
        }
        if state.doomed {
            // The group goes, but that two may have acted is told all the same (S4).
            if end.cause == Cause::Forced {
                self.announce(turn, group, end.cause, end.reason);
            }
            self.forget(turn, group);
        } else {
            let delay_ms = self.policy_of(&self.groups[group]).lock_delay_ms;
            if has_acted && !end.stopped && delay_ms > 0 {
                self.delay(turn, group, delay_ms, end.cause, end.reason);
            } else {
                self.fill(turn, group, end.cause, end.reason);
            }
        }
        if let Some(state) = self.groups.get(group).filter(|_| has_acted) {
            let is_wanted = state.marks.contended;
            let session = tenure.session;
            turn.time_office(group, OfficeChange::Vacated { session, cause, is_wanted });
        }
        self.settle(turn, tenure.session);
    }

    /// Leaves the office empty for the lock delay.
    fn delay(
        &mut self,
        turn: &mut Turn,
        group: &Group,
        for_ms: u64,
        cause: Cause,
        reason: Option<Box<Reason>>,
    ) {
        let Some(state) = self.groups.get_mut(group) else { return };
        let since = turn.revision;
        state.office = Office::Delayed { since };
        turn.effects.push(Effect::Wait {
            group: group.clone(),
            kind: WaitKind::LockDelay,
            since,
            for_ms,
        });
        self.announce(turn, group, cause, reason);
        self.reindex(turn, group);
    }

    /// Gives a vacant office to the best standby that is not silent, or announces that nobody leads.
    ///
    /// `cause` is why the office is vacant; `Elected` means that it had been, and then an office
    /// that stays vacant is no change to announce.
    pub(super) fn fill(
        &mut self,
        turn: &mut Turn,
        group: &Group,
        cause: Cause,
        reason: Option<Box<Reason>>,
    ) {
        let Some(state) = self.groups.get(group) else { return };
        if state.office != Office::Vacant {
            return;
        }
        let may_grant = state.term.next().is_some() && state.is_open();
        let next = self.best_standby(turn, group).filter(|_| may_grant);
        match next.and_then(|session| self.groups.get_mut(group)?.dequeue(session)) {
            Some(standby) => {
                if let Some(session) = self.sessions.get_mut(&standby.session) {
                    session.stands.remove(group);
                }
                self.begin_tenure(turn, group, standby, false, cause, reason);
            }
            None => {
                if cause != Cause::Elected {
                    self.announce(turn, group, cause, reason);
                }
                self.reindex(turn, group);
            }
        }
    }

    /// Who would follow: the heir if it can, otherwise the first in line that can.
    pub(super) fn best_standby(&self, turn: &Turn, group: &Group) -> Option<SessionNo> {
        let state = self.groups.get(group)?;
        let can = |standby: &&Standby| {
            !turn.is_silent(standby.session)
                && self.sessions.get(&standby.session).is_some_and(|session| !session.gone)
        };
        let heir = state
            .heir
            .and_then(|heir| state.line.iter().find(|standby| standby.session == heir).filter(can));
        heir.or_else(|| state.line.iter().find(can)).map(|standby| standby.session)
    }

    /// Grants the next term. The only place that raises a group's term.
    pub(super) fn begin_tenure(
        &mut self,
        turn: &mut Turn,
        group: &Group,
        standby: Standby,
        accepted: bool,
        cause: Cause,
        reason: Option<Box<Reason>>,
    ) {
        let Some(session) = self.sessions.get_mut(&standby.session) else { return };
        let Some(state) = self.groups.get_mut(group) else { return };
        let Some(term) = state.term.next() else { return };
        state.term = term;
        state.heir = None;
        state.office = Office::Held {
            tenure: Tenure {
                session: standby.session,
                payer: standby.payer,
                priority: standby.priority,
                claimed: standby.claimed,
                arrived: standby.arrived,
                metadata: standby.metadata,
                since: turn.revision,
                accepted,
                preemption_window: PreemptionWindow::Never,
                offer: None,
            },
        };
        session.leads.insert(group.clone());
        if accepted {
            self.begin_season(turn, group);
        } else {
            session.epoch += 1;
            turn.effects.push(Effect::Wait {
                group: group.clone(),
                kind: WaitKind::Acceptance,
                since: turn.revision,
                for_ms: session.ttl_ms / 3,
            });
        }
        self.announce(turn, group, cause, reason);
        self.reindex(turn, group);
        self.prefer(turn, group);
    }

    /// The holder of a `Held` office knows and may act. Doing it twice changes nothing.
    pub(super) fn take_office(&mut self, turn: &mut Turn, group: &Group) {
        let Some(state) = self.groups.get_mut(group) else { return };
        let Office::Held { tenure } = &mut state.office else { return };
        if tenure.accepted {
            return;
        }
        tenure.accepted = true;
        self.begin_season(turn, group);
        self.reindex(turn, group);
        self.prefer(turn, group);
    }

    /// Starts to count the minimum tenure, if the policy prefers anybody at all.
    pub(super) fn begin_season(&mut self, turn: &mut Turn, group: &Group) {
        let Some(state) = self.groups.get(group) else { return };
        let policy = self.policy_of(state);
        let preemption_window = match (policy.prefer_priority, policy.minimum_tenure_ms) {
            (false, _) => PreemptionWindow::Never,
            (true, 0) => PreemptionWindow::Open,
            (true, for_ms) => {
                turn.effects.push(Effect::Wait {
                    group: group.clone(),
                    kind: WaitKind::MinimumTenure,
                    since: turn.revision,
                    for_ms,
                });
                PreemptionWindow::Waiting { since: turn.revision }
            }
        };
        if let Some(Office::Held { tenure }) = self.groups.get_mut(group).map(|g| &mut g.office) {
            tenure.preemption_window = preemption_window;
        }
    }

    /// Tells the holder to stop and waits for it; a holder that never accepted has nothing to stop.
    pub(super) fn begin_ending(
        &mut self,
        turn: &mut Turn,
        group: &Group,
        cause: Cause,
        reason: Option<Box<Reason>>,
    ) -> Answer {
        let Some(state) = self.groups.get_mut(group) else { return Answer::Done };
        let Office::Held { tenure } = &state.office else { return self.ending_answer(group) };
        if !tenure.accepted || mutant::is(Mutant::EndingSkipped) {
            let end = End { reason, ..End::by_others(cause, true) };
            self.vacate(turn, group, end);
            return Answer::Done;
        }
        let tenure = tenure.clone();
        let Some(session) = self.sessions.get_mut(&tenure.session) else { return Answer::Done };
        session.epoch += 1;
        let for_ms = session.ttl_ms_longest;
        let since = turn.revision;
        state.office = Office::Ending { tenure, since, cause, reason };
        turn.effects.push(Effect::Wait {
            group: group.clone(),
            kind: WaitKind::Ending,
            since,
            for_ms,
        });
        self.reindex(turn, group);
        Answer::Ending { within_ms: for_ms }
    }

    /// How long the tenure in office may still take to end; `Done` if none is ending.
    pub(super) fn ending_answer(&self, group: &Group) -> Answer {
        match self.groups.get(group).map(|state| &state.office) {
            Some(Office::Ending { tenure, .. }) => Answer::Ending {
                within_ms: self
                    .sessions
                    .get(&tenure.session)
                    .map_or(0, |session| session.ttl_ms_longest),
            },
            Some(Office::Vacant | Office::Delayed { .. } | Office::Held { .. }) | None => {
                Answer::Done
            }
        }
    }

    /// Why the tenure in office is ending, if it is.
    pub(super) fn cause_of_ending(&self, group: &Group) -> Option<(Cause, Option<Box<Reason>>)> {
        match &self.groups.get(group)?.office {
            Office::Ending { cause, reason, .. } => Some((*cause, reason.clone())),
            Office::Vacant | Office::Delayed { .. } | Office::Held { .. } => None,
        }
    }

    /// Tells watchers and the history who leads as of this entry.
    pub(super) fn announce(
        &mut self,
        turn: &mut Turn,
        group: &Group,
        cause: Cause,
        reason: Option<Box<Reason>>,
    ) {
        let Some(state) = self.groups.get_mut(group) else { return };
        let leader = state.office.tenure().and_then(|tenure| {
            let session = self.sessions.get(&tenure.session)?;
            Some((session.node.clone(), tenure.metadata.clone()))
        });
        state.remember(Change {
            revision: turn.revision,
            wall_ms: turn.wall_ms,
            term: state.term,
            leader: leader.as_ref().map(|(node, _)| node.clone()),
            cause,
            reason,
        });
        turn.tell(group, state.term, leader, cause);
    }

    /// Takes a session out of a line by its own wish, or because it ends. If the office was offered
    /// to it, the leader must hear that the offer lapsed, and somebody else may be due one.
    pub(super) fn leave_line(&mut self, turn: &mut Turn, group: &Group, session: SessionNo) {
        let Some(state) = self.groups.get_mut(group) else { return };
        let offered_by = state.offered_by();
        if state.dequeue(session).is_none() {
            return;
        }
        if let Some(record) = self.sessions.get_mut(&session) {
            record.stands.remove(group);
        }
        self.tell_lapse(group, offered_by);
        self.reindex(turn, group);
        self.prefer(turn, group);
    }

    /// Takes everybody out of a line who may not stay, without their asking.
    pub(super) fn dismiss(
        &mut self,
        turn: &mut Turn,
        group: &Group,
        stays: impl Fn(SessionNo) -> bool,
    ) {
        let Some(state) = self.groups.get_mut(group) else { return };
        let offered_by = state.offered_by();
        let left = state.dismiss(stays);
        self.tell_lapse(group, offered_by);
        for session in left {
            if let Some(record) = self.sessions.get_mut(&session) {
                record.stands.remove(group);
                record.epoch += 1;
            }
            self.settle(turn, session);
        }
        self.reindex(turn, group);
    }

    /// Raises the epoch of the leader that had made an offer, if none is left of it.
    fn tell_lapse(&mut self, group: &Group, offered_by: Option<SessionNo>) {
        let is_left = self.groups.get(group).is_some_and(|state| state.offered_by().is_some());
        if let Some(leader) = offered_by
            && !is_left
            && let Some(record) = self.sessions.get_mut(&leader)
        {
            record.epoch += 1;
        }
    }

    /// Ends a passing session that neither leads nor stands any more.
    pub(super) fn settle(&mut self, turn: &mut Turn, session: SessionNo) {
        let Some(record) = self.sessions.get(&session) else { return };
        let is_over =
            record.passing && !record.gone && record.leads.is_empty() && record.stands.is_empty();
        if is_over {
            self.forget_session(turn, session);
        }
    }

    /// Brings the index up to date after a change to a group, and tells how that changes its office. That a leader is
    /// gone is told by [`State::vacate`], which knows whose it was.
    pub(super) fn reindex(&mut self, turn: &mut Turn, group: &Group) {
        let Some((before, after)) = self.mark(group) else { return };
        let change = match (before.led, after.led, before.contended, after.contended) {
            (false, true, was_wanted, _) => OfficeChange::Filled { was_wanted },
            (false, false, false, true) => OfficeChange::Wanted,
            (false, false, true, false) => OfficeChange::Unwanted,
            (true, _, _, _) | (false, false, true, true) | (false, false, false, false) => return,
        };
        turn.time_office(group, change);
    }

    /// Brings the index up to date: what it said of a group, and says now.
    pub(super) fn mark(&mut self, group: &Group) -> Option<(Marks, Marks)> {
        let state = self.groups.get_mut(group)?;
        let marks = Marks {
            waiting: match &state.office {
                Office::Vacant => false,
                Office::Delayed { .. } | Office::Ending { .. } => true,
                Office::Held { tenure } => {
                    !tenure.accepted
                        || matches!(tenure.preemption_window, PreemptionWindow::Waiting { .. })
                }
            },
            // Behind a closed door nobody waits for a voice.
            stranded: state.office == Office::Vacant && !state.line.is_empty() && state.is_open(),
            led: state.office.tenure().is_some_and(|tenure| tenure.accepted),
            contended: state.office.tenure().is_some() || !state.line.is_empty(),
        };
        let before = std::mem::replace(&mut state.marks, marks);
        self.index.note(group, before, marks);
        Some((before, marks))
    }
}

impl super::Index {
    /// Accounts for one group's change of marks.
    pub(super) fn note(&mut self, group: &Group, before: Marks, after: Marks) {
        for (set, was, is) in [
            (&mut self.waiting, before.waiting, after.waiting),
            (&mut self.stranded, before.stranded, after.stranded),
        ] {
            match (was, is) {
                (false, true) => {
                    set.insert(group.clone());
                }
                (true, false) => {
                    set.remove(group);
                }
                (true, true) | (false, false) => {}
            }
        }
        for (count, was, is) in [
            (&mut self.led, before.led, after.led),
            (&mut self.contended, before.contended, after.contended),
        ] {
            match (was, is) {
                (false, true) => *count += 1,
                (true, false) => *count -= 1,
                (true, true) | (false, false) => {}
            }
        }
    }
}
