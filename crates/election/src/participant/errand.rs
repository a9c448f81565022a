//! Requests about one group: which comes next, when it is sent, and when it is tried again.

use std::time::Duration;

use super::candidacy::{Errand, Seat, StandbyState, Status, Then, What};
use super::hand_over::{HandOver, Offered};
use super::request::{GroupRequest, Request, Verb};
use super::words::{Attempt, Why};
use super::{Participant, Pending};
use crate::limits::{REQUESTS_IN_FLIGHT_MAX, TRIES_REMEMBERED};
use crate::name::{Group, RequestId, SessionId};
use crate::store::{Campaign, CampaignSession};
use crate::term::Term;

impl Participant {
    /// Decides what the group needs next, if nothing is under way. Everything that changes a group
    /// ends here.
    pub(super) fn plan(&mut self, group: &Group) {
        let Some(candidacy) = self.groups.get(group) else { return };
        let stands = candidacy.wants && self.healthy;
        if candidacy.errand.is_some() && (stands || candidacy.is_deciding()) {
            self.reschedule(group);
            return;
        }
        let is_open = self.session.open().is_some();
        match candidacy.seat.clone() {
            Seat::Standby(StandbyState::Out { .. }) if !candidacy.wants => self.forget(group),
            Seat::Standby(StandbyState::Out { campaign_at }) => {
                if stands && is_open && campaign_at.max(candidacy.damped_until) <= self.now {
                    let (priority, metadata) = (candidacy.priority, candidacy.metadata.clone());
                    self.begin_errand(group, What::Campaign { priority, metadata });
                }
            }
            Seat::Standby(StandbyState::Standing) if !stands => {
                self.begin_errand(group, What::Verb(Verb::Withdraw));
            }
            Seat::Standby(StandbyState::Standing) => {
                if let Some(term) = candidacy.offered.as_ref().and_then(Offered::to_tell) {
                    self.begin_errand(group, What::Verb(Verb::Warm(term)));
                }
            }
            Seat::Standby(StandbyState::Won { term }) if !self.is_welcome(group, term) => {
                self.decline(group, term);
            }
            Seat::Leading { term } | Seat::Jeopardy { term } => {
                if let Some(to) = candidacy.hand_over.as_ref().and_then(HandOver::to_offer) {
                    let to = to.clone();
                    self.begin_errand(group, What::Verb(Verb::Offer(term, to)));
                }
            }
            Seat::Stopped { term, then } if is_open => {
                let verb = match then {
                    Then::Resign => Verb::Resign(term),
                    Then::Transfer(to) => Verb::Transfer(term, to),
                };
                self.begin_errand(group, What::Verb(verb));
            }
            Seat::Stopped { .. } => self.stand_by_again(group),
            Seat::Lost { term } => self.plan_after_loss(group, term),
            Seat::Standby(StandbyState::Won { .. }) | Seat::Stopping { .. } => {}
        }
        self.reschedule(group);
    }

    /// A lost term is resigned until the store knows, and the next campaign waits until nothing of
    /// the work is left: one process must not do the same work twice at once.
    fn plan_after_loss(&mut self, group: &Group, term: Term) {
        let is_owed =
            self.session.open().is_some_and(|open| open.disowned.contains(&(group.clone(), term)));
        let is_working = self.groups.get(group).is_some_and(|c| c.work.is_some());
        if is_owed {
            self.begin_errand(group, What::Verb(Verb::Resign(term)));
        } else if !is_working {
            self.stand_by_again(group);
        }
    }

    /// Starts a request under an id of its own. Without an open session there is nobody to ask.
    pub(super) fn begin_errand(&mut self, group: &Group, what: What) {
        if self.session.open().is_none() {
            return;
        }
        self.drop_errand(group);
        // Whoever asks anew does not act on what it had been told before.
        self.won.remove(group);
        let request = self.fresh_request();
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        // A queue of campaigns must not delay a resignation.
        match what {
            What::Campaign { .. } => self.ready.push_back(group.clone()),
            What::Verb(_) => self.ready.push_front(group.clone()),
        }
        candidacy.errand =
            Some(Errand { what, request, tries: 0, attempts: Vec::new(), status: Status::Ready });
        self.reschedule(group);
    }

    /// An id that this session has not used: its number never repeats within this process, and the
    /// session belongs to no other.
    pub(super) fn fresh_request(&mut self) -> RequestId {
        self.errands_made += 1;
        RequestId::new(self.revision, &format!("{:x}", self.errands_made))
            .expect("sixteen hexadecimal digits at most are a nonce")
    }

