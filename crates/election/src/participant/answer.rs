//! Answers to requests about one group. "No" and "perhaps" are never mixed: a definite answer ends
//! the errand, anything else repeats it under the same id (semantics 21).

use std::time::Duration;

use super::Participant;
use super::candidacy::{Errand, Seat, StandbyState, Then, What};
use super::request::{Reply, Verb};
use super::session::{pause_told, retry_after};
use super::words::{Attempt, Why};
use crate::limits::GROUPS_PER_SESSION_MAX;
use crate::name::Group;
use crate::outcome::Refusal;
use crate::store::{Campaigned, HeartbeatView, OfficeState, StoreError, StoreResult};
use crate::term::{Revision, Term};

impl Participant {
    pub(super) fn errand_answered(
        &mut self,
        group: &Group,
        attempt: Attempt,
        answer: StoreResult<Reply>,
    ) {
        let Some(errand) = self.groups.get(group).and_then(|c| c.errand.as_ref()) else { return };
        if !errand.attempts.contains(&attempt) {
            return;
        }
        let is_newest = errand.attempts.last() == Some(&attempt);
        match answer {
            // A yes to any try is a yes: they are one request.
            Ok(reply) => {
                if let Some(errand) = self.finish(group) {
                    self.errand_done(group, errand.what, reply);
                }
            }
            // Only the newest try's failure counts; the older ones have been acted on.
            Err(_) if !is_newest => {}
            Err(StoreError::Refused(Refusal::SessionUnknown)) => {
                self.session_gone(Why::SessionGone);
            }
            // About the credential, and not about the request: the next one may be good.
            Err(error @ StoreError::Refused(Refusal::Unauthenticated { .. })) => {
                self.trouble(Some(group), error.into());
                self.try_again(group, None);
            }
            Err(StoreError::Refused(refusal)) => self.errand_refused(group, refusal),
            Err(error) => {
                let told = pause_told(retry_after(&error));
                self.trouble(Some(group), error.into());
                self.try_again(group, told);
            }
        }
    }

    /// Ends an errand whose outcome is known.
    fn finish(&mut self, group: &Group) -> Option<Errand> {
        let errand = self.drop_errand(group)?;
        // A try that was never answered may reach the store late. If the request took effect before,
        // its id is known there; if it was refused, the late try could still run.
        if matches!(errand.what, What::Campaign { .. }) && errand.tries > 1 {
            self.want_audit();
        }
        Some(errand)
    }

    fn errand_done(&mut self, group: &Group, what: What, reply: Reply) {
        match (what, reply) {
            (What::Campaign { .. }, Reply::Campaigned(campaigned)) => {
                self.campaigned(group, &campaigned);
            }
            (What::Verb(Verb::Accept(term)), Reply::Heartbeat(heard)) => {
                self.accepted(group, term, &heard);
            }
            (What::Verb(Verb::Resign(term) | Verb::Transfer(term, _)), _) => {
                self.settled(group, term);
            }
            (What::Verb(Verb::Withdraw), _) => self.withdrawn(group),
            (What::Verb(Verb::Offer(_, to)), _) => self.offer_made(group, &to),
            (What::Verb(Verb::Warm(term)), _) => self.warmth_told(group, term),
            // An answer to another question: act on nothing, ask again.
            (
                What::Campaign { .. } | What::Verb(Verb::Accept(_)),
                Reply::Session(_) | Reply::Heartbeat(_) | Reply::Campaigned(_) | Reply::Done,
            ) => self.out_of_line(group),
        }
        self.plan(group);
    }

    fn campaigned(&mut self, group: &Group, campaigned: &Campaigned) {
        let revision = campaigned.office.revision;
        if self.allowed.len() < GROUPS_PER_SESSION_MAX {
            self.allowed.insert(group.clone());
        }
        self.known(group, revision);
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        if let Some(term) = campaigned.elected {
            match campaigned.office.state {
                OfficeState::Leading => self.claim(group, term, revision),
                OfficeState::Ending => self.decline(group, term),
                // Promoted and not yet accepted: acting waits for the acknowledged acceptance.
                OfficeState::Elected | OfficeState::Vacant | OfficeState::Delayed => {
                    if self.is_welcome(group, term) {
                        self.begin_errand(group, What::Verb(Verb::Accept(term)));
                    } else {
                        self.decline(group, term);
                    }
                }
            }
        } else if campaigned.standing {
            candidacy.tries = 0;
            candidacy.set_line(StandbyState::Standing);
            if let Some(listed) = candidacy.overruled_by(revision, Term::NONE) {
                self.compare(group, listed);
            }
        } else {
            self.campaign_later(group, pause_told(campaigned.retry_after));
        }
    }

