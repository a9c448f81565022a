//! One term of one group, as its holders and the session's thread share it.
//!
//! A check must tell the truth at any instant, on any thread, without asking anybody. So the thread
//! that keeps the session writes two numbers and every holder reads them: the end of the session's
//! lease, one for all terms, and the end that is this term's own (never, while it leads; the moment
//! by which it must have stopped; zero once it is over). The earlier of the two counts, and a check reads
//! both before and after it reads the clock.
//!
//! Order of writing: the thread lowers a term's own end before it publishes the lease of a later session,
//! and publishes a lease before it tells a holder to lead on it.
//!
//! Beside them it is counted who is alive: handles, and what works under them. The last one to go
//! says so, and only then is the term given up (semantics 14).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regent_election::participant::{Phase, Why};
use regent_election::{Digest, FenceError, Group, Moment, Node, Term};
use tokio::sync::watch;

use crate::driver::{HandOverFault, Input};
use crate::session::Session;

/// The lease of a session: one for all its terms, written by the session's thread alone.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// Its end in nanoseconds.
    until: AtomicU64,
    changed: watch::Sender<()>,
}

impl Lease {
    /// Lets everybody see this end, and wakes those who wait for a later one.
    pub(crate) fn publish(&self, until: Moment) {
        if self.until.swap(until.as_nanos(), Ordering::SeqCst) != until.as_nanos() {
            self.changed.send_replace(());
        }
    }

    fn until_nanos(&self) -> u64 {
        self.until.load(Ordering::SeqCst)
    }
}

/// What is known of a term.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) phase: Phase,
    pub(crate) why: Why,
    /// When the work must have ended, once it has been told to.
    pub(crate) stop_by: Option<Moment>,
    /// Why a hand-over did not come about, if one did not.
    pub(crate) hand_over_refused: Option<HandOverFault>,
    /// Whether the last resort was called for it, or nobody is left to call it.
    pub(crate) has_overrun: bool,
    /// Whether the store knows of the end.
    pub(crate) is_over: bool,
    /// Whether it ends because its group moves to another store.
    pub(crate) moves: bool,
    /// Whether somebody goes ahead to where the group moves, and is not back.
    pub(crate) is_scouted: bool,
    /// Whether nothing of it is alive: no handle, and nothing that works under it.
    pub(crate) is_idle: bool,
}

impl Standing {
    /// The session's thread has seen a change of phase.
    pub(crate) const fn moved(&mut self, to: Phase, why: Why) {
        match (self.phase, to) {
            // Back to standby is no phase of this term any more.
            (_, Phase::Standby) => {}
            // Lost is final, also if a fence said so before the session's thread has heard it.
            (Phase::Lost, Phase::Leading | Phase::Jeopardy | Phase::Stopping | Phase::Stopped) => {}
            (
                _,
                Phase::Leading | Phase::Jeopardy | Phase::Stopping | Phase::Stopped | Phase::Lost,
            ) => {
                (self.phase, self.why) = (to, why);
            }
        }
    }

    /// Whether the work has been told to stop, or should have been.
    pub(crate) const fn is_to_stop(&self) -> bool {
        match self.phase {
            Phase::Standby | Phase::Leading | Phase::Jeopardy => false,
            Phase::Stopping | Phase::Stopped | Phase::Lost => true,
        }
    }
}

/// One term.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub(crate) group: Group,
    pub(crate) term: Term,
    pub(crate) node: Node,
    lease: Arc<Lease>,
    /// The end that is this term's own. It only ever falls.
    own_until: AtomicU64,
    alive: Mutex<Alive>,
    standing: watch::Sender<Standing>,
    /// Whether the work has asked to be told when to stop.
    is_listening: AtomicBool,
    is_given_up: AtomicBool,
}

#[derive(Debug, Default)]
struct Alive {
    /// Handles of the leadership.
    handles: usize,
    /// Permits and guarded tasks.
    workers: usize,
    scout: Scouting,
}

/// Whether the term waits for a scout: see [`Scout`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Scouting {
    /// Nobody would go ahead.
    #[default]
    None,
    /// Somebody will if the group moves; until then nothing waits for it.
    Ready,
    /// The group moves: the term is given up when the scout is back.
    Ahead,
}

impl Alive {
    /// Whether nothing of the term is alive and nothing is waited for.
    fn is_over(&self) -> bool {
        self.handles == 0 && self.workers == 0 && self.scout != Scouting::Ahead
    }
}

