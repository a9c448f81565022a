//! A feed of changes: one connection listens for them, everybody who waits for a key is told.
//!
//! A change that is told is a hint. One that was lost costs a wait until the next look, never a wrong decision.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;

use super::limits::{POLL_EVERY, RECHECK_EVERY, RECONNECT_AFTER, RINGS_MAX};
use crate::register::{Key, Register, RegisterResult, Version};

/// Tells changes to everybody who has subscribed.
#[derive(Debug)]
pub(crate) struct ChangeFeed {
    /// A name, or none when anything may have happened.
    changes: broadcast::Sender<Option<String>>,
    /// Whether there is a connection that tells changes.
    is_attended: AtomicBool,
}

impl ChangeFeed {
    pub(crate) fn new() -> Self {
        Self { changes: broadcast::Sender::new(RINGS_MAX), is_attended: AtomicBool::new(false) }
    }

    /// Tells that this one changed.
    pub(crate) fn publish(&self, name: &str) {
        // Nobody listens: then nobody waits.
        let _ = self.changes.send(Some(name.to_owned()));
    }

    /// From now on changes are told; anything may have changed before, and nobody would have told.
    pub(crate) fn is_attended_now(&self) {
        self.is_attended.store(true, Ordering::Release);
        self.publish_to_all();
    }

    /// Tells that anything may have changed.
    pub(crate) fn publish_to_all(&self) {
        let _ = self.changes.send(None);
    }

    /// Hears everything from this call on.
    pub(crate) fn listen(&self) -> Subscription {
        Subscription { changes: self.changes.subscribe() }
    }
}

/// A subscription to a feed, from when it was made.
#[derive(Debug)]
pub(crate) struct Subscription {
    changes: broadcast::Receiver<Option<String>>,
}

impl Subscription {
    /// Returns when a change of this name was told since [`ChangeFeed::listen`], or may have been.
    pub(crate) async fn changed(&mut self, name: &str) {
        self.changed_any(&[name]).await;
    }

    /// The same for whichever of these names is told first.
    pub(crate) async fn changed_any(&mut self, names: &[impl AsRef<str>]) {
        let is_one = |told: &str| names.iter().any(|name| name.as_ref() == told);
        loop {
            match self.changes.recv().await {
                Ok(Some(told)) if !is_one(&told) => {}
                Ok(Some(_) | None) | Err(RecvError::Lagged(_)) => return,
                // Nothing is told any more; the one who waits has a patience of its own.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

/// A feed and the task that fills it, begun when somebody first waits.
#[derive(Debug)]
pub(crate) struct FeedTask {
    feed: Arc<ChangeFeed>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl FeedTask {
    pub(crate) fn new() -> Self {
        Self { feed: Arc::new(ChangeFeed::new()), task: Mutex::new(None) }
    }

    /// Hears everything from this call on. `publish` connects to the server and tells changes until it is lost; it
    /// is begun again after a rest, for as long as this lives.
    pub(crate) fn listen<R, F>(&self, publish: R) -> Subscription
    where
        R: Fn(Arc<ChangeFeed>) -> F + Send + 'static,
        F: Future<Output = ()> + Send,
    {
        let mut task = self.task();
        // One that ended with the runtime of whoever asked first is replaced.
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let feed = Arc::clone(&self.feed);
            *task = Some(tokio::spawn(async move {
                loop {
                    publish(Arc::clone(&feed)).await;
                    feed.is_attended.store(false, Ordering::Release);
                    tokio::time::sleep(RECONNECT_AFTER).await;
                }
            }));
        }
        self.feed.listen()
    }

    /// Waits until a change of `name` is told, for at most `patience` and the time until somebody must look.
    pub(crate) async fn changed(
        &self,
        mut subscription: Subscription,
        name: &str,
        patience: Duration,
    ) {
        let is_attended = self.feed.is_attended.load(Ordering::Acquire);
        let look_after = if is_attended { RECHECK_EVERY } else { POLL_EVERY };
        let _ = tokio::time::timeout(patience.min(look_after), subscription.changed(name)).await;
    }

    /// [`Register::wait`] by this feed. The subscription is made before the entry is read, so that what changes in
    /// between is told.
    pub(crate) async fn entry_changed(
        &self,
        subscription: Subscription,
        register: &dyn Register,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        let held = register.load(key).await?;
        if held.as_ref().map(|found| &found.version) == seen {
            self.changed(subscription, &key.to_string(), patience).await;
        }
        Ok(())
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        if let Some(task) = self.task().take() {
            task.abort();
        }
    }

    fn task(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FeedTask {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_hears_its_own_name_and_what_everybody_must() {
        let feed = ChangeFeed::new();
        let mut subscription = feed.listen();
        feed.publish("other");
        assert!(
            tokio::time::timeout(std::time::Duration::ZERO, subscription.changed("mine"))
                .await
                .is_err()
        );
        feed.publish("mine");
        subscription.changed("mine").await;
        feed.is_attended_now();
        subscription.changed("mine").await;
    }

    #[tokio::test]
    async fn a_listener_that_missed_rings_looks_for_itself() {
        let feed = ChangeFeed::new();
        let mut subscription = feed.listen();
        for _ in 0..=RINGS_MAX {
            feed.publish("other");
        }
        subscription.changed("mine").await;
    }
}