    fn accepted(&mut self, group: &Group, term: Term, heard: &HeartbeatView) {
        self.known(group, heard.revision);
        // It proves the tenure, not the time: being elected adds no validity (semantics 3).
        if self.session.open().is_some_and(|open| open.listing.is_news(heard.epoch)) {
            self.want_list();
        }
        self.claim(group, term, heard.revision);
    }

    /// The store said at `answered` that this session leads; a list may know better.
    fn claim(&mut self, group: &Group, term: Term, answered: Revision) {
        let won = Seat::Standby(StandbyState::Won { term });
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        candidacy.set_line(StandbyState::Won { term });
        if let Some(listed) = candidacy.overruled_by(answered, term) {
            self.compare(group, listed);
        }
        if self.groups.get(group).is_some_and(|c| c.seat == won && c.errand.is_none()) {
            self.won(group, term);
        }
    }

    fn withdrawn(&mut self, group: &Group) {
        let now = self.now;
        if let Some(candidacy) = self.groups.get_mut(group) {
            candidacy.set_line(StandbyState::Out { campaign_at: now });
        }
    }

    fn known(&mut self, group: &Group, revision: Revision) {
        self.saw(revision);
        if let Some(candidacy) = self.groups.get_mut(group) {
            candidacy.known_at = revision;
        }
    }

    fn campaign_later(&mut self, group: &Group, told: Option<Duration>) {
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        candidacy.tries = candidacy.tries.saturating_add(1);
        let pause = told.unwrap_or_else(|| self.dice.back_off(candidacy.tries, self.budget.ttl()));
        candidacy.set_line(StandbyState::Out { campaign_at: self.now + pause });
    }

    /// A definite no.
    fn errand_refused(&mut self, group: &Group, refusal: Refusal) {
        if let Refusal::RequestAhead { revision, .. } = refusal {
            self.revision = Revision(revision.0.saturating_sub(1));
        }
        // About the id, not about the request: the same question under a fresh one. Whatever the old
        // one did, the question is such that asking it twice does no harm.
        if matches!(
            refusal,
            Refusal::RequestTooOld { .. } | Refusal::RequestReused | Refusal::RequestAhead { .. }
        ) {
            self.ask_afresh(group);
            return;
        }
        let Some(errand) = self.finish(group) else { return };
        match errand.what {
            What::Campaign { .. } => {
                self.trouble(Some(group), StoreError::Refused(refusal).into());
                self.campaign_later(group, None);
            }
            What::Verb(Verb::Accept(term)) => {
                if matches!(refusal, Refusal::TenureEnding { .. }) {
                    self.decline(group, term);
                } else {
                    self.out_of_line(group);
                }
            }
            // Not held, or not held any more: either way the store knows.
            What::Verb(Verb::Resign(term)) => self.settled(group, term),
            What::Verb(Verb::Transfer(term, _)) => self.transfer_refused(group, term, refusal),
            What::Verb(Verb::Withdraw) => self.withdrawn(group),
            What::Verb(Verb::Offer(_, to)) => self.offer_refused(group, &to, refusal),
            // Nobody offers it any more, which is nothing that a person could change.
            What::Verb(Verb::Warm(_)) => self.offer_is_over(group),
        }
        self.plan(group);
    }

    fn ask_afresh(&mut self, group: &Group) {
        let request = self.fresh_request();
        if let Some(errand) = self.groups.get_mut(group).and_then(|c| c.errand.as_mut()) {
            errand.request = request;
        }
        self.try_again(group, None);
    }

    /// The work has stopped, so there is no way back: an office that cannot be handed to the one
    /// named is resigned to whoever is next.
    fn transfer_refused(&mut self, group: &Group, term: Term, refusal: Refusal) {
        if matches!(refusal, Refusal::NotLeader { .. }) {
            self.settled(group, term);
            return;
        }
        self.trouble(Some(group), StoreError::Refused(refusal).into());
        if let Some(candidacy) = self.groups.get_mut(group) {
            candidacy.seat = Seat::Stopped { term, then: Then::Resign };
        }
        if let Some(open) = self.session.open_mut() {
            open.disowned.insert((group.clone(), term));
        }
    }
}
