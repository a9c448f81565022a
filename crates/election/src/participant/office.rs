//! The phases of one group: taking office, warning, stopping, losing, settling.

use std::time::Duration;

use super::candidacy::{Candidacy, Seat, StandbyState, Then, What, Work};
use super::heartbeat::{Lease, Stage};
use super::request::Verb;
use super::words::{Action, Phase, Transition, Trouble, Why};
use super::{Damped, Participant};
use crate::limits::{MINIMUM_TENURE_MS_DEFAULT, RETRY_MS_MIN_DEFAULT};
use crate::moment::Moment;
use crate::mutant::{self, Mutant};
use crate::name::{Group, Node};
use crate::term::Term;

/// How long after the pause a failure is remembered. Whoever could not lead for so long disturbed nobody.
const DAMPING_REMEMBERED: Duration = Duration::from_millis(2 * MINIMUM_TENURE_MS_DEFAULT);

impl Participant {
    /// Whether this process would act under this term if it had it.
    pub(super) fn is_welcome(&self, group: &Group, term: Term) -> bool {
        let wants = |c: &Candidacy| c.wants && term > c.over && c.work.is_none();
        self.healthy && self.groups.get(group).is_some_and(wants)
    }

    /// The store has acknowledged that this session leads; acting begins with a lease to act on.
    pub(super) fn won(&mut self, group: &Group, term: Term) {
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        candidacy.set_line(StandbyState::Won { term });
        candidacy.tries = 0;
        if mutant::is(Mutant::ElectionExtends) {
            self.extend(Lease { sent_at: self.now, until: self.now + self.budget.valid_for() });
        }
        self.won.insert(group.clone());
        self.take_office(group);
    }

    /// Begins to lead, if the term is welcome and enough of the lease is left.
    pub(super) fn take_office(&mut self, group: &Group) {
        let stage = self.stage();
        let Some(candidacy) = self.groups.get(group) else { return };
        let Seat::Standby(StandbyState::Won { term }) = candidacy.seat else {
            self.won.remove(group);
            return;
        };
        if !self.is_welcome(group, term) {
            self.decline(group, term);
            return;
        }
        match stage {
            Stage::Fresh | Stage::Jeopardy => {}
            // The next acknowledged heartbeat decides.
            Stage::Stopping | Stage::Over => return,
        }
        self.won.remove(group);
        self.leading.insert(group.clone());
        self.working.insert(group.clone());
        self.offer_is_over(group);
        if let Some(candidacy) = self.groups.get_mut(group) {
            candidacy.work = Some(Work { term, stop_by: None, overran: false });
            candidacy.led_since = Some(self.now);
        }
        self.move_to(group, Seat::Leading { term }, Why::Elected);
        self.warn(group, stage);
    }

    /// A term that nobody here will act under is given back at once.
    pub(super) fn decline(&mut self, group: &Group, term: Term) {
        self.won.remove(group);
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        let was_lost = term <= candidacy.over;
        candidacy.over = candidacy.over.max(term);
        candidacy.set_line(StandbyState::Won { term });
        if was_lost && mutant::is(Mutant::LostNotDisowned) {
            return;
        }
        self.begin_errand(group, What::Verb(Verb::Resign(term)));
    }

    /// Moves a leader between leading and jeopardy.
    pub(super) fn warn(&mut self, group: &Group, stage: Stage) {
        let Some(candidacy) = self.groups.get(group) else { return };
        match (&candidacy.seat, stage) {
            (Seat::Leading { term }, Stage::Jeopardy) => {
                self.move_to(group, Seat::Jeopardy { term: *term }, Why::RenewalsFail);
            }
            (Seat::Jeopardy { term }, Stage::Fresh) => {
                self.move_to(group, Seat::Leading { term: *term }, Why::Renewed);
            }
            (_, Stage::Fresh | Stage::Jeopardy | Stage::Stopping | Stage::Over) => {}
        }
    }

    /// Tells the work to stop. From here on no renewal moves the end of this term.
    pub(super) fn begin_stop(&mut self, group: &Group, why: Why, then: Then) {
        let Some((term, by)) = self.valid_until(group) else { return };
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        if candidacy.seat.led().is_none() {
            return;
        }
        candidacy.hand_over = None;
        self.leading.remove(group);
        self.drop_errand(group);
        self.move_to(group, Seat::Stopping { term, by, then }, why);
        self.stop_work(group, by);
        self.reschedule(group);
    }

    /// The work of a group has ended: it acts no more, so the term can be given up cleanly.
    pub(super) fn work_ended(&mut self, group: &Group) {
        self.working.remove(group);
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        candidacy.work = None;
        let then = match &candidacy.seat {
            Seat::Leading { .. } | Seat::Jeopardy { .. } => Then::Resign,
            Seat::Stopping { then, .. } => then.clone(),
            Seat::Standby(_) | Seat::Stopped { .. } | Seat::Lost { .. } => {
                self.plan(group);
                return;
            }
        };
        let term = candidacy.seat.term();
        candidacy.over = candidacy.over.max(term);
        candidacy.hand_over = None;
        self.leading.remove(group);
        self.drop_errand(group);
        // Validity ends here, before anything is sent and whatever is answered (semantics 14).
        self.move_to(group, Seat::Stopped { term, then: then.clone() }, Why::WorkEnded);
        match (then, self.session.open_mut()) {
            (Then::Resign, Some(open)) => {
                open.disowned.insert((group.clone(), term));
            }
            // Disowning would race with the transfer and let the line choose another successor.
            (Then::Transfer(_), _) | (Then::Resign, None) => {}
        }
        self.plan(group);
    }

