//! Level 3: the classic elector, with questions and callbacks.
//!
//! For programs that are built around "am I the leader?" and "tell me when that changes". The safe
//! parts are the same as in the other levels: [`Elector::is_leader`] reads the lease clock, and the
//! term is not given up before every callback of its loss has returned. That holds whoever ends it,
//! the elector's own end included. A callback that panics harms no other; one that was to stop the
//! work and panicked has not stopped it, so the term then ends with its lease and not before.
//!
//! What is known of other leaders comes from the watch and has an age; [`Elector::fresh`] asks.

use std::convert::Infallible;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use regent_election::store::{Consistency, StoreError, StoreResult};
use regent_election::{Group, NameError, Node, Term};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::backend::ObservedLeader;
use crate::error::{CampaignError, ConnectError};
use crate::follow::HOPS_MAX;
use crate::leader_watch::Current;
use crate::leadership::{Leadership, Stop};
use crate::regent::{Regent, ToGroup};

/// Stands in one group and tells what becomes of it. Cheap to clone; when the last clone goes, what
/// is held is given up in the background, after the callbacks of its loss.
#[derive(Clone)]
pub struct Elector {
    inside: Arc<Inside>,
}

struct Inside {
    regent: Regent,
    group: Group,
    shared: Arc<Shared>,
    /// Tells what the watch sees; ended with the elector.
    _watching: JoinSet<()>,
    is_started: Mutex<bool>,
}

/// What the elector's tasks may outlive it with.
struct Shared {
    held: Mutex<Option<Leadership>>,
    callbacks: Arc<Mutex<Callbacks>>,
    notices: mpsc::UnboundedSender<Notice>,
    /// Whether the last clone of the elector is gone.
    is_over: watch::Sender<bool>,
}

type Callback<T> = Arc<dyn Fn(T) + Send + Sync>;

#[derive(Default)]
struct Callbacks {
    gained: Vec<Callback<Term>>,
    lost: Vec<Callback<Stop>>,
    jeopardy: Vec<Callback<Duration>>,
    changed: Vec<Callback<Current>>,
}

/// What callbacks are told, in order.
enum Notice {
    Gained(Term),
    Jeopardy(Duration),
    /// The term is given up when the callbacks have returned; the answer says whether all did.
    Lost(Stop, oneshot::Sender<bool>),
    Changed(Current),
}

impl Regent {
    /// An elector for `group`. It observes; it stands when it is told to. To be called within a
    /// Tokio runtime, on which its callbacks run.
    pub fn elector(&self, group: impl ToGroup) -> Result<Elector, NameError> {
        let group = group.to_group()?;
        let (notices, noticed) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            held: Mutex::default(),
            callbacks: Arc::default(),
            notices: notices.clone(),
            is_over: watch::Sender::new(false),
        });
        // Ends when nobody can have anything to tell any more.
        tokio::spawn(call_back(Arc::clone(&shared.callbacks), noticed));
        let mut watching = JoinSet::new();
        let mut watch = self.watch_leader(&group)?;
        watching.spawn(async move {
            loop {
                let _ = notices.send(Notice::Changed(watch.next().await));
            }
        });
        let (regent, is_started) = (self.clone(), Mutex::new(false));
        let inside = Inside { regent, group, shared, _watching: watching, is_started };
        Ok(Elector { inside: Arc::new(inside) })
    }
}

