//! The life of the session: asked for, opened, abandoned, closed.

use std::collections::BTreeSet;
use std::time::Duration;

use super::candidacy::{Seat, StandbyState};
use super::heartbeat::{Lease, Stage};
use super::list::Listing;
use super::request::{Reply, Request};
use super::words::{Action, Attempt, Why};
use super::{Participant, Pending};
use crate::limits::{RETRY_MS_CEILING, SESSIONS_CLOSING_MAX, TRIES_REMEMBERED};
use crate::moment::Moment;
use crate::name::{Group, SessionId};
use crate::outcome::Refusal;
use crate::store::{Open, SessionView, StoreError, StoreResult};
use crate::term::{Revision, Term};

/// Where the session is in its life.
#[derive(Clone, Debug)]
pub(super) enum Session {
    /// There is none, and none is wanted.
    Closed,
    /// A fresh secret has been asked for.
    Asked,
    /// Being opened.
    Opening(Opening),
    /// Open at the store, as far as known.
    Open(Box<OpenSession>),
}

/// A session that is being opened, through all tries.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    id: SessionId,
    /// The store may have opened it at any moment after this, so validity counts from here.
    first_sent_at: Option<Moment>,
    tries: u32,
    newest: Option<Attempt>,
    /// When to send the next try: after a pause, or when the newest has had its time-out.
    send_at: Moment,
}

/// An open session.
#[derive(Clone, Debug)]
pub(super) struct OpenSession {
    pub(super) id: SessionId,
    /// The validity in hand; none if no answer came in time.
    pub(super) lease: Option<Lease>,
    /// The stage of the lease that the groups have been brought in line with.
    pub(super) judged: Stage,
    /// The last heartbeat's number.
    pub(super) sequence: u64,
    pub(super) newest_heartbeat: Option<Attempt>,
    /// Heartbeats that failed in a row.
    pub(super) heartbeats_failed: u32,
    /// When to send the next heartbeat: on time, after a pause, or when the newest timed out.
    pub(super) heartbeat_at: Moment,
    pub(super) listing: Listing,
    /// Terms that are over and that the store has not been heard to know it (semantics 4).
    pub(super) disowned: BTreeSet<(Group, Term)>,
}

/// An abandoned session that the store is to be told of, for quicker succession only.
#[derive(Clone, Debug)]
pub(super) struct Closing {
    id: SessionId,
    tries: u32,
    send_at: Moment,
    /// By then it has expired by itself.
    give_up_at: Moment,
}

impl Session {
    pub(super) const fn lease(&self) -> Option<Lease> {
        match self {
            Self::Open(open) => open.lease,
            Self::Closed | Self::Asked | Self::Opening(_) => None,
        }
    }

    pub(super) const fn open(&self) -> Option<&OpenSession> {
        match self {
            Self::Open(open) => Some(open),
            Self::Closed | Self::Asked | Self::Opening(_) => None,
        }
    }

    pub(super) const fn open_mut(&mut self) -> Option<&mut OpenSession> {
        match self {
            Self::Open(open) => Some(open),
            Self::Closed | Self::Asked | Self::Opening(_) => None,
        }
    }
}

impl Participant {
    /// Asks for a session if somebody could use one and there is none.
    pub(super) fn want_session(&mut self) {
        let is_wanted = self.healthy && self.groups.values().any(|candidacy| candidacy.wants);
        if is_wanted && matches!(self.session, Session::Closed) {
            self.session = Session::Asked;
            self.actions.push(Action::NeedSession);
        }
    }

    pub(super) fn session_given(&mut self, id: SessionId) {
        if !matches!(self.session, Session::Asked) {
            return;
        }
        let pause = match self.session_tries {
            0 => Duration::ZERO,
            tries => self.dice.back_off(tries, self.budget.ttl()),
        };
        let send_at = self.now + pause;
        self.session =
            Session::Opening(Opening { id, first_sent_at: None, tries: 0, newest: None, send_at });
    }

