//! Trials of a fence: leaders that were paused between their check and their write, and a judge.
//!
//! One trial is a succession on one resource: a leader, its successor, perhaps the successor of that one,
//! and sometimes somebody who was deposed long ago. Each passes its check, rests (not at all, for a
//! moment, or until its successor has written, which is what a pause of ten ttls comes to), and writes.
//! Ten trials share a resource, so the mark of one is where the next begins.
//!
//! The judge sees only what a client sees: what was accepted or refused, in which real order, and what a
//! read shows. So it can judge storage that nobody can look into, and it needs no log of it.
//!
//! A trial must be able to fail: the same with [`Options::is_fenced`] off has to find stale writes.
//! Anything can be tried that is a [`Target`]: the adapters are, by `trial::postgres` and so on, and other
//! people's storage is, by [`http`] or a program of their own ([`exec`]).

#[cfg(feature = "fence-dynamodb")]
pub mod dynamodb;
pub mod exec;
pub mod file;
pub mod http;
mod judge;
#[cfg(feature = "fence-object")]
pub mod object;
mod plan;
#[cfg(feature = "fence-postgres")]
pub mod postgres;
#[cfg(feature = "fence-redis")]
pub mod redis;
mod run;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use regent_election::{FenceError, Term};
use tokio::sync::watch;

pub use judge::{Fault, FaultKind};
pub use run::{Options, Report, Tally, run};

use super::{Proof, WriteResult};

/// How long anybody rests at most: a target that lets others wait for a paused write must not hang.
const REST_MAX: Duration = Duration::from_secs(2);

/// Something that is written under a term.
#[async_trait]
pub trait Target: Send + Sync {
    /// Writes, and says what came of it.
    ///
    /// [`Pause::over`] is to be awaited between whatever is looked at beforehand and the write, and before
    /// anything is locked that another write would wait for.
    async fn write(&self, write: &Write) -> WriteResult<()>;

    /// What the resource holds, read so that every acknowledged write is seen.
    async fn read(&self, resource: &str) -> Result<Option<String>, Box<dyn Error + Send + Sync>>;
}

/// One write of a trial.
#[derive(Debug)]
pub struct Write {
    /// Where.
    pub resource: String,
    /// By whom.
    pub leader: Pretender,
    /// What: replaces whatever is there.
    pub value: String,
    /// Whether the term is to be compared. Without, the write must be made as if there were no fence.
    pub is_fenced: bool,
    /// The pause between check and write.
    pub pause: Pause,
}

/// A leader of a trial: a term that nobody was elected with.
///
/// For tests of fences and nothing else. Whoever writes to real storage with it writes without an office.
#[derive(Debug)]
pub struct Pretender {
    term: Term,
    is_refused: AtomicBool,
}

impl Pretender {
    /// Somebody with this term.
    #[must_use]
    pub const fn new(term: Term) -> Self {
        Self { term, is_refused: AtomicBool::new(false) }
    }

    /// Whether it was told that a higher term was admitted.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }
}

impl Proof for Pretender {
    fn term(&self) -> Term {
        self.term
    }

    fn refused(&self, why: &FenceError) {
        match why {
            FenceError::Stale { .. } => self.is_refused.store(true, Ordering::Relaxed),
            FenceError::NeverGranted => {}
        }
    }
}

/// The order of what happens in a run: every look at it is later than the one before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order(Arc<AtomicU64>);

impl Order {
    fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// A pause between check and write. A clone is the same pause.
#[derive(Clone, Debug)]
pub struct Pause {
    rest: Rest,
    order: Order,
    /// When the term was shown, in the run's order; zero before.
    shown_at: Arc<AtomicU64>,
    /// When it was over; zero before.
    left_at: Arc<AtomicU64>,
}

/// How long.
#[derive(Clone, Debug)]
pub(crate) enum Rest {
    None,
    For(Duration),
    /// Until this many writes of the successor have ended.
    Until(watch::Receiver<usize>),
}

impl Pause {
    pub(crate) fn new(rest: Rest, order: Order) -> Self {
        Self { rest, order, shown_at: Arc::default(), left_at: Arc::default() }
    }

    /// Says that the target learns the term before the pause is over, as with the head of a request whose body
    /// comes late. To be said before the head is sent.
    pub fn shows_term(&self) {
        let now = self.order.now();
        let _ = self.shown_at.compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Waits until the writer goes on. What it does from here on, it does late.
    pub async fn over(&self) {
        match &self.rest {
            Rest::None => {}
            Rest::For(time) => tokio::time::sleep(*time).await,
            Rest::Until(succeeded) => {
                let mut succeeded = succeeded.clone();
                let _ =
                    tokio::time::timeout(REST_MAX, succeeded.wait_for(|writes| *writes > 0)).await;
            }
        }
        // Only the first counts: whoever tries again after a lost race is not paused again.
        let now = self.order.now();
        let _ = self.left_at.compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst);
    }

    fn left_at(&self) -> u64 {
        self.left_at.load(Ordering::SeqCst)
    }

    /// When the term was shown, if that was before the write left.
    fn shown_at(&self) -> Option<u64> {
        Some(self.shown_at.load(Ordering::SeqCst)).filter(|shown_at| *shown_at > 0)
    }
}
