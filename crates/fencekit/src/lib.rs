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
//! A trial must be able to fail: the same with [`TrialOptions::is_fenced`] off has to find stale writes.
//! Anything can be tried that is a [`Target`]: the adapters of `regent::fencing` are, by `postgres` and so on,
//! and other people's storage is, by [`http`] or a program of their own ([`exec`]). [`open()`] finds the target
//! of a URL.

#[cfg(feature = "dynamodb")]
pub mod dynamodb;
pub mod exec;
pub mod file;
pub mod http;
mod judge;
#[cfg(feature = "object")]
pub mod object;
mod open;
mod plan;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod run;
mod show;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use regent::fencing::{Proof as _, WriteError, WriteResult};
use regent_election::FenceError;
use tokio::sync::watch;

pub use judge::{FaultKind, FenceFault};
pub use open::{Opened, TargetError, open};
pub use regent::fencing::Pretender;
pub use run::{FenceVerdict, Tally, TrialOptions, TrialReport, run};
pub use show::Shown;

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
    pub resource: String,
    pub leader: Pretender,
    /// What: replaces whatever is there.
    pub value: String,
    /// Whether the term is to be compared. Without, the write must be made as if there were no fence.
    pub is_fenced: bool,
    /// The pause between check and write.
    pub pause: Pause,
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

fn failed(why: impl Into<Box<dyn Error + Send + Sync>>) -> WriteError {
    WriteError::Failed(why.into())
}

fn uncertain(why: impl Into<Box<dyn Error + Send + Sync>>) -> WriteError {
    WriteError::Uncertain(why.into())
}

/// The refusal as an error, told to the leader that was refused.
fn refuse(leader: &Pretender, why: FenceError) -> WriteError {
    leader.refused(&why);
    WriteError::Refused(why)
}
