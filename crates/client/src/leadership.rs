//! Leadership as a value: who has one leads, until a check says otherwise.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use regent_election::participant::{Phase, Why};
use regent_election::{Digest, FenceError, Group, Moment, Node, Term};
use tokio::task::JoinHandle;

use crate::driver::{HandOverFault, Input};
use crate::error::{Lost, TransferError, Untold};
use crate::fenced::Permit;
use crate::limits::{CLOCK_LOOK_EVERY, WARM_WITHIN};
use crate::tenure::{Hold, Tenure};

/// One term of one group, held by this process.
///
/// - [`check`](Self::check) before every act that only a leader may do. It reads the lease clock, so
///   it tells the truth after any pause; what is written belongs behind a fence that compares
///   [`term`](Self::term).
/// - [`lost`](Self::lost) says when to stop. The lease still runs then for as long as it says.
/// - Dropping the last clone gives the term up in the background, once no [`Permit`] and no task of
///   [`spawn`](Self::spawn) is alive; until then it is not renewed.
#[derive(Debug)]
#[must_use = "dropping a leadership gives it up"]
pub struct Leadership {
    hold: Hold,
}

/// The work must stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub why: Why,
    /// How long the lease still runs: whatever works longer works without one.
    pub within: Duration,
}

impl Clone for Leadership {
    fn clone(&self) -> Self {
        Self { hold: self.hold.another() }
    }
}

impl Leadership {
    pub(crate) const fn new(hold: Hold) -> Self {
        Self { hold }
    }

    /// The group that is led.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.tenure().group
    }

    /// Under which name.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.tenure().node
    }

    /// The fencing token: one higher for every leader of the group, never used twice.
    #[must_use]
    pub fn term(&self) -> Term {
        self.tenure().term
    }

    /// How long this process leads if nothing is renewed any more; zero if it does not lead.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.hold.remaining().unwrap_or(Duration::ZERO)
    }

    /// Until when this process leads if nothing is renewed any more, on the lease clock of this machine
    /// (`regent_clock`), which all its processes share. It lies in the past, or is zero, if this process does not lead.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.tenure().until()
    }

    /// Waits until the lease reaches farther than `after` and says how far; none once the work must
    /// stop. Give it what it said last, at first [`valid_until`](Self::valid_until): no extension is
    /// missed, and several at once are told as one.
    ///
    /// For a process that keeps others informed of the lease, such as a supervisor. Work that acts
    /// itself uses [`check`](Self::check).
    pub async fn extended(&self, after: Moment) -> Option<Moment> {
        self.tenure().extended(after).await
    }

    /// Whether this process leads at this instant. The permit carries the term to where the write
    /// lands, and keeps the term from being given up while it lives.
    pub fn check(&self) -> Result<Permit, Lost> {
        match self.hold.remaining() {
            Some(valid_for) => Ok(Permit::new(self.hold.worker(), valid_for)),
            None => Err(lost(self.tenure())),
        }
    }

    /// Waits until the work must stop, and says how long it may take.
    ///
    /// It is ready while the lease still runs whenever that is possible: a renewal failed for too
    /// long, an operator or this process itself ended the term. After a pause longer than the lease
    /// it is ready at once, with nothing left.
    pub async fn lost(&self) -> Stop {
        self.tenure().listens();
        stop_of(&self.hold).await
    }

    /// Waits until renewals are failing and says how long the lease still runs; none if the term is
    /// over or about to be. Renewals may succeed again afterwards, so it can be waited for again.
    pub async fn jeopardy(&self) -> Option<Duration> {
        let mut standing = self.tenure().watch();
        let phase = match standing.wait_for(|it| it.phase != Phase::Leading).await {
            Ok(standing) => standing.phase,
            Err(_) => return None,
        };
        match phase {
            Phase::Jeopardy => self.hold.remaining(),
            Phase::Standby | Phase::Leading | Phase::Stopping | Phase::Stopped | Phase::Lost => {
                None
            }
        }
    }

    /// Waits until a term in jeopardy was renewed; false if it is over instead.
    pub async fn recovered(&self) -> bool {
        let mut standing = self.tenure().watch();
        match standing.wait_for(|it| it.phase != Phase::Jeopardy).await {
            Ok(standing) => standing.phase == Phase::Leading,
            Err(_) => false,
        }
    }

    /// The phase of this term.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.tenure().standing().phase
    }

    /// Starts a task that works under this term: it is dropped before it is polled again once the
    /// work must stop or the lease is over, and the term is not given up while it runs. It gives
    /// none if it was stopped.
    pub fn spawn<F>(&self, work: F) -> JoinHandle<Option<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let hold = self.hold.worker();
        tokio::spawn(async move {
            // In this order: the work is gone before it is said so.
            let output = Guarded::new(&hold, Patience::None, work).await;
            drop(hold);
            output
        })
    }

    /// Gives the term up and waits until the store knows: whoever is next leads at once. Everything
    /// else that works under this term is told to stop, and awaited.
    pub async fn resign(self) -> Result<(), Untold> {
        let (tenure, session) = (Arc::clone(self.tenure()), Arc::clone(self.hold.session()));
        self.give_up();
        over(&tenure, &session).await
    }

    /// Tells everything under this term to stop, and drops this handle of it.
    pub(crate) fn give_up(self) {
        let (group, term) = (self.group().clone(), self.term());
        self.tenure().give_up(true);
        self.hold.session().tell(Input::GiveUp { group, term });
    }

    /// Hands the office to a standby of this name, and waits until it is done: the standby is
    /// offered the office and gets warm while this process leads on; then the work of this term is
    /// told to stop and awaited, and the standby is promoted in one step. If it cannot take over, or
    /// takes longer than 30 s to get warm, the leadership is given back.
    pub async fn transfer(self, to: Node) -> Result<(), TransferError> {
        self.transfer_within(to, WARM_WITHIN).await
    }

    /// The same with another patience for the standby to get warm.
    pub async fn transfer_within(self, to: Node, within: Duration) -> Result<(), TransferError> {
        let (tenure, session) = (Arc::clone(self.tenure()), Arc::clone(self.hold.session()));
        let (group, term) = (tenure.group.clone(), tenure.term);
        let mut standing = tenure.watch();
        tenure.tell(|standing| standing.hand_over_refused = None);
        tenure.give_up(true);
        session.tell(Input::HandOver { group, term, to: to.clone(), within });
        let (refused, why) =
            match standing.wait_for(|it| it.is_to_stop() || it.hand_over_refused.is_some()).await {
                Ok(standing) => (standing.hand_over_refused.clone(), standing.why),
                Err(_) => (None, Why::SessionGone),
            };
        if let Some(why) = refused.filter(|_| self.hold.remaining().is_some()) {
            tenure.give_up(false);
            let leadership = Box::new(self);
            return Err(match why {
                HandOverFault::Refused(why) => TransferError::Refused { leadership, to, why },
                HandOverFault::NotWarm => TransferError::NotWarm { leadership, to, within },
            });
        }
        if why != Why::HandOver {
            return Err(TransferError::Lost(lost(&tenure)));
        }
        drop(self);
        over(&tenure, &session).await?;
        match tenure.standing().hand_over_refused {
            Some(HandOverFault::Refused(why)) => Err(TransferError::Resigned { to, why }),
            // Nobody waits for warmth once the work has been told to stop.
            Some(HandOverFault::NotWarm) | None => Ok(()),
        }
    }

    /// A resource refused this term because it has admitted a higher one: the term is lost at once.
    pub fn fence_refused(&self) {
        self.hold.superseded();
    }

    /// A resource refused a write of this term: the same, if it was for a higher one.
    pub fn refused(&self, why: &FenceError) {
        self.hold.refused(why);
    }

    /// Tells what the application's state looks like, for example a hash of what it has applied. Heartbeats carry it;
    /// should two ever act at once, the service compares theirs and says whether they have diverged
    /// (`docs/split-brain.md`). Tell it again whenever it changes; the last word counts.
    pub fn tell_digest(&self, digest: &Digest) {
        self.hold.tell_digest(digest.clone());
    }

    pub(crate) fn tenure(&self) -> &Arc<Tenure> {
        self.hold.tenure()
    }

    pub(crate) const fn hold(&self) -> &Hold {
        &self.hold
    }
}

