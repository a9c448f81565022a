//! The session's list: what it holds by the store's word, and what follows from a difference.

use std::collections::{BTreeMap, BTreeSet};

use super::candidacy::{Listed, Seat, StandbyState, Then, What};
use super::heartbeat::Lease;
use super::request::{Reply, Request, Verb};
use super::words::{Attempt, Phase, Why};
use super::{Participant, Pending};
use crate::limits::TRIES_REMEMBERED;
use crate::moment::Moment;
use crate::mutant::{self, Mutant};
use crate::name::Group;
use crate::outcome::Refusal;
use crate::store::{OfferView, OfficeState, SessionView, StoreError, StoreResult, TenureView};
use crate::term::{Revision, Term};

/// What is known of the list, and when it is read next.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    /// The epoch that has been processed.
    epoch: u64,
    /// The revision of the list processed last: older ones say nothing.
    revision: Revision,
    /// Validity that waits for a list of at least this epoch.
    held_back: Option<(u64, Lease)>,
    newest: Option<Attempt>,
    /// When to read it next: because of news, or when the newest reading timed out.
    read_at: Option<Moment>,
    /// When to read it although there is no news: a try that was never answered may have run late.
    audit_at: Option<Moment>,
}

impl Listing {
    pub(super) const fn is_news(&self, epoch: u64) -> bool {
        epoch > self.epoch
    }

    pub(super) fn hold_back(&mut self, epoch: u64, lease: Lease) {
        self.held_back = Some(match self.held_back {
            None => (epoch, lease),
            Some((before, had)) => {
                (before.max(epoch), if had.until > lease.until { had } else { lease })
            }
        });
    }

    pub(super) fn next_at(&self) -> Option<Moment> {
        [self.read_at, self.audit_at].into_iter().flatten().min()
    }
}

impl Participant {
    /// Reads the list at once, unless that is under way.
    pub(super) fn want_list(&mut self) {
        let now = self.now;
        let Some(open) = self.session.open_mut() else { return };
        if open.listing.newest.is_none() {
            open.listing.read_at = Some(now);
        }
    }

    /// Reads the list a while later, in case a request that was given up runs after all.
    pub(super) fn want_audit(&mut self) {
        let audit_at = self.now + self.budget.ttl();
        if let Some(open) = self.session.open_mut() {
            open.listing.audit_at.get_or_insert(audit_at);
        }
    }

    pub(super) fn list_due(&mut self) {
        let (now, timeout) = (self.now, self.budget.request_timeout());
        let Some(open) = self.session.open_mut() else { return };
        if open.listing.next_at().is_none_or(|at| at > now) {
            return;
        }
        let session = open.id;
        open.listing.audit_at = open.listing.audit_at.filter(|at| *at > now);
        self.trim(TRIES_REMEMBERED, |pending| matches!(pending, Pending::List));
        let attempt = self.send(Pending::List, Request::List(session));
        if let Some(open) = self.session.open_mut() {
            open.listing.newest = Some(attempt);
            open.listing.read_at = Some(now + timeout);
        }
    }

    pub(super) fn list_answered(&mut self, attempt: Attempt, answer: StoreResult<Reply>) {
        let again_at = self.now + self.budget.retry_pause();
        let Some(open) = self.session.open_mut() else { return };
        let is_newest = open.listing.newest == Some(attempt);
        if is_newest {
            open.listing.newest = None;
            open.listing.read_at = None;
        }
        match answer {
            Ok(Reply::Session(view)) => {
                self.process_list(Some(attempt), view);
                // A list that was made before the news it was to explain.
                if let Some(open) = self.session.open_mut()
                    && open.listing.held_back.is_some()
                    && open.listing.newest.is_none()
                {
                    open.listing.read_at = Some(again_at);
                }
            }
            Ok(Reply::Heartbeat(_) | Reply::Campaigned(_) | Reply::Done) => {}
            Err(_) if !is_newest => {}
            Err(StoreError::Refused(Refusal::SessionUnknown)) => {
                self.session_gone(Why::SessionGone);
            }
            Err(error) => {
                open.listing.read_at = Some(again_at);
                self.trouble(None, error.into());
            }
        }
    }