impl Elector {
    /// The group in which it campaigns.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.inside.group
    }

    /// Whether this process leads at this instant: after any pause it tells the truth. To write,
    /// take the [`leadership`](Self::leadership) and its permit, which carries the term.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leadership().is_some()
    }

    /// The leadership, if this process leads at this instant.
    #[must_use]
    pub fn leadership(&self) -> Option<Leadership> {
        self.inside.shared.held().clone().filter(|held| !held.valid_for().is_zero())
    }

    /// Tries once: true if this process leads, false if somebody else does. Nothing is left in line.
    pub async fn try_become_leader(&self) -> Result<bool, CampaignError> {
        if self.is_leader() {
            return Ok(true);
        }
        let session = self.inside.regent.session();
        let is_other =
            |leader: &Option<Node>| leader.as_ref().is_some_and(|it| *it != session.node);
        if self.fresh().await.is_ok_and(|current| is_other(&current.leader)) {
            return Ok(false);
        }
        let mut sights = session.known.listen(&self.inside.group);
        let begun_at = self.inside.regent.session().known.revision(&self.inside.group);
        let somebody_else = async {
            while let Some(sight) = sights.recv().await {
                if is_other(&sight.leader) && Some(sight.revision) > begun_at {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            elected = self.inside.regent.campaign(&self.inside.group).into_future() => {
                self.take(elected?);
                Ok(true)
            }
            () = somebody_else => Ok(false),
            // The store cannot be reached, or somebody else leads under our name.
            () = tokio::time::sleep(session.budget.ttl()) => Ok(false),
        }
    }

    /// Stands for ever from now on, in the background: elected again after every loss.
    pub fn start(&self) {
        let mut is_started = lock(&self.inside.is_started);
        if std::mem::replace(&mut *is_started, true) {
            return;
        }
        let shared = Arc::clone(&self.inside.shared);
        let campaign = self.inside.regent.campaign(&self.inside.group);
        tokio::spawn(async move {
            loop {
                let won = tokio::select! {
                    biased;
                    () = shared.over() => return,
                    won = campaign.clone().into_future() => won,
                };
                match won {
                    Ok(leadership) => hold(Arc::clone(&shared), leadership).await,
                    Err(
                        refusal @ (CampaignError::Refused(_)
                        | CampaignError::CannotFollow { .. }
                        | CampaignError::TermNotAbove { .. }),
                    ) => {
                        tracing::warn!(%refusal, "cannot stand; trying again after a ttl");
                        let _ = tokio::time::timeout(campaign.ttl(), shared.over()).await;
                    }
                    Err(
                        CampaignError::Name(_)
                        | CampaignError::TooManyGroups
                        | CampaignError::Closed,
                    ) => return,
                }
            }
        });
    }

    /// Gives up what is held, if anything: callbacks of the loss are called and awaited first.
    pub fn resign(&self) {
        if let Some(leadership) = self.leadership() {
            leadership.give_up();
        }
    }

    /// Calls this whenever this process begins to lead.
    pub fn on_leadership_gained(&self, callback: impl Fn(Term) + Send + Sync + 'static) {
        self.inside.shared.callbacks().gained.push(Arc::new(callback));
    }

    /// Calls this whenever this process must stop leading. The term is given up when all callbacks
    /// have returned, so they are the place to stop the work; how long that may take is told.
    pub fn on_leadership_lost(&self, callback: impl Fn(Stop) + Send + Sync + 'static) {
        self.inside.shared.callbacks().lost.push(Arc::new(callback));
    }

    /// Calls this whenever renewals begin to fail, with what is left of the lease.
    pub fn on_jeopardy(&self, callback: impl Fn(Duration) + Send + Sync + 'static) {
        self.inside.shared.callbacks().jeopardy.push(Arc::new(callback));
    }

    /// Calls this whenever somebody else, or nobody, is seen to lead.
    pub fn on_leader_changed(&self, callback: impl Fn(Current) + Send + Sync + 'static) {
        self.inside.shared.callbacks().changed.push(Arc::new(callback));
    }

    /// Who leads, as far as the watch has told, with its age; none before it has told anything.
    #[must_use]
    pub fn known_leader(&self) -> Option<Current> {
        self.inside.regent.known_leader(&self.inside.group)
    }

    /// Who leads, from the watch if that was heard within a tenth of the ttl, and asked otherwise.
    pub async fn current_leader(&self) -> StoreResult<Current> {
        let age_max = self.inside.regent.budget().ttl() / 10;
        // That nobody leads may also mean that the group has moved: that is asked.
        let known = self.known_leader().filter(|known| known.leader.is_some());
        match known.filter(|known| known.age <= age_max) {
            Some(known) => Ok(known),
            None => self.fresh().await,
        }
    }

    /// Who leads, by the store's word: no older than anything that was known before the call.
    pub async fn fresh(&self) -> StoreResult<Current> {
        let group = &self.inside.group;
        let mut hops = 0;
        loop {
            let session = self.inside.regent.home_of(group);
            let asked_at = session.now();
            let view = session.reads.leader(group, Consistency::Linearizable).await?;
            if let Some(to) = view.moved_to.as_ref().filter(|_| hops < HOPS_MAX) {
                hops += 1;
                let unavailable = |error: ConnectError| StoreError::Unavailable {
                    why: format!("{group} has moved to {to}, which cannot be reached: {error}"),
                    retry_after: None,
                };
                self.inside.regent.follow(group, to).await.map_err(unavailable)?;
                continue;
            }
            let sight = ObservedLeader::from(view);
            session.known.note(sight.clone(), asked_at);
            return Ok(Current::of(sight, session.now().since(asked_at)));
        }
    }

    fn take(&self, leadership: Leadership) {
        let shared = Arc::clone(&self.inside.shared);
        // Visible before anybody is told that it was won.
        *shared.held() = Some(leadership.clone());
        tokio::spawn(hold(shared, leadership));
    }
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector").field("group", &self.inside.group).finish_non_exhaustive()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.shared.is_over.send_replace(true);
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Option<Leadership>> {
        lock(&self.held)
    }

    fn callbacks(&self) -> MutexGuard<'_, Callbacks> {
        lock(&self.callbacks)
    }

    fn tell(&self, notice: Notice) {
        let _ = self.notices.send(notice);
    }

    /// Waits until the elector is gone.
    async fn over(&self) {
        let _ = self.is_over.subscribe().wait_for(|is_over| *is_over).await;
    }
}

