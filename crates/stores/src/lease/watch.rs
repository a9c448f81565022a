//! Watches: every change of a group, in order, once, or an explicit gap.
//!
//! A group's entry keeps its own last changes, so a watch of one group resumes from any place that they
//! reach back to, through any process. Between groups there is no order: what was caused by what another
//! process had seen comes after it, and that is all. So a watch of several groups begins where it is
//! told to only by telling of a gap.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use regent_election::store::{Scope, StoreResult, Watch, WatchItem};
use regent_election::{Cursor, Event, Group, Incarnation, Revision};

use super::Shared;
use super::entries::Seen;
use super::keeper::{Following, For};
use super::record::GroupRecord;
use super::store::Waiting;
use crate::register::KeyKind;

/// How often a watch of several groups looks, beside what happens through this process.
const WATCH_POLL_EVERY: Duration = Duration::from_millis(500);
/// Entries of one listing.
const PAGE: usize = 512;

/// What a group's own news say after a place.
pub(super) enum News {
    Events(Vec<Event>),
    /// They do not reach back so far.
    Gap {
        oldest: Cursor,
        at: Cursor,
    },
}

/// The changes of a group after a place.
pub(super) fn news(record: &GroupRecord, cursor: Cursor, life: Incarnation) -> News {
    let present = record.state.revision();
    let is_known = cursor.incarnation == life && record.news_from <= cursor.revision;
    let is_ahead = cursor.incarnation == life && cursor.revision > present;
    if !is_known && !is_ahead {
        let oldest = Cursor::after(life, record.news_from);
        return News::Gap { oldest, at: Cursor::after(life, present) };
    }
    let place = |event: &Event| (event.revision, event.ordinal);
    let later = record.news.iter().filter(|event| place(event) > (cursor.revision, cursor.ordinal));
    News::Events(later.cloned().collect())
}

/// Counts a watch for as long as it runs.
#[derive(Debug)]
struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.watchers.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A watch of one group.
#[derive(Debug)]
struct OneWatch {
    counted: Counted,
    following: Following,
    life: Incarnation,
    /// Everything up to here was delivered.
    cursor: Cursor,
    /// Everything up to here is in the queue.
    read: Cursor,
    queue: VecDeque<WatchItem>,
}

/// A watch of several groups.
#[derive(Debug)]
struct ManyWatch {
    counted: Counted,
    scope: Scope,
    life: Incarnation,
    cursor: Cursor,
    /// What was delivered or queued of each group.
    read: BTreeMap<Group, Cursor>,
    queue: VecDeque<WatchItem>,
    has_looked: bool,
}

/// A watch of one group for a campaign that waits in its line: it rings whenever the group was read.
#[derive(Debug)]
struct TurnWatch {
    shared: Arc<Shared>,
    following: Following,
    /// What was read before it last rang.
    seen: Option<Arc<Seen>>,
    cursor: Cursor,
    _waiting: Waiting,
}

/// Begins a watch.
pub(super) async fn watch(
    shared: &Arc<Shared>,
    scope: Scope,
    cursor: Option<Cursor>,
) -> StoreResult<Box<dyn Watch>> {
    let life = shared.entries.life().await?;
    match scope {
        Scope::Group(group) => {
            let counted = Counted::new(shared);
            let seen = shared.entries.load(&group).await?;
            let start = cursor.unwrap_or(Cursor::after(life, seen.record.state.revision()));
            let following = shared.follow(&group, For::Watch);
            let mut one = OneWatch {
                counted,
                following,
                life,
                cursor: start,
                read: start,
                queue: VecDeque::new(),
            };
            one.take(&seen.record);
            Ok(Box::new(one))
        }
        Scope::Turn(group) => {
            let following = shared.follow(&group, For::Bid);
            let seen = following.feed.latest();
            let cursor = Cursor::after(life, shared.entries.highest());
            let waiting = Waiting::new(shared);
            let shared = Arc::clone(shared);
            Ok(Box::new(TurnWatch { shared, following, seen, cursor, _waiting: waiting }))
        }
        scope @ (Scope::Groups(_) | Scope::Prefix(_)) => {
            let mut many = ManyWatch {
                counted: Counted::new(shared),
                scope,
                life,
                cursor: Cursor::after(life, Revision(0)),
                read: BTreeMap::new(),
                queue: VecDeque::new(),
                has_looked: false,
            };
            many.look().await?;
            if cursor.is_some() {
                let at = many.cursor;
                many.queue.push_back(WatchItem::Gap { oldest: at, at });
            }
            Ok(Box::new(many))
        }
    }
}

impl OneWatch {
    /// Queues what a group's entry tells after what was read before.
    fn take(&mut self, record: &GroupRecord) {
        match news(record, self.read, self.life) {
            News::Events(events) => {
                for event in events {
                    self.read = place_of(self.life, &event);
                    self.queue.push_back(WatchItem::Changed(event));
                }
            }
            News::Gap { oldest, at } => {
                self.read = at;
                self.queue.push_back(WatchItem::Gap { oldest, at });
            }
        }
    }
}

fn place_of(life: Incarnation, event: &Event) -> Cursor {
    Cursor { incarnation: life, revision: event.revision, ordinal: event.ordinal }
}

fn place_after(life: Incarnation, item: &WatchItem) -> Cursor {
    match item {
        WatchItem::Changed(event) => place_of(life, event),
        WatchItem::Gap { at, .. } => *at,
    }
}

