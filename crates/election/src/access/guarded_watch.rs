//! A watch as one caller may see it.

use std::time::Duration;

use async_trait::async_trait;

use super::guard::{Guarded, GuardedStore};
use crate::limits::WATCH_JUDGED_EVERY_MS;
use crate::moment::Moment;
use crate::store::{Scope, Store, Watch, WatchItem};
use crate::term::Cursor;
use crate::together::{First, first};

/// A watch that leaves out what its caller may not see when it would be delivered, and ends with its credential and with
/// the right to watch. A silent one is judged now and then: otherwise it would hold its place for ever.
#[derive(Debug)]
pub(super) struct GuardedWatch {
    inner: Box<dyn Watch>,
    guard: GuardedStore,
    scope: Scope,
    /// Taken from the watch and not judged yet.
    held: Option<WatchItem>,
    delivered: Cursor,
    /// When it is judged although nothing happens. Kept here, since a reader may drop and ask for `next` all the time.
    judge_at: Moment,
}

/// How often a watch is judged that has nothing to tell.
const JUDGED_EVERY: Duration = Duration::from_millis(WATCH_JUDGED_EVERY_MS);

impl GuardedWatch {
    /// Shows of a watch what the caller of the guard may see.
    pub(super) fn new(inner: Box<dyn Watch>, guard: GuardedStore, scope: Scope) -> Self {
        let (delivered, judge_at) = (inner.cursor(), guard.time().now() + JUDGED_EVERY);
        Self { inner, guard, scope, held: None, delivered, judge_at }
    }

    /// Takes the next item, or judges the caller once more: whether the watch goes on.
    async fn advance(&mut self) -> Option<()> {
        let time = self.guard.time();
        let pause = time.sleep(time.now().until(self.judge_at));
        let came = first(pause, self.inner.next()).await;
        match came {
            First::Right(item) => self.held = Some(item?),
            First::Left(()) => {
                let guarded = &self.guard.guarded;
                let table = guarded.table().await.ok()?;
                guarded.caller.check_watch(&table, &self.scope).ok()?;
                self.judge_at = self.guard.time().now() + JUDGED_EVERY;
            }
        }
        Some(())
    }
}

#[async_trait]
impl Watch for GuardedWatch {
    async fn next(&mut self) -> Option<WatchItem> {
        loop {
            while self.held.is_none() {
                self.advance().await?;
            }
            let Guarded { caller, .. } = &*self.guard.guarded;
            let table = self.guard.guarded.table().await.ok()?;
            let item = self.held.take()?;
            self.delivered = self.inner.cursor();
            caller.check_watch(&table, &self.scope).ok()?;
            let is_seen = match &item {
                WatchItem::Changed(event) => caller.may_observe(&table, &event.group),
                WatchItem::Gap { .. } => true,
            };
            if is_seen {
                return Some(item);
            }
        }
    }

    fn cursor(&self) -> Cursor {
        self.delivered
    }
}
