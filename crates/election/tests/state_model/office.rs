//! The model's offices: how one is granted, ended, filled and forgotten.

use regent_election::limits::HISTORY_PER_GROUP;
use regent_election::{Answer, Cause, Change, Group, Metadata, Reason, SessionNo};

use super::model::{Candidacy, Ending, Model, PreemptionWindow, Told};

/// Why and how a tenure ends.
#[derive(Clone, Debug)]
pub(crate) struct Farewell {
    pub(crate) cause: Cause,
    pub(crate) reason: Option<Reason>,
    /// Whether the holder itself says that it has stopped.
    pub(crate) stopped: bool,
}

impl Model {
    /// Writes down and tells who leads, as of this entry.
    pub(crate) fn announce(&mut self, name: &Group, cause: Cause, reason: Option<Reason>) {
        let holder = self.holder(name);
        let leader = holder.map(|one| self.session(one.session).node.clone());
        let metadata = holder.map_or(Metadata::NONE, |one| one.metadata.clone());
        let (revision, wall_ms) = (self.revision, self.turn.wall_ms);
        let group = self.group_mut(name);
        let term = group.term;
        let reason = reason.map(Box::new);
        group.history.push(Change {
            revision,
            wall_ms,
            term,
            leader: leader.clone(),
            cause,
            reason,
        });
        let surplus = group.history.len().saturating_sub(HISTORY_PER_GROUP);
        group.history.drain(..surplus);
        self.turn.told.push(Told { group: name.clone(), term, leader, metadata, cause });
    }

    /// The office goes to this candidacy, under the next term.
    pub(crate) fn grant(
        &mut self,
        serial: u64,
        accepted: bool,
        cause: Cause,
        reason: Option<Reason>,
    ) {
        let name = self.candidacy(serial).group.clone();
        assert!(self.holder(&name).is_none(), "the model granted {name} twice");
        let preemption_window =
            if accepted { self.preemption_window(&name) } else { PreemptionWindow::Never };
        let since = self.revision;
        let group = self.group_mut(&name);
        let term = group.term.next().expect("sequences are shorter than 2^53");
        group.term = term;
        group.heir = None;
        let one = self.candidacy(serial);
        one.holds = Some(super::model::Holding {
            term,
            since,
            accepted,
            preemption_window,
            offered: None,
            warm: false,
            ending: None,
        });
        self.announce(&name, cause, reason);
    }

    pub(crate) fn candidacy(&mut self, serial: u64) -> &mut Candidacy {
        self.candidacies.iter_mut().find(|one| one.serial == serial).expect("a known candidacy")
    }

    /// When a better candidate may be offered the office, counted from this entry.
    pub(crate) fn preemption_window(&self, name: &Group) -> PreemptionWindow {
        let policy = self.policy(name);
        match (policy.prefer_priority, policy.minimum_tenure_ms) {
            (false, _) => PreemptionWindow::Never,
            (true, 0) => PreemptionWindow::Open,
            (true, _) => PreemptionWindow::Waiting(self.revision),
        }
    }

    /// The holder knows, and may act.
    pub(crate) fn take_office(&mut self, name: &Group) {
        let preemption_window = self.preemption_window(name);
        if let Some(holding) = self.holding_mut(name)
            && !holding.accepted
        {
            holding.accepted = true;
            holding.preemption_window = preemption_window;
        }
    }

    /// Fills an office that is free, if anybody can be heard.
    pub(crate) fn fill(&mut self, name: &Group, cause: Cause, reason: Option<Reason>) -> bool {
        let is_free = self.is_open(name)
            && self.group(name).is_some_and(|group| group.delayed.is_none())
            && self.holder(name).is_none();
        let Some(serial) = self.best(name).map(|one| one.serial).filter(|_| is_free) else {
            return false;
        };
        self.grant(serial, false, cause, reason);
        true
    }

    /// Ends the tenure in office; the next one begins at once, unless a delay is set.
    pub(crate) fn vacate(&mut self, name: &Group, end: Farewell) {
        let holder = self.holder(name).expect("somebody to leave").clone();
        self.candidacies.retain(|one| one.serial != holder.serial);
        let holding = holder.holds.expect("a holder holds");
        let delays = self.policy(name).lock_delay_ms > 0 && holding.accepted && !end.stopped;
        let revision = self.revision;
        let group = self.group_mut(name);
        group.heir = group.heir.or(holding.offered);
        if group.doomed {
            if end.cause == Cause::Forced {
                self.announce(name, end.cause, end.reason);
            }
            self.forget(name);
        } else if delays {
            group.delayed = Some(revision);
            self.announce(name, end.cause, end.reason);
        } else if !self.fill(name, end.cause, end.reason.clone()) {
            self.announce(name, end.cause, end.reason);
        }
    }