    /// A term is gone for good.
    pub(super) fn lose(&mut self, group: &Group, why: Why) {
        let Some((term, until)) = self.valid_until(group) else { return };
        let by = until.min(self.now + self.budget.stop_grace());
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        candidacy.over = candidacy.over.max(term);
        candidacy.hand_over = None;
        self.leading.remove(group);
        self.drop_errand(group);
        self.move_to(group, Seat::Lost { term }, why);
        self.stop_work(group, by);
        self.last_resort(group);
        if let Some(open) = self.session.open_mut()
            && !mutant::is(Mutant::LostNotDisowned)
        {
            open.disowned.insert((group.clone(), term));
        }
        self.plan(group);
    }

    /// Loses everything that is held; says whether anything was.
    pub(super) fn lose_all(&mut self, why: Why) -> bool {
        let held: Vec<Group> = self
            .groups
            .iter()
            .filter(|(_, candidacy)| candidacy.seat.held().is_some())
            .map(|(group, _)| group.clone())
            .collect();
        for group in &held {
            self.lose(group, why);
        }
        !held.is_empty()
    }

    /// The store knows that this session is done with this term.
    pub(super) fn settled(&mut self, group: &Group, term: Term) {
        if let Some(open) = self.session.open_mut() {
            open.disowned.remove(&(group.clone(), term));
        }
        let Some(candidacy) = self.groups.get(group) else { return };
        match candidacy.seat {
            Seat::Stopped { term: own, .. } if own == term => {
                self.drop_errand(group);
                self.stand_by_again(group);
            }
            Seat::Lost { term: own } if own == term => {
                self.drop_errand(group);
                self.plan(group);
            }
            Seat::Standby(StandbyState::Won { term: own }) if own == term => {
                self.drop_errand(group);
                self.out_of_line(group);
            }
            Seat::Standby(_)
            | Seat::Leading { .. }
            | Seat::Jeopardy { .. }
            | Seat::Stopping { .. }
            | Seat::Stopped { .. }
            | Seat::Lost { .. } => {}
        }
    }

    /// The store knows nothing of this standby any more: it campaigns again after a pause.
    pub(super) fn out_of_line(&mut self, group: &Group) {
        self.won.remove(group);
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        candidacy.tries = candidacy.tries.saturating_add(1);
        let pause = self.dice.back_off(candidacy.tries, self.budget.ttl());
        candidacy.set_line(StandbyState::Out { campaign_at: self.now + pause });
        self.plan(group);
    }

    /// Back to the start after a term, however it ended.
    pub(super) fn stand_by_again(&mut self, group: &Group) {
        let Some(candidacy) = self.groups.get(group) else { return };
        let low = Duration::from_millis(RETRY_MS_MIN_DEFAULT);
        let pause = match candidacy.seat.phase() {
            // Whoever gave the office up lets the others go first.
            Phase::Stopped => self.dice.between(low, self.budget.ttl() / 2),
            Phase::Standby | Phase::Leading | Phase::Jeopardy | Phase::Stopping | Phase::Lost => {
                self.dice.back_off(1, self.budget.ttl())
            }
        };
        let campaign_at = self.now + pause;
        if candidacy.seat.phase() == Phase::Stopped && !candidacy.wants {
            // It leaves as stopped: standing by again would promise another campaign.
            self.forget(group);
            return;
        }
        self.move_to(group, Seat::Standby(StandbyState::Out { campaign_at }), Why::Settled);
        self.plan(group);
    }

    /// Removes a group that nobody wants and the store knows nothing of.
    pub(super) fn forget(&mut self, group: &Group) {
        self.drop_errand(group);
        self.offer_is_over(group);
        let Some(candidacy) = self.groups.remove(group) else { return };
        self.won.remove(group);
        self.working.remove(group);
        if let Some(due_at) = candidacy.due_at {
            self.agenda.remove(&(due_at, group.clone()));
        }
        let (from, to, why) = (candidacy.seat.phase(), Phase::Stopped, Why::Withdrawn);
        if from != to {
            let (group, term, remaining) = (group.clone(), Term::NONE, Duration::ZERO);
            let transition = Transition { group, from, to, term, why, remaining };
            self.actions.push(Action::Transition(transition));
        }
        self.close_if_idle();
    }