    /// Sends what is due of the session's own requests.
    pub(super) fn session_due(&mut self) {
        match &self.session {
            Session::Opening(opening) if opening.send_at <= self.now => self.send_open(),
            Session::Open(_) => {
                self.heartbeat_due();
                self.list_due();
            }
            Session::Opening(_) | Session::Closed | Session::Asked => {}
        }
        self.closing_due();
    }

    pub(super) fn session_next_at(&self) -> Option<Moment> {
        let own_at = match &self.session {
            Session::Closed | Session::Asked => None,
            Session::Opening(opening) => Some(opening.send_at),
            Session::Open(open) => {
                [Some(open.heartbeat_at), open.listing.next_at(), self.stage_at()]
                    .into_iter()
                    .flatten()
                    .min()
            }
        };
        let closing_at = self.closing.iter().map(|closing| closing.send_at).min();
        [own_at, closing_at].into_iter().flatten().min()
    }

    fn send_open(&mut self) {
        let (now, timeout) = (self.now, self.budget.request_timeout());
        let (node, ttl_ms) = (self.node.clone(), self.budget.ttl_ms());
        let Session::Opening(opening) = &self.session else { return };
        let id = opening.id;
        if opening.newest.is_some() {
            // The newest try had its time and was not answered: pause, then send another.
            self.open_failed(None);
            return;
        }
        self.trim(TRIES_REMEMBERED, |pending| matches!(pending, Pending::Open));
        let attempt = self.send(Pending::Open, Request::Open(Open { node, ttl_ms, session: id }));
        let Session::Opening(opening) = &mut self.session else { return };
        opening.first_sent_at.get_or_insert(now);
        opening.newest = Some(attempt);
        opening.send_at = now + timeout;
    }

    fn open_failed(&mut self, retry_after: Option<Duration>) {
        let Session::Opening(opening) = &mut self.session else { return };
        opening.tries += 1;
        let pause = pause_told(retry_after)
            .unwrap_or_else(|| self.dice.back_off(opening.tries, self.budget.ttl()));
        opening.newest = None;
        opening.send_at = self.now + pause;
    }

    pub(super) fn open_answered(&mut self, attempt: Attempt, answer: StoreResult<Reply>) {
        let Session::Opening(opening) = &self.session else { return };
        let is_newest = opening.newest == Some(attempt);
        match answer {
            Ok(Reply::Session(view)) => {
                let lease = opening.first_sent_at.and_then(|sent_at| {
                    Lease::granted(sent_at, view.ttl_ms, &self.budget, self.now)
                });
                self.opened(opening.id, lease, view);
            }
            Ok(Reply::Heartbeat(_) | Reply::Campaigned(_) | Reply::Done) => {}
            // Only the newest attempt's failure counts: an older one has been acted on.
            Err(_) if !is_newest => {}
            Err(StoreError::Refused(Refusal::SessionUnknown | Refusal::SessionMismatch)) => {
                // An earlier try had opened it and it has ended since, or the secret is not fresh.
                self.abandon(false);
            }
            Err(error) => {
                let retry_after = retry_after(&error);
                self.trouble(None, error.into());
                self.open_failed(retry_after);
            }
        }
    }

    fn opened(&mut self, id: SessionId, lease: Option<Lease>, view: SessionView) {
        self.pending.retain(|_, pending| !matches!(pending, Pending::Open));
        self.session_tries = 0;
        self.was_admitted = true;
        // Revisions are compared within one session only: a restored store may count from below.
        self.revision = view.revision;
        let heartbeat_at =
            lease.map_or(self.now, |lease| lease.sent_at + self.budget.renew_every());
        self.session = Session::Open(Box::new(OpenSession {
            id,
            lease,
            judged: Stage::Over,
            sequence: 0,
            newest_heartbeat: None,
            heartbeats_failed: 0,
            heartbeat_at,
            listing: Listing::default(),
            disowned: BTreeSet::new(),
        }));
        self.judge();
        self.process_list(None, view);
        for group in self.groups.keys().cloned().collect::<Vec<_>>() {
            self.plan(&group);
        }
    }

