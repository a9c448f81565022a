//! A bounded count of things under way, and the moment it falls to zero.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How many are under way.
#[derive(Debug, Default)]
pub(crate) struct Count {
    now: AtomicUsize,
    empty: Notify,
}

/// One that is under way, until dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    count: Arc<Count>,
    /// The same one in another count.
    also: Option<Box<Entered>>,
}

impl Entered {
    /// This one, which counts there as well.
    pub(crate) fn and(mut self, also: Self) -> Self {
        self.also = Some(Box::new(also));
        self
    }
}

impl Count {
    /// How many are under way.
    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::Acquire)
    }

    /// One more, unless there are `max` already.
    pub(crate) fn enter(self: &Arc<Self>, max: usize) -> Option<Entered> {
        let more = |now: usize| (now < max).then_some(now + 1);
        self.now.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Entered { count: Arc::clone(self), also: None })
    }

    /// Waits until none is under way.
    pub(crate) async fn emptied(&self) {
        loop {
            let empty = self.empty.notified();
            tokio::pin!(empty);
            // Registered before the count is read, so that the last one's farewell is not missed.
            empty.as_mut().enable();
            if self.now() == 0 {
                return;
            }
            empty.await;
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.count.now.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.count.empty.notify_waiters();
        }
        // Given back after this one, so that who finds room there finds it here as well.
        drop(self.also.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_count_admits_up_to_its_bound_and_tells_when_it_is_empty() {
        let count = Arc::new(Count::default());
        count.emptied().await;
        let one = count.enter(2).unwrap();
        let two = count.enter(2).unwrap();
        assert!(count.enter(2).is_none());
        let waiting = tokio::spawn({
            let count = Arc::clone(&count);
            async move { count.emptied().await }
        });
        drop(one);
        assert_eq!(count.now(), 1);
        drop(two);
        waiting.await.unwrap();
        assert_eq!(count.now(), 0);
    }
}