    /// Forgets an errand: answers to it find nothing any more.
    pub(super) fn drop_errand(&mut self, group: &Group) -> Option<Errand> {
        let errand = self.groups.get_mut(group)?.errand.take()?;
        for attempt in &errand.attempts {
            self.pending.remove(attempt);
        }
        self.in_flight.remove(group);
        Some(errand)
    }

    /// What time brings about in one group. It has just been taken from the agenda.
    pub(super) fn group_due(&mut self, group: &Group) {
        let now = self.now;
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        candidacy.due_at = None;
        if matches!(candidacy.seat, Seat::Stopping { by, .. } if by <= now) {
            self.lose(group, Why::StopOverrun);
        }
        self.last_resort(group);
        self.hand_over_due(group);
        let status = self.groups.get(group).and_then(|c| c.errand.as_ref()).map(|e| e.status);
        match status {
            Some(Status::InFlight { until }) if until <= now => self.try_again(group, None),
            Some(Status::Waiting { until }) if until <= now => self.make_ready(group),
            Some(Status::InFlight { .. } | Status::Waiting { .. } | Status::Ready) | None => {}
        }
        self.plan(group);
    }

    fn make_ready(&mut self, group: &Group) {
        if let Some(errand) = self.groups.get_mut(group).and_then(|c| c.errand.as_mut()) {
            errand.status = Status::Ready;
            self.ready.push_back(group.clone());
        }
    }

    /// The newest try came to nothing, or to nothing certain: the same request goes out again later.
    pub(super) fn try_again(&mut self, group: &Group, told: Option<Duration>) {
        self.in_flight.remove(group);
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        let Some(errand) = &mut candidacy.errand else { return };
        let pause = told.unwrap_or_else(|| self.dice.back_off(errand.tries, self.budget.ttl()));
        errand.status = Status::Waiting { until: self.now + pause };
        self.reschedule(group);
    }

    /// Sends errands as far as there is room.
    pub(super) fn send_ready(&mut self) {
        while self.in_flight.len() < REQUESTS_IN_FLIGHT_MAX
            && let Some(group) = self.ready.pop_front()
        {
            self.send_errand(&group);
        }
    }

    fn send_errand(&mut self, group: &Group) {
        let Some(session) = self.session.open().map(|open| open.id) else { return };
        let Some(errand) = self.groups.get(group).and_then(|c| c.errand.as_ref()) else { return };
        // Dropped, or in the queue twice.
        if errand.status != Status::Ready {
            return;
        }
        let request = self.request_of(group, session, errand);
        let attempt = self.send(Pending::Errand(group.clone()), request);
        self.in_flight.insert(group.clone());
        let until = self.now + self.budget.request_timeout();
        let Some(errand) = self.groups.get_mut(group).and_then(|c| c.errand.as_mut()) else {
            return;
        };
        errand.tries = errand.tries.saturating_add(1);
        errand.status = Status::InFlight { until };
        errand.attempts.push(attempt);
        let forgotten: Option<Attempt> =
            (errand.attempts.len() > TRIES_REMEMBERED).then(|| errand.attempts.remove(0));
        if let Some(forgotten) = forgotten {
            self.pending.remove(&forgotten);
        }
        self.reschedule(group);
    }

    fn request_of(&self, group: &Group, session: SessionId, errand: &Errand) -> Request {
        let (group, request) = (group.clone(), errand.request.clone());
        match &errand.what {
            What::Campaign { priority, metadata } => Request::Campaign(Campaign {
                group,
                node: self.node.clone(),
                session: CampaignSession::Own(session),
                ttl_ms: None,
                wait: None,
                priority: *priority,
                metadata: metadata.clone(),
                request: Some(request),
            }),
            What::Verb(verb) => {
                Request::Group(GroupRequest { group, session, request, verb: verb.clone() })
            }
        }
    }

    /// Gives the group its place in the agenda.
    pub(super) fn reschedule(&mut self, group: &Group) {
        let may_campaign = self.healthy && self.session.open().is_some();
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        let due_at = candidacy.next_at(may_campaign);
        if candidacy.due_at == due_at {
            return;
        }
        if let Some(before) = std::mem::replace(&mut candidacy.due_at, due_at) {
            self.agenda.remove(&(before, group.clone()));
        }
        if let Some(due_at) = due_at {
            self.agenda.insert((due_at, group.clone()));
        }
    }
}