    /// The store does not know the session any more, or somebody else uses it.
    pub(super) fn session_gone(&mut self, why: Why) {
        self.lose_all(why);
        self.abandon(false);
    }

    /// Gives the session up: whatever was held under it has been lost or stopped before. A fresh one
    /// is asked for if anybody wants to stand.
    pub(super) fn abandon(&mut self, close: bool) {
        let id = match std::mem::replace(&mut self.session, Session::Closed) {
            Session::Open(open) => Some(open.id),
            Session::Opening(opening) => Some(opening.id),
            Session::Closed | Session::Asked => None,
        };
        if let Some(id) = id.filter(|_| close) {
            self.begin_closing(id);
        } else {
            self.session_tries += 1;
        }
        self.pending.retain(|_, pending| matches!(pending, Pending::Close(_)));
        self.ready.clear();
        self.in_flight.clear();
        self.won.clear();
        for group in self.groups.keys().cloned().collect::<Vec<_>>() {
            self.forget_store_side(&group);
        }
        self.want_session();
    }

    /// What the store knew of a group under the abandoned session means nothing any more.
    fn forget_store_side(&mut self, group: &Group) {
        let now = self.now;
        let Some(candidacy) = self.groups.get_mut(group) else { return };
        candidacy.errand = None;
        candidacy.known_at = Revision::default();
        candidacy.listed = None;
        if let Seat::Standby(line) = &mut candidacy.seat {
            let campaign_at = match line {
                StandbyState::Out { campaign_at } => *campaign_at,
                StandbyState::Standing | StandbyState::Won { .. } => now,
            };
            *line = StandbyState::Out { campaign_at };
        }
        self.plan(group);
    }

    /// Closes the session when no group is left.
    pub(super) fn close_if_idle(&mut self) {
        if self.groups.is_empty() {
            self.abandon(true);
            self.session_tries = 0;
        }
    }

    fn begin_closing(&mut self, id: SessionId) {
        if self.closing.len() >= SESSIONS_CLOSING_MAX {
            self.closing.remove(0);
        }
        let give_up_at = self.now + self.budget.ttl() * 2;
        self.closing.push(Closing { id, tries: 0, send_at: self.now, give_up_at });
    }

    fn closing_due(&mut self) {
        let now = self.now;
        self.closing.retain(|closing| now < closing.give_up_at);
        let due: Vec<SessionId> =
            self.closing.iter().filter(|c| c.send_at <= now).map(|c| c.id).collect();
        self.trim(SESSIONS_CLOSING_MAX * TRIES_REMEMBERED, |p| matches!(p, Pending::Close(_)));
        for id in due {
            self.send(Pending::Close(id), Request::Close(id));
            let (ttl, timeout) = (self.budget.ttl(), self.budget.request_timeout());
            for closing in self.closing.iter_mut().filter(|closing| closing.id == id) {
                closing.tries += 1;
                closing.send_at = now + timeout + self.dice.back_off(closing.tries, ttl);
            }
        }
    }

    pub(super) fn close_answered(&mut self, id: SessionId, answer: &StoreResult<Reply>) {
        // A refusal is as final as a yes; anything else is tried again when its time comes.
        if matches!(answer, Ok(_) | Err(StoreError::Refused(_))) {
            self.closing.retain(|closing| closing.id != id);
            self.pending.retain(|_, p| !matches!(p, Pending::Close(other) if *other == id));
        }
    }
}

/// The pause a store asked for, kept within reason: an absurd one must not stop a candidate for ever.
pub(super) fn pause_told(retry_after: Option<Duration>) -> Option<Duration> {
    retry_after.map(|pause| pause.min(Duration::from_millis(RETRY_MS_CEILING)))
}

pub(super) fn retry_after(error: &StoreError) -> Option<Duration> {
    match error {
        StoreError::Unavailable { retry_after, .. } => *retry_after,
        StoreError::Refused(_)
        | StoreError::Uncertain { .. }
        | StoreError::Unsupported { .. }
        | StoreError::Corrupt(_) => None,
    }
}
