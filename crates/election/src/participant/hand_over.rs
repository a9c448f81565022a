//! Hand-over, on both sides: the leader that offers, and the standby that gets warm (semantics 15).
//!
//! ```text
//!   leader:   asked --offer--> offered --list says warm--> stopping --work ended--> transfer
//!                |                |
//!                +-- refused -----+-- the standby left, or took too long: it leads on
//!
//!   standby:  list shows an offer --> the application gets ready --> warm
//! ```
//!
//! The leader goes on leading, renewing and working until the standby is warm, so getting warm may
//! take as long as it likes and costs nobody anything. Only then the work is told to stop.
//!
//! Nothing is told by the answer to an offer: whether the standby is warm stands in the session's
//! list, and an epoch in a heartbeat's answer says when to look. While somebody waits for it,
//! heartbeats are sent more often. Road not taken: to read the list over and over, which may be
//! 100,000 groups long.

use std::time::Duration;

use super::Participant;
use super::candidacy::Then;
use super::words::{Action, Attempt, Trouble, Why};
use crate::moment::Moment;
use crate::name::{Group, Node};
use crate::outcome::Refusal;
use crate::store::{OfferView, StoreError, TenureView};
use crate::term::Term;

/// A hand-over that the application of a leader asked for.
#[derive(Clone, Debug)]
pub(super) struct HandOver {
    to: Node,
    /// Until when somebody waits for it. None once nobody does: the store keeps an offer, and
    /// warmth that comes late must not take an office that the application was told it keeps.
    until: Option<Moment>,
    /// The last attempt made before the offer was acknowledged: lists asked for up to then may not
    /// show it. None while it is not acknowledged.
    offered: Option<Attempt>,
    /// When to look next whether the standby is warm.
    look_at: Moment,
}

impl HandOver {
    /// The one to whom the office is yet to be offered.
    pub(super) fn to_offer(&self) -> Option<&Node> {
        (self.offered.is_none() && self.until.is_some()).then_some(&self.to)
    }

    pub(super) fn next_at(&self) -> Option<Moment> {
        let until = self.until?;
        Some(if self.offered.is_some() { until.min(self.look_at) } else { until })
    }

    /// Whether a list shows what became of the offer.
    fn is_told_by(&self, asked: Option<Attempt>) -> bool {
        self.offered.is_some_and(|offered| asked.is_some_and(|asked| asked > offered))
    }
}

/// An office that was offered to this standby.
#[derive(Clone, Debug)]
pub(super) struct Offered {
    /// The term of the leader that offers.
    term: Term,
    warmth: Warmth,
}

/// How far a standby is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Warmth {
    /// The application has been told.
    Asked,
    /// The application is ready; the store has not been told.
    Warm,
    /// The store knows.
    Told,
}

impl Offered {
    /// The term for which the store is yet to hear that this standby is warm.
    pub(super) fn to_tell(&self) -> Option<Term> {
        (self.warmth == Warmth::Warm).then_some(self.term)
    }
}

/// The leader's side.
impl Participant {
    pub(super) fn hand_over(&mut self, group: &Group, to: Node, within: Duration) {
        let now = self.now;
        match self.groups.get_mut(group) {
            Some(candidacy) if candidacy.seat.led().is_some() => {
                let until = Some(now + within);
                candidacy.hand_over = Some(HandOver { to, until, offered: None, look_at: now });
                self.plan(group);
            }
            Some(_) | None => self.trouble(Some(group), Trouble::NotLeading),
        }
    }

    /// The store has acknowledged an offer.
    pub(super) fn offer_made(&mut self, group: &Group, to: &Node) {
        let (now, last) = (self.now, Attempt(self.attempts_made));
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        // Somebody else may have been named meanwhile; planning offers it to that one next.
        if let Some(hand_over) = candidacy.hand_over.as_mut().filter(|it| it.to == *to) {
            hand_over.offered = Some(last);
            hand_over.look_at = now;
        }
    }