impl Tenure {
    pub(crate) fn new(group: Group, term: Term, node: Node, lease: Arc<Lease>) -> Self {
        let (phase, why) = (Phase::Leading, Why::Elected);
        let standing = Standing {
            phase,
            why,
            stop_by: None,
            hand_over_refused: None,
            has_overrun: false,
            is_over: false,
            moves: false,
            is_scouted: false,
            is_idle: false,
        };
        Self {
            group,
            term,
            node,
            lease,
            own_until: AtomicU64::new(u64::MAX),
            alive: Mutex::default(),
            standing: watch::Sender::new(standing),
            is_listening: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
        }
    }

    /// How long this term is valid at the moment `now` reads, which happens inside.
    ///
    /// The numbers are read on both sides of the clock: an end that fell in between counts, and an
    /// extension that came in between does not make a moment longer that lies before it.
    pub(crate) fn remaining(&self, now: impl FnOnce() -> Moment) -> Option<Duration> {
        let before = self.until();
        let now = now();
        let until = before.min(self.until());
        (now < until).then(|| now.until(until))
    }

    /// Until when this term is valid unless it is renewed; zero if it is over.
    ///
    /// The session's number is read first: whoever begins a session has ended all terms before it.
    pub(crate) fn until(&self) -> Moment {
        let lease_until = self.lease.until_nanos();
        Moment::from_nanos(lease_until.min(self.own_until.load(Ordering::SeqCst)))
    }

    /// Waits until this term is valid for longer than `after`; none once the work must stop.
    pub(crate) async fn extended(&self, after: Moment) -> Option<Moment> {
        let (mut standing, mut lease) = (self.watch(), self.lease.changed.subscribe());
        loop {
            // Marked as seen before they are looked at: a change after that ends the wait below.
            lease.borrow_and_update();
            if standing.borrow_and_update().is_to_stop() {
                return None;
            }
            let until = self.until();
            if until > after {
                return Some(until);
            }
            // Neither can be closed: both are held here.
            tokio::select! {
                _ = standing.changed() => {}
                _ = lease.changed() => {}
            }
        }
    }

    /// Lowers this term's own end.
    pub(crate) fn ends_by(&self, until: Moment) {
        self.own_until.fetch_min(until.as_nanos(), Ordering::SeqCst);
    }

    /// Tells the holders what has changed.
    pub(crate) fn tell(&self, change: impl FnOnce(&mut Standing)) {
        self.standing.send_modify(change);
    }

    /// A resource has admitted a higher term. Validity ends within the very step that tells why, so that
    /// nobody who finds it ended can be told another reason.
    fn superseded(&self) {
        self.tell(|standing| {
            self.ends_by(Moment::ZERO);
            match standing.phase {
                Phase::Standby | Phase::Leading | Phase::Jeopardy | Phase::Stopping => {
                    (standing.phase, standing.why) = (Phase::Lost, Why::FenceRefused);
                }
                Phase::Stopped | Phase::Lost => {}
            }
        });
    }

    /// What is known, and how to hear of changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    pub(crate) fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    pub(crate) fn listens(&self) {
        self.is_listening.store(true, Ordering::Relaxed);
    }

    /// The holder itself gives the term up, or has to keep it after all.
    pub(crate) fn give_up(&self, is_given_up: bool) {
        self.is_given_up.store(is_given_up, Ordering::Relaxed);
    }

    /// Whether work that is told to stop is given the rest of the lease: if it has asked to be told,
    /// and is not itself the one who waits for its end.
    pub(crate) fn is_patient(&self) -> bool {
        self.is_listening.load(Ordering::Relaxed) && !self.is_given_up.load(Ordering::Relaxed)
    }

    /// The group moves: if somebody would go ahead, the term is not given up before it is back.
    pub(crate) fn await_scout(&self) {
        let is_scouted = {
            let mut alive = self.alive();
            if alive.scout == Scouting::Ready {
                alive.scout = Scouting::Ahead;
            }
            alive.scout == Scouting::Ahead
        };
        self.tell(|standing| (standing.moves, standing.is_scouted) = (true, is_scouted));
    }

    fn alive(&self) -> std::sync::MutexGuard<'_, Alive> {
        // Two counters cannot be left half changed.
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What of a term is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Handle,
    Worker,
}

/// Keeps a term from being given up while it lives. Knows the session, so that it lives, too.
#[derive(Debug)]
pub(crate) struct Hold {
    tenure: Arc<Tenure>,
    session: Arc<Session>,
    kind: Kind,
}

impl Hold {
    /// Of a handle: when the last one goes, nobody wants the term any more.
    pub(crate) fn handle(tenure: Arc<Tenure>, session: Arc<Session>) -> Self {
        tenure.alive().handles += 1;
        Self { tenure, session, kind: Kind::Handle }
    }

    /// The same for another handle.
    pub(crate) fn another(&self) -> Self {
        Self::handle(Arc::clone(&self.tenure), Arc::clone(&self.session))
    }

