//! The bell: one listening connection rings it, everybody who waits for a key hears it.
//!
//! A ring is a hint. One that was lost costs a wait until the next look, never a wrong decision.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;

use super::limits::{POLL_EVERY, RECHECK_EVERY, RECONNECT_AFTER, RINGS_MAX};

/// What is rung, and heard by all who listen.
#[derive(Debug)]
pub(crate) struct Bell {
    /// A name, or none when anything may have happened.
    rings: broadcast::Sender<Option<String>>,
    /// Whether there is a connection that would ring.
    is_attended: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { rings: broadcast::Sender::new(RINGS_MAX), is_attended: AtomicBool::new(false) }
    }

    /// Tells that this one changed.
    pub(crate) fn ring(&self, name: &str) {
        // Nobody listens: then nobody waits.
        let _ = self.rings.send(Some(name.to_owned()));
    }

    /// From now on changes are rung; anything may have changed before, and nobody would have told.
    pub(crate) fn is_attended_now(&self) {
        self.is_attended.store(true, Ordering::Release);
        self.ring_for_all();
    }

    /// Tells that anything may have changed.
    pub(crate) fn ring_for_all(&self) {
        let _ = self.rings.send(None);
    }

    /// Hears everything from this call on.
    pub(crate) fn listen(&self) -> Listener {
        Listener { rings: self.rings.subscribe() }
    }
}

/// An ear at the bell.
#[derive(Debug)]
pub(crate) struct Listener {
    rings: broadcast::Receiver<Option<String>>,
}

impl Listener {
    /// Returns when the name was rung since [`Bell::listen`], or may have been.
    pub(crate) async fn heard(&mut self, name: &str) {
        self.heard_any(&[name]).await;
    }

    /// The same for whichever of these names is rung first.
    pub(crate) async fn heard_any(&mut self, names: &[impl AsRef<str>]) {
        let is_one = |rung: &str| names.iter().any(|name| name.as_ref() == rung);
        loop {
            match self.rings.recv().await {
                Ok(Some(rung)) if !is_one(&rung) => {}
                Ok(Some(_) | None) | Err(RecvError::Lagged(_)) => return,
                // Nobody will ring any more; the one who waits has a patience of its own.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

/// A bell and the task that keeps it ringing, begun when somebody first waits.
#[derive(Debug)]
pub(crate) struct Tower {
    bell: Arc<Bell>,
    ringer: Mutex<Option<JoinHandle<()>>>,
}

impl Tower {
    pub(crate) fn new() -> Self {
        Self { bell: Arc::new(Bell::new()), ringer: Mutex::new(None) }
    }

    /// Hears everything from this call on. `ring` connects to the server and rings until it is lost; it
    /// is begun again after a rest, for as long as the tower stands.
    pub(crate) fn listen<R, F>(&self, ring: R) -> Listener
    where
        R: Fn(Arc<Bell>) -> F + Send + 'static,
        F: Future<Output = ()> + Send,
    {
        let mut ringer = self.ringer();
        // One that ended with the runtime of whoever asked first is replaced.
        if ringer.as_ref().is_none_or(JoinHandle::is_finished) {
            let bell = Arc::clone(&self.bell);
            *ringer = Some(tokio::spawn(async move {
                loop {
                    ring(Arc::clone(&bell)).await;
                    bell.is_attended.store(false, Ordering::Release);
                    tokio::time::sleep(RECONNECT_AFTER).await;
                }
            }));
        }
        self.bell.listen()
    }

    /// Waits until `name` is rung, for at most `patience` and the time until somebody must look.
    pub(crate) async fn heard(&self, mut ear: Listener, name: &str, patience: Duration) {
        let is_attended = self.bell.is_attended.load(Ordering::Acquire);
        let look_after = if is_attended { RECHECK_EVERY } else { POLL_EVERY };
        let _ = tokio::time::timeout(patience.min(look_after), ear.heard(name)).await;
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        if let Some(task) = self.ringer().take() {
            task.abort();
        }
    }

    fn ringer(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.ringer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Tower {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_hears_its_own_name_and_what_everybody_must() {
        let bell = Bell::new();
        let mut ear = bell.listen();
        bell.ring("other");
        assert!(tokio::time::timeout(std::time::Duration::ZERO, ear.heard("mine")).await.is_err());
        bell.ring("mine");
        ear.heard("mine").await;
        bell.is_attended_now();
        ear.heard("mine").await;
    }

    #[tokio::test]
    async fn a_listener_that_missed_rings_looks_for_itself() {
        let bell = Bell::new();
        let mut ear = bell.listen();
        for _ in 0..=RINGS_MAX {
            bell.ring("other");
        }
        ear.heard("mine").await;
    }
}