    /// Brings every group in line with the list, then lets the validity go that waited for it. In
    /// this order: what is ending must not be extended.
    pub(super) fn process_list(&mut self, asked: Option<Attempt>, view: SessionView) {
        let SessionView { epoch, tenures, standing, offers, revision, .. } = view;
        self.saw(revision);
        let Some(open) = self.session.open_mut() else { return };
        if revision < open.listing.revision || epoch < open.listing.epoch {
            return;
        }
        open.listing.revision = revision;
        open.listing.epoch = epoch;
        let tenures: BTreeMap<&Group, &TenureView> =
            tenures.iter().map(|tenure| (&tenure.group, tenure)).collect();
        let standing: BTreeSet<&Group> = standing.iter().collect();
        let offers: BTreeMap<&Group, &OfferView> =
            offers.iter().map(|offer| (&offer.group, offer)).collect();
        for group in self.groups.keys().cloned().collect::<Vec<_>>() {
            let stands = standing.contains(&group);
            let tenure = tenures.get(&group).map(|tenure| (*tenure).clone());
            self.compare(&group, Listed { revision, tenure, stands, asked });
            self.offer_seen(&group, offers.get(&group).copied());
        }
        for tenure in tenures.values() {
            if !self.groups.contains_key(&tenure.group) {
                self.disown(&tenure.group, tenure.term);
            }
        }
        let waited: Vec<Group> = self.won.iter().cloned().collect();
        let Some(open) = self.session.open_mut() else { return };
        if let Some((needed, lease)) = open.listing.held_back
            && needed <= epoch
        {
            open.listing.held_back = None;
            self.extend(lease);
            // Who begins to lead by this lease has not heard yet that its office is on offer already. The next list
            // may be far away.
            for group in waited {
                if let Some(tenure) = tenures.get(&group)
                    && self.groups.get(&group).is_some_and(|c| c.seat.led() == Some(tenure.term))
                {
                    self.offer_listed(&group, tenure, asked);
                }
            }
        }
    }

    /// One group against the list.
    pub(super) fn compare(&mut self, group: &Group, list: Listed) {
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        // The errand under way may have been answered before the list was made, or after: what the
        // list says is kept until its answer is here.
        if candidacy.is_deciding() && candidacy.seat.phase() == Phase::Standby {
            candidacy.listed = Some(list);
            return;
        }
        let Listed { revision, tenure: listed, stands, asked } = list;
        let listed = listed.as_ref();
        let own = candidacy.seat.term();
        // What was learnt after the list was made is not contradicted by it.
        let is_proof = candidacy.known_at <= revision;
        match (&candidacy.seat, listed) {
            (Seat::Leading { .. } | Seat::Jeopardy { .. }, Some(tenure)) if tenure.term == own => {
                match tenure.state {
                    OfficeState::Ending => {
                        let moves = tenure.moves_to.is_some();
                        let why = if moves { Why::Moving } else { Why::Ending };
                        self.begin_stop(group, why, Then::Resign);
                    }
                    OfficeState::Vacant
                    | OfficeState::Delayed
                    | OfficeState::Elected
                    | OfficeState::Leading => self.offer_listed(group, tenure, asked),
                }
            }
            (Seat::Leading { .. } | Seat::Jeopardy { .. } | Seat::Stopping { .. }, _) => {
                let is_there = listed.is_some_and(|tenure| tenure.term == own);
                if !is_there && is_proof {
                    self.lose(group, Why::TenureGone);
                }
            }
            (Seat::Stopped { .. } | Seat::Lost { .. }, _) => {
                let is_there = listed.is_some_and(|tenure| tenure.term == own);
                if !is_there && is_proof {
                    self.settled(group, own);
                }
            }
            // It waits for a lease only; what it won is still there, or was not accepted yet.
            (Seat::Standby(StandbyState::Won { .. }), Some(tenure))
                if tenure.term == own
                    && (tenure.state == OfficeState::Leading
                        || (tenure.state == OfficeState::Elected && !is_proof)) => {}
            (Seat::Standby(_), Some(tenure)) => self.found_promoted(group, tenure),
            (Seat::Standby(StandbyState::Won { .. }), None) if is_proof => self.out_of_line(group),
            (Seat::Standby(StandbyState::Standing), None) if is_proof && !stands => {
                self.out_of_line(group);
            }
            (Seat::Standby(_), None) => {}
        }
    }

    /// The store says that this standby holds an office.
    fn found_promoted(&mut self, group: &Group, tenure: &TenureView) {
        let is_welcome = self.is_welcome(group, tenure.term);
        match tenure.state {
            OfficeState::Elected if is_welcome && mutant::is(Mutant::ActsUnaccepted) => {
                self.won(group, tenure.term);
            }
            OfficeState::Elected | OfficeState::Leading if is_welcome => {
                self.begin_errand(group, What::Verb(Verb::Accept(tenure.term)));
            }
            OfficeState::Ending | OfficeState::Elected | OfficeState::Leading => {
                self.decline(group, tenure.term);
            }
            OfficeState::Vacant | OfficeState::Delayed => {}
        }
    }

    /// The highest term of a group that the store is being told is over; zero if there is none.
    pub(super) fn highest_disowned(&self, group: &Group) -> Term {
        let disowned = self.session.open().into_iter().flat_map(|open| &open.disowned);
        let of_group = disowned.filter(|(other, _)| other == group);
        of_group.map(|(_, term)| *term).max().unwrap_or(Term::NONE)
    }

    /// An office in a group that this process knows nothing of: nobody would fill it.
    fn disown(&mut self, group: &Group, term: Term) {
        if let Some(open) = self.session.open_mut() {
            open.disowned.insert((group.clone(), term));
        }
    }
}