    /// Of something that works under the term.
    pub(crate) fn worker(&self) -> Self {
        self.tenure.alive().workers += 1;
        let (tenure, session) = (Arc::clone(&self.tenure), Arc::clone(&self.session));
        Self { tenure, session, kind: Kind::Worker }
    }

    pub(crate) fn tenure(&self) -> &Arc<Tenure> {
        &self.tenure
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// How long the term is valid.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.tenure.remaining(|| self.session.now())
    }

    /// A resource refused a write of this term.
    pub(crate) fn refused(&self, why: &FenceError) {
        match why {
            FenceError::Stale { given, current }
                if *given == self.tenure.term && current > given =>
            {
                let (group, node) = (&self.tenure.group, &self.tenure.node);
                tracing::warn!(%group, %node, term = %given, "a resource refused term {given}: it has seen {current}");
                self.superseded();
            }
            FenceError::Stale { .. } | FenceError::NeverGranted => {}
        }
    }

    /// What the application's state looks like, for whoever compares two that act.
    pub(crate) fn tell_digest(&self, digest: Digest) {
        let (group, term) = (self.tenure.group.clone(), self.tenure.term);
        self.session.tell(Input::Digest { group, term, digest });
    }

    /// A resource has admitted a higher term: this one is lost, here at once, and for the store as soon as
    /// the session's thread has told it.
    pub(crate) fn superseded(&self) {
        self.tenure.superseded();
        let (group, term) = (self.tenure.group.clone(), self.tenure.term);
        self.session.tell(Input::FenceRefused { group, term });
    }
}

/// Somebody who goes ahead if the group moves, so that this process stands in the new store before it has
/// given up its term in the old one. It keeps nothing alive until the store says that the group moves;
/// from then on the term is given up when the scout is gone, too.
#[derive(Debug)]
pub(crate) struct Scout {
    tenure: Arc<Tenure>,
    session: Arc<Session>,
}

impl Scout {
    /// For a term that nobody scouts for yet.
    pub(crate) fn of(hold: &Hold) -> Self {
        hold.tenure.alive().scout = Scouting::Ready;
        Self { tenure: Arc::clone(&hold.tenure), session: Arc::clone(&hold.session) }
    }
}

impl Drop for Scout {
    fn drop(&mut self) {
        let (was, is_over) = {
            let mut alive = self.tenure.alive();
            let was = std::mem::take(&mut alive.scout);
            (was, alive.is_over())
        };
        self.tenure.tell(|standing| standing.is_scouted = false);
        if was == Scouting::Ahead && is_over {
            let (group, term) = (self.tenure.group.clone(), self.tenure.term);
            self.session.tell(Input::Idle { group, term });
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let (handles, workers, is_over) = {
            let mut alive = self.tenure.alive();
            match self.kind {
                Kind::Handle => alive.handles -= 1,
                Kind::Worker => alive.workers -= 1,
            }
            (alive.handles, alive.workers, alive.is_over())
        };
        let (group, term) = (self.tenure.group.clone(), self.tenure.term);
        match (handles, workers, self.kind) {
            // Validity ends here, before anybody else could be told (semantics 14).
            (0, 0, Kind::Handle | Kind::Worker) => {
                self.tenure.ends_by(Moment::ZERO);
                self.tenure.tell(|standing| standing.is_idle = true);
                // Otherwise the scout says it.
                if is_over {
                    self.session.tell(Input::Idle { group, term });
                }
            }
            (0, _, Kind::Handle) => self.session.tell(Input::GiveUp { group, term }),
            (_, _, Kind::Handle | Kind::Worker) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fence refuses while the session's thread is about to tell of something else.
    #[test]
    fn what_a_fence_has_ended_no_later_news_of_the_same_term_brings_back() {
        let (group, node) = ("billing".parse().unwrap(), "a".parse().unwrap());
        let lease = Arc::new(Lease::default());
        lease.publish(Moment::from_nanos(u64::MAX));
        let tenure = Tenure::new(group, Term::new(1).unwrap(), node, lease);
        assert!(tenure.remaining(|| Moment::ZERO).is_some());
        tenure.superseded();
        assert_eq!(tenure.remaining(|| Moment::ZERO), None);
        for (to, why) in [
            (Phase::Jeopardy, Why::RenewalsFail),
            (Phase::Leading, Why::Renewed),
            (Phase::Stopping, Why::LeaseNearlyOver),
        ] {
            tenure.tell(|standing| standing.moved(to, why));
            let standing = tenure.standing();
            assert_eq!((standing.phase, standing.why), (Phase::Lost, Why::FenceRefused));
            assert!(standing.is_to_stop());
        }
        assert_eq!(tenure.remaining(|| Moment::ZERO), None);
    }
}