#[async_trait]
impl Watch for OneWatch {
    async fn next(&mut self) -> Option<WatchItem> {
        loop {
            if *self.counted.0.closing.borrow() {
                return None;
            }
            if let Some(item) = self.queue.pop_front() {
                self.cursor = place_after(self.life, &item);
                return Some(item);
            }
            let shared = Arc::clone(&self.counted.0);
            let feed = Arc::clone(&self.following.feed);
            let mut read = pin!(feed.read());
            read.as_mut().enable();
            if let Some(seen) = feed.latest() {
                self.take(&seen.record);
            }
            if self.queue.is_empty() {
                tokio::select! {
                    biased;
                    () = shared.closed() => return None,
                    () = read => {}
                }
            }
        }
    }

    fn cursor(&self) -> Cursor {
        self.cursor
    }
}

#[async_trait]
impl Watch for TurnWatch {
    async fn next(&mut self) -> Option<WatchItem> {
        loop {
            if self.shared.check_open().is_err() {
                return None;
            }
            let feed = Arc::clone(&self.following.feed);
            let mut read = pin!(feed.read());
            read.as_mut().enable();
            let latest = feed.latest();
            if latest.as_ref().map(Arc::as_ptr) != self.seen.as_ref().map(Arc::as_ptr) {
                self.seen = latest;
                return Some(WatchItem::Gap { oldest: self.cursor, at: self.cursor });
            }
            tokio::select! {
                biased;
                () = self.shared.closed() => return None,
                () = read => {}
            }
        }
    }

    fn cursor(&self) -> Cursor {
        self.cursor
    }
}

impl ManyWatch {
    /// Reads every group of the scope and queues what it tells after what was read before. The first
    /// look only learns where each of them stands.
    async fn look(&mut self) -> StoreResult<()> {
        let shared = Arc::clone(&self.counted.0);
        let mut found: Vec<(Group, GroupRecord)> = Vec::new();
        match &self.scope {
            Scope::Group(group) | Scope::Turn(group) => {
                found.push((group.clone(), shared.entries.load(group).await?.record));
            }
            Scope::Groups(groups) => {
                for group in groups {
                    found.push((group.clone(), shared.entries.load(group).await?.record));
                }
            }
            Scope::Prefix(prefix) => {
                shared
                    .each(KeyKind::Group, prefix, |group, record| {
                        found.push((group, record?));
                        Ok(())
                    })
                    .await?;
            }
        }
        let mut events: Vec<Event> = Vec::new();
        let mut highest = self.cursor.revision;
        for (group, record) in found {
            let present = Cursor::after(self.life, record.state.revision());
            highest = highest.max(present.revision);
            if !self.has_looked {
                self.read.insert(group, present);
                continue;
            }
            let start = Cursor::after(self.life, Revision(0));
            let read = self.read.get(&group).copied().unwrap_or(start);
            match news(&record, read, self.life) {
                News::Events(later) => {
                    if let Some(last) = later.last() {
                        self.read.insert(group, place_of(self.life, last));
                    }
                    events.extend(later);
                }
                News::Gap { oldest, at } => {
                    self.read.insert(group, at);
                    self.queue.push_back(WatchItem::Gap { oldest, at });
                }
            }
        }
        if !self.has_looked {
            self.cursor = Cursor::after(self.life, highest);
        }
        self.has_looked = true;
        events.sort_by(|a, b| (a.revision, &a.group).cmp(&(b.revision, &b.group)));
        self.queue.extend(events.into_iter().map(WatchItem::Changed));
        Ok(())
    }
}

#[async_trait]
impl Watch for ManyWatch {
    async fn next(&mut self) -> Option<WatchItem> {
        loop {
            let shared = Arc::clone(&self.counted.0);
            if *shared.closing.borrow() {
                return None;
            }
            if let Some(item) = self.queue.pop_front() {
                self.cursor = self.cursor.max(place_after(self.life, &item));
                return Some(item);
            }
            let mut stirred = pin!(shared.stirred.notified());
            // From here on no change made here is missed.
            stirred.as_mut().enable();
            // Dropping this future here loses nothing: what was read is marked so together with its
            // place in the queue, after the last await.
            if let Err(error) = self.look().await {
                tracing::debug!(%error, "a watch could not look");
            }
            if self.queue.is_empty() {
                tokio::select! {
                    biased;
                    () = shared.closed() => return None,
                    () = stirred => {}
                    () = shared.entries.time.sleep(WATCH_POLL_EVERY) => {}
                }
            }
        }
    }

    fn cursor(&self) -> Cursor {
        self.cursor
    }
}

impl Shared {
    /// Reads all entries of a kind below a prefix, page by page. One that cannot be read ends it if `take` says so.
    pub(super) async fn each(
        &self,
        kind: KeyKind,
        prefix: &str,
        mut take: impl FnMut(Group, StoreResult<GroupRecord>) -> StoreResult<()> + Send,
    ) -> StoreResult<()> {
        let mut after: Option<String> = None;
        loop {
            let page = self
                .entries
                .register
                .list(kind, prefix, after.as_deref(), PAGE)
                .await
                .map_err(super::entries::store_error)?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(last.name().to_owned());
            for (key, found) in page {
                // A name that is none was not written by us, and nothing of ours is lost with it.
                let Ok(group) = Group::new(key.name()) else { continue };
                let record = self.entries.listed(&group, found).map(|seen| seen.record);
                take(group, record)?;
            }
        }
    }
}