fn lost(tenure: &Tenure) -> Lost {
    let standing = tenure.standing();
    let why = if standing.is_to_stop() { standing.why } else { Why::LeaseOver };
    Lost { group: tenure.group.clone(), term: tenure.term, why }
}

/// Waits until the work must stop: told by the session's thread, or seen on the clock, whichever is
/// first.
async fn stop_of(hold: &Hold) -> Stop {
    let mut standing = hold.tenure().watch();
    loop {
        let (is_to_stop, why) = {
            let standing = standing.borrow_and_update();
            (standing.is_to_stop(), standing.why)
        };
        match hold.remaining() {
            Some(within) if is_to_stop => return Stop { why, within },
            Some(_) => {}
            // Why is read again: it may have been told between the two.
            None => return Stop { why: lost(hold.tenure()).why, within: Duration::ZERO },
        }
        // Timers stand still while a machine sleeps and the lease clock does not.
        let _ = tokio::time::timeout(CLOCK_LOOK_EVERY, standing.changed()).await;
    }
}

/// Waits until the store knows of the end of a term, for as long as that matters.
async fn over(tenure: &Tenure, session: &crate::session::Session) -> Result<(), Untold> {
    let mut standing = tenure.watch();
    let told = standing.wait_for(|standing| standing.is_over);
    // The work may take the stop grace; after another ttl the store knows without being told.
    let free_within = session.budget.ttl();
    let wait = session.budget.stop_grace() + free_within;
    match tokio::time::timeout(wait, told).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) | Err(_) => {
            Err(Untold { group: tenure.group.clone(), term: tenure.term, free_within })
        }
    }
}

/// What work that must stop is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    /// The rest of the lease, if it has asked to be told when to stop.
    IfListening,
}

/// Waits until work under a term is to be cut off.
async fn cut(hold: &Hold, patience: Patience) {
    let _ = stop_of(hold).await;
    let is_patient = match patience {
        Patience::None => false,
        Patience::IfListening => hold.tenure().is_patient(),
    };
    while is_patient && let Some(remaining) = hold.remaining() {
        tokio::time::sleep(remaining.min(CLOCK_LOOK_EVERY)).await;
    }
}

/// Work that is polled only while its term allows it, and dropped otherwise.
pub(crate) struct Guarded<'h, F> {
    hold: &'h Hold,
    cut: Pin<Box<dyn Future<Output = ()> + Send + 'h>>,
    work: Pin<Box<F>>,
}

impl<'h, F: Future> Guarded<'h, F> {
    pub(crate) fn new(hold: &'h Hold, patience: Patience, work: F) -> Self {
        Self { hold, cut: Box::pin(cut(hold, patience)), work: Box::pin(work) }
    }
}

impl<F: Future> Future for Guarded<'_, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The clock before the work: after a pause longer than the lease it does not go on, though
        // nobody may have been told yet.
        if self.cut.as_mut().poll(cx).is_ready() || self.hold.remaining().is_none() {
            return Poll::Ready(None);
        }
        self.work.as_mut().poll(cx).map(Some)
    }
}