    pub(super) fn offer_refused(&mut self, group: &Group, to: &Node, refusal: Refusal) {
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        let Some(hand_over) = candidacy.hand_over.take_if(|it| it.to == *to) else { return };
        if hand_over.until.is_some() {
            self.trouble(Some(group), StoreError::Refused(refusal).into());
        }
    }

    /// What time does to a hand-over.
    pub(super) fn hand_over_due(&mut self, group: &Group) {
        let (now, look_every) = (self.now, self.budget.renew_every() / 4);
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        let Some(hand_over) = &mut candidacy.hand_over else { return };
        let Some(until) = hand_over.until else { return };
        if until <= now {
            hand_over.until = None;
            let to = hand_over.to.clone();
            // An offer that was never sent is forgotten; one that may have been is remembered, so
            // that it is known for what it is when a list shows it.
            if candidacy.errand.as_ref().is_some_and(|errand| errand.tries == 0) {
                candidacy.hand_over = None;
                self.drop_errand(group);
            }
            self.trouble(Some(group), Trouble::NotWarm { to });
        } else if hand_over.offered.is_some() && hand_over.look_at <= now {
            hand_over.look_at = now + look_every;
            self.hurry_heartbeat();
            self.heartbeat_due();
        }
    }

    /// The store's list shows this leader's tenure, with or without an offer.
    pub(super) fn offer_listed(
        &mut self,
        group: &Group,
        tenure: &TenureView,
        asked: Option<Attempt>,
    ) {
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        if let Some(hand_over) = &candidacy.hand_over {
            let is_there = tenure.offered_to.as_ref() == Some(&hand_over.to);
            let is_awaited = hand_over.until.is_some();
            if !hand_over.is_told_by(asked) {
                return;
            }
            if is_there && !(is_awaited && tenure.is_warm) {
                return;
            }
            if !is_there {
                let to = hand_over.to.clone();
                candidacy.hand_over = None;
                if is_awaited {
                    let refusal = Refusal::SuccessorUnknown { group: group.clone(), to };
                    self.trouble(Some(group), StoreError::Refused(refusal).into());
                    return;
                }
            }
        }
        // Asked for here, or by the store for a better candidate (semantics 16).
        if let Some(to) = tenure.offered_to.clone().filter(|_| tenure.is_warm) {
            self.begin_stop(group, Why::HandOver, Then::Transfer(to));
        }
    }
}

/// The standby's side.
impl Participant {
    /// The store's list shows this offer to a group's standby, or none.
    pub(super) fn offer_seen(&mut self, group: &Group, offer: Option<&OfferView>) {
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        match (offer, &mut candidacy.offered) {
            (None, _) => self.offer_is_over(group),
            (Some(offer), Some(known)) if known.term == offer.term => {
                // Offered anew by the same leader: what is warm is warm.
                if known.warmth == Warmth::Told && !offer.is_warm {
                    known.warmth = Warmth::Warm;
                    self.plan(group);
                }
            }
            (Some(offer), _) => {
                let (term, by) = (offer.term, offer.by.clone());
                self.offer_is_over(group);
                if let Some(candidacy) = self.groups.get_mut(group) {
                    candidacy.offered = Some(Offered { term, warmth: Warmth::Asked });
                    self.actions.push(Action::Offered { group: group.clone(), term, by });
                }
            }
        }
    }

    /// The application is warm for an office that was offered to it.
    pub(super) fn warm(&mut self, group: &Group, term: Term) {
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        if let Some(offered) = candidacy.offered.as_mut().filter(|it| it.term == term)
            && offered.warmth == Warmth::Asked
        {
            offered.warmth = Warmth::Warm;
            self.plan(group);
        }
    }

    pub(super) fn warmth_told(&mut self, group: &Group, term: Term) {
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        if let Some(offered) = candidacy.offered.as_mut().filter(|it| it.term == term) {
            offered.warmth = Warmth::Told;
        }
    }

    /// Nothing is offered any more.
    pub(super) fn offer_is_over(&mut self, group: &Group) {
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        if let Some(Offered { term, .. }) = candidacy.offered.take() {
            self.actions.push(Action::OfferOver { group: group.clone(), term });
        }
    }
}