/// What is behind these locks is replaced whole, so a panic elsewhere leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Holds one leadership to its end.
async fn hold(shared: Arc<Shared>, leadership: Leadership) {
    *shared.held() = Some(leadership.clone());
    shared.tell(Notice::Gained(leadership.term()));
    let stop = tokio::select! {
        biased;
        stop = leadership.lost() => stop,
        () = shared.over() => {
            // Told to stop like any other work; what it holds is held until it has.
            leadership.clone().give_up();
            leadership.lost().await
        }
        never = warn(&shared, &leadership) => match never {},
    };
    *shared.held() = None;
    let (sender, stopped) = oneshot::channel();
    shared.tell(Notice::Lost(stop, sender));
    // Whatever the callbacks stop has stopped when they have returned; only then is the term given
    // up. If they take too long, the last resort is called meanwhile.
    if stopped.await != Ok(true) {
        run_out(&leadership).await;
    }
    leadership.give_up();
}

/// Tells of every jeopardy.
async fn warn(shared: &Shared, leadership: &Leadership) -> Infallible {
    loop {
        match leadership.jeopardy().await {
            Some(remaining) => {
                shared.tell(Notice::Jeopardy(remaining));
                leadership.recovered().await;
            }
            // It is over or about to be, which is told elsewhere.
            None => std::future::pending().await,
        }
    }
}

/// Waits until the last resort was called for work that did not stop.
async fn run_out(leadership: &Leadership) {
    let mut standing = leadership.tenure().watch();
    let _ = standing.wait_for(|standing| standing.has_overrun).await;
}

/// Calls back, one thing after the other.
async fn call_back(callbacks: Arc<Mutex<Callbacks>>, mut notices: mpsc::UnboundedReceiver<Notice>) {
    while let Some(notice) = notices.recv().await {
        // Called without the lock: a callback may register another one.
        match notice {
            Notice::Gained(term) => {
                let gained = lock(&callbacks).gained.clone();
                call_all(&gained, &term);
            }
            Notice::Jeopardy(remaining) => {
                let jeopardy = lock(&callbacks).jeopardy.clone();
                call_all(&jeopardy, &remaining);
            }
            Notice::Lost(stop, stopped) => {
                let lost = lock(&callbacks).lost.clone();
                let _ = stopped.send(call_all(&lost, &stop));
            }
            Notice::Changed(current) => {
                let changed = lock(&callbacks).changed.clone();
                call_all(&changed, &current);
            }
        }
    }
}

/// Calls all of them, whatever one does; says whether all returned.
fn call_all<T: Clone>(callbacks: &[Callback<T>], told: &T) -> bool {
    let mut have_returned = true;
    for callback in callbacks {
        // Nothing of ours is touched by what it leaves half done.
        let called = catch_unwind(AssertUnwindSafe(|| callback(told.clone())));
        if called.is_err() {
            have_returned = false;
            tracing::error!(
                "a callback of an elector panicked; the others are called all the same"
            );
        }
    }
    have_returned
}