    /// What a watch saw may make it stop, ask or hurry, never lead.
    pub(super) fn watched(&mut self, group: &Group, term: Term, leader: Option<&Node>) {
        let Some(candidacy) = self.groups.get(group) else { return };
        let is_me = leader == Some(&self.node);
        let is_sent = candidacy.errand.as_ref().is_some_and(|errand| errand.tries > 0);
        let is_busy = is_sent && candidacy.is_deciding();
        match (&candidacy.seat, candidacy.seat.held()) {
            (_, Some(own)) if term > own => self.lose(group, Why::Superseded),
            (_, Some(own)) if term == own && !is_me => self.lose(group, Why::TenureGone),
            (Seat::Standby(StandbyState::Out { .. } | StandbyState::Standing), _)
                if is_me && !is_busy =>
            {
                if self.is_welcome(group, term) && self.session.open().is_some() {
                    self.drop_errand(group);
                    self.begin_errand(group, What::Verb(Verb::Accept(term)));
                }
            }
            (Seat::Standby(StandbyState::Out { .. }), _) if leader.is_none() && !is_busy => {
                self.hurry(group);
            }
            (
                Seat::Standby(_)
                | Seat::Leading { .. }
                | Seat::Jeopardy { .. }
                | Seat::Stopping { .. }
                | Seat::Stopped { .. }
                | Seat::Lost { .. },
                _,
            ) => {}
        }
    }

    /// Nobody leads: the next campaign need not wait its turn, only avoid the herd.
    fn hurry(&mut self, group: &Group) {
        let low = Duration::from_millis(RETRY_MS_MIN_DEFAULT);
        let soon_at = self.now + self.dice.between(Duration::ZERO, low);
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        if let Seat::Standby(StandbyState::Out { campaign_at }) = &mut candidacy.seat {
            *campaign_at = soon_at.min(*campaign_at);
        }
        self.reschedule(group);
    }

    pub(super) fn withdraw(&mut self, group: &Group) {
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        candidacy.wants = false;
        self.begin_stop(group, Why::Withdrawn, Then::Resign);
        self.drop_unsent(group);
        self.plan(group);
    }

    pub(super) fn resign(&mut self, group: &Group) {
        if self.groups.get(group).is_none_or(|candidacy| candidacy.seat.held().is_none()) {
            self.trouble(Some(group), Trouble::NotLeading);
        }
        self.begin_stop(group, Why::Asked, Then::Resign);
    }

    pub(super) fn set_health(&mut self, healthy: bool) {
        self.healthy = healthy;
        self.want_session();
        for group in self.groups.keys().cloned().collect::<Vec<_>>() {
            if !healthy {
                if self.groups.get(&group).is_some_and(|it| it.seat.led().is_some()) {
                    self.work_failed(&group);
                }
                self.begin_stop(&group, Why::Unhealthy, Then::Resign);
                self.drop_unsent(&group);
            }
            self.plan(&group);
        }
    }

    /// The work of a term failed by itself. Soon after an election that costs a pause before the next campaign, longer
    /// with every time in a row; it counts once a term.
    pub(super) fn work_failed(&mut self, group: &Group) {
        let now = self.now;
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        let Some(led_since) = candidacy.led_since.take() else { return };
        let led_for = led_since.until(now);
        self.damped.retain(|_, it| now < it.until + DAMPING_REMEMBERED);
        let mut damping = self.damped.remove(group).map(|it| it.damping).unwrap_or_default();
        let Some((low, high)) = damping.failed(led_for) else { return };
        let (pause, failures) = (self.dice.between(low, high), damping.failures());
        candidacy.damped_until = now + pause;
        self.damped.insert(group.clone(), Damped { damping, until: now + pause });
        self.trouble(Some(group), Trouble::Damped { failures, led_for, pause });
        self.reschedule(group);
    }

    /// Drops an errand that no store can have seen.
    fn drop_unsent(&mut self, group: &Group) {
        let Some(candidacy) = self.groups.get(group) else { return };
        if candidacy.errand.as_ref().is_some_and(|errand| errand.tries == 0) {
            self.drop_errand(group);
        }
    }

    fn stop_work(&mut self, group: &Group, by: Moment) {
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        let Some(work) = &mut candidacy.work else { return };
        if work.stop_by.is_some_and(|told| told <= by) {
            return;
        }
        work.stop_by = Some(by);
        let term = work.term;
        self.actions.push(Action::StopWork { group: group.clone(), term, by });
    }

    /// Calls for force, once, if the work should have ended and has not.
    pub(super) fn last_resort(&mut self, group: &Group) {
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        let Some(work) = &mut candidacy.work else { return };
        if work.overran || work.stop_by.is_none_or(|by| by > self.now) {
            return;
        }
        work.overran = true;
        let term = work.term;
        self.actions.push(Action::LastResort { group: group.clone(), term });
    }

    /// Changes the seat and tells the application, in the order in which things happen.
    fn move_to(&mut self, group: &Group, seat: Seat, why: Why) {
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        let from = candidacy.seat.phase();
        let term = if seat.term() == Term::NONE { candidacy.seat.term() } else { seat.term() };
        candidacy.seat = seat;
        let to = candidacy.seat.phase();
        let remaining = self.check(self.now, group).map_or(Duration::ZERO, |held| held.remaining);
        let group = group.clone();
        self.actions.push(Action::Transition(Transition { group, from, to, term, why, remaining }));
    }
}