    /// A group is gone; its terms are not.
    pub(crate) fn forget(&mut self, name: &Group) {
        let group = self.group(name).expect("a known group");
        let term = group.term;
        self.floor = self.floor.max(term);
        self.groups.retain(|group| group.name != *name);
        self.turn.told.push(Told {
            group: name.clone(),
            term,
            leader: None,
            metadata: Metadata::NONE,
            cause: Cause::Deleted,
        });
    }

    /// Tells the holder to stop. One that never accepted cannot have acted: it goes at once.
    pub(crate) fn tell_to_stop(
        &mut self,
        name: &Group,
        cause: Cause,
        reason: Option<Reason>,
    ) -> Answer {
        let since = self.revision;
        let holding = self.holding_mut(name).expect("somebody to tell");
        if holding.ending.is_none() && !holding.accepted {
            self.vacate(name, Farewell { cause, reason, stopped: true });
            return Answer::Done;
        }
        holding.ending.get_or_insert(Ending { since, cause, reason });
        self.ending_answer(name)
    }

    pub(crate) fn ending_answer(&self, name: &Group) -> Answer {
        match self.holder(name) {
            Some(one) if one.holds.as_ref().is_some_and(|holds| holds.ending.is_some()) => {
                Answer::Ending { within_ms: self.session(one.session).ttl_ms_longest }
            }
            Some(_) | None => Answer::Done,
        }
    }

    /// A session ends, with all it holds and stands for.
    pub(crate) fn end_session(&mut self, no: SessionNo, cause: Cause) {
        for name in self.places(no, true) {
            let end = self.farewell(&name, cause, cause == Cause::Resigned);
            self.vacate(&name, end);
        }
        self.candidacies.retain(|one| one.session != no);
        let id = self.session(no).id;
        self.ended.push(id);
        self.sessions.retain(|session| session.no != no);
    }

    /// A tenure that was told to stop ends for the cause it was told.
    pub(crate) fn farewell(&self, name: &Group, cause: Cause, stopped: bool) -> Farewell {
        match self.holding(name).and_then(|holding| holding.ending.clone()) {
            Some(ending) => Farewell { cause: ending.cause, reason: ending.reason, stopped },
            None => Farewell { cause, reason: None, stopped },
        }
    }

    /// A policy has changed: whoever no longer fits leaves the line, or is told to stop.
    pub(crate) fn enforce(&mut self, name: &Group) {
        let policy = self.policy(name).clone();
        let fits = |model: &Self, session: SessionNo| {
            let session = model.session(session);
            policy.allows(&session.node) && policy.fits(session.ttl_ms)
        };
        let misfits: Vec<u64> = self
            .line(name)
            .into_iter()
            .filter(|one| !fits(self, one.session))
            .map(|one| one.serial)
            .collect();
        self.candidacies.retain(|one| !misfits.contains(&one.serial));
        if self.holder(name).is_some_and(|one| !fits(self, one.session)) {
            self.tell_to_stop(name, Cause::Policy, None);
        }
        let preemption_window = self.preemption_window(name);
        if let Some(holding) = self.holding_mut(name)
            && holding.accepted
            && holding.ending.is_none()
        {
            holding.preemption_window = preemption_window;
        }
    }

    /// Offers the office to somebody better, if it is the season and nobody has been offered it.
    pub(crate) fn prefer(&mut self, name: &Group) {
        let Some(holder) = self.holder(name) else { return };
        let holding = holder.holds.as_ref().expect("a holder holds");
        let is_season = holding.accepted
            && holding.ending.is_none()
            && holding.preemption_window == PreemptionWindow::Open
            && holding.offered.is_none();
        let better = self.best(name).filter(|best| self.priority(best) > self.priority(holder));
        if let Some(to) = better.map(|one| one.session).filter(|_| is_season) {
            let preemption_window = self.preemption_window(name);
            let holding = self.holding_mut(name).expect("a holder holds");
            holding.offered = Some(to);
            holding.warm = false;
            holding.preemption_window = preemption_window;
        }
    }

    /// Promises to those who no longer stand are void.
    pub(crate) fn drop_void_promises(&mut self) {
        for name in self.names() {
            let heir = self.group(&name).and_then(|group| group.heir);
            if heir.is_some_and(|heir| self.stands(&name, heir).is_none()) {
                self.group_mut(&name).heir = None;
            }
            let offered = self.holding(&name).and_then(|holding| holding.offered);
            if offered.is_some_and(|to| self.stands(&name, to).is_none())
                && let Some(holding) = self.holding_mut(&name)
            {
                holding.offered = None;
                holding.warm = false;
            }
        }
    }
}
