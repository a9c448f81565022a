//! Hands events to watchers as they happen.
//!
//! An event costs the watchers it concerns and nobody else: watchers are indexed by the groups they
//! name, and those of a prefix by that prefix, of which an event tries one per length in use.
//!
//! One lock holds everything, so that an entry is published as a whole and a watcher passes from the
//! ring to its live queue without missing or repeating anything. Wakers are called outside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;

use super::watcher::{Replay, Watcher};
use super::{Bounds, EventRing};
use crate::name::Group;
use crate::outcome::Event;
use crate::store::{Scope, Watch, WatchItem};
use crate::term::{Cursor, Incarnation, Revision};

/// Publishes events and keeps the watchers. Cloning gives another handle to the same hub.
#[derive(Clone)]
pub struct Hub(Arc<Mutex<Inner>>);

/// A running watch of a [`Hub`]. Dropping it ends it.
pub struct HubWatch {
    hub: Arc<Mutex<Inner>>,
    id: u64,
}

struct Inner {
    ring: EventRing,
    queue_max: usize,
    next_id: u64,
    is_shut_down: bool,
    watchers: BTreeMap<u64, Watcher>,
    by_group: BTreeMap<Group, BTreeSet<u64>>,
    /// By length, then by prefix.
    by_prefix: BTreeMap<usize, BTreeMap<String, BTreeSet<u64>>>,
}

impl Hub {
    /// A hub of a store that stands at `revision` and remembers nothing before it.
    #[must_use]
    pub fn new(incarnation: Incarnation, revision: Revision, bounds: Bounds) -> Self {
        Self::resuming(EventRing::new(incarnation, revision, bounds))
    }

    /// A hub that remembers what `ring` does.
    #[must_use]
    pub fn resuming(ring: EventRing) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            queue_max: ring.bounds().queue_max.max(1),
            ring,
            next_id: 0,
            is_shut_down: false,
            watchers: BTreeMap::new(),
            by_group: BTreeMap::new(),
            by_prefix: BTreeMap::new(),
        })))
    }

    /// Publishes everything that the entry at `revision` caused, perhaps nothing. Every revision is
    /// published, in rising order, once it can no longer be undone.
    pub fn publish(&self, revision: Revision, events: &[Event]) {
        let mut wakers = Vec::new();
        let mut inner = lock(&self.0);
        inner.ring.record(revision, events);
        for event in events {
            inner.hand_out(event, &mut wakers);
        }
        drop(inner);
        for waker in wakers {
            waker.wake();
        }
    }

    /// The store stands at `revision` without having applied everything before it, as after it was
    /// given a snapshot: what happened in between is not known here, and watchers are told so.
    pub fn leap(&self, revision: Revision) {
        let mut inner = lock(&self.0);
        let newest = inner.ring.newest();
        if newest.revision >= revision {
            return;
        }
        inner.ring = EventRing::new(newest.incarnation, revision, inner.ring.bounds());
        let mut wakers = Vec::new();
        for watcher in inner.watchers.values_mut() {
            watcher.fall_behind(newest);
            wakers.extend(watcher.waker.take());
        }
        drop(inner);
        for waker in wakers {
            waker.wake();
        }
    }

    /// Watches from just after `cursor`, or from what is published next.
    ///
    /// `replay` is used if the ring has left `cursor` behind, and only for a scope of one group.
    #[must_use]
    pub fn subscribe(
        &self,
        scope: Scope,
        cursor: Option<Cursor>,
        replay: Option<Replay>,
    ) -> HubWatch {
        let mut inner = lock(&self.0);
        let id = inner.next_id;
        inner.next_id += 1;
        let watcher = Watcher::starting(scope, cursor, replay, &inner.ring);
        inner.index(id, watcher.scope());
        inner.watchers.insert(id, watcher);
        HubWatch { hub: Arc::clone(&self.0), id }
    }

    /// The place after everything published.
    #[must_use]
    pub fn newest(&self) -> Cursor {
        lock(&self.0).ring.newest()
    }

    /// How many watches are under way.
    #[must_use]
    pub fn watchers(&self) -> usize {
        lock(&self.0).watchers.len()
    }

    /// Ends all watches, and those begun later, with `None`. What they have not delivered stays
    /// after their cursor.
    pub fn shut_down(&self) {
        let mut inner = lock(&self.0);
        inner.is_shut_down = true;
        let wakers: Vec<_> =
            inner.watchers.values_mut().filter_map(|watcher| watcher.waker.take()).collect();
        drop(inner);
        for waker in wakers {
            waker.wake();
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").finish_non_exhaustive()
    }
}

impl HubWatch {
    /// The next item if there is one; otherwise `context` is woken when there may be.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        let mut inner = lock(&self.hub);
        let Inner { ring, watchers, is_shut_down, queue_max, .. } = &mut *inner;
        if *is_shut_down {
            return Poll::Ready(None);
        }
        let watcher =
            watchers.get_mut(&self.id).expect("a watch is registered until it is dropped");
        if let Some(item) = watcher.next(ring, *queue_max) {
            return Poll::Ready(Some(item));
        }
        if watcher.is_live() {
            watcher.waker = Some(context.waker().clone());
        } else {
            // A stretch of the ring held nothing for this watcher. Others get their turn first.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

#[async_trait]
impl Watch for HubWatch {
    async fn next(&mut self) -> Option<WatchItem> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn cursor(&self) -> Cursor {
        let inner = lock(&self.hub);
        let watcher =
            inner.watchers.get(&self.id).expect("a watch is registered until it is dropped");
        watcher.cursor(&inner.ring)
    }
}

impl Drop for HubWatch {
    fn drop(&mut self) {
        // A poisoned lock means that the process is going down by a panic; there is nothing to tidy.
        let Ok(mut inner) = self.hub.lock() else { return };
        if let Some(watcher) = inner.watchers.remove(&self.id) {
            inner.unindex(self.id, watcher.scope());
        }
    }
}

impl fmt::Debug for HubWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubWatch").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Inner {
    /// Queues one event for everybody concerned.
    fn hand_out(&mut self, event: &Event, wakers: &mut Vec<Waker>) {
        let Self { ring, watchers, by_group, by_prefix, queue_max, .. } = self;
        let name = event.group.as_str();
        let by_name = by_group.get(&event.group);
        let by_opening = by_prefix
            .range(..=name.len())
            .filter_map(|(length, prefixes)| prefixes.get(&name[..*length]));
        for id in by_name.into_iter().chain(by_opening).flatten() {
            let watcher = watchers.get_mut(id).expect("an indexed watch is registered");
            watcher.offer(event, ring.place(event), *queue_max);
            wakers.extend(watcher.waker.take());
        }
    }

    fn index(&mut self, id: u64, scope: &Scope) {
        match scope {
            Scope::Group(group) | Scope::Turn(group) => {
                self.by_group.entry(group.clone()).or_default().insert(id);
            }
            Scope::Groups(groups) => {
                for group in groups {
                    self.by_group.entry(group.clone()).or_default().insert(id);
                }
            }
            Scope::Prefix(prefix) => {
                let same_length = self.by_prefix.entry(prefix.len()).or_default();
                same_length.entry(prefix.clone()).or_default().insert(id);
            }
        }
    }

    fn unindex(&mut self, id: u64, scope: &Scope) {
        match scope {
            Scope::Group(group) | Scope::Turn(group) => forget(&mut self.by_group, group, id),
            Scope::Groups(groups) => {
                for group in groups {
                    forget(&mut self.by_group, group, id);
                }
            }
            Scope::Prefix(prefix) => {
                if let Some(same_length) = self.by_prefix.get_mut(&prefix.len()) {
                    forget(same_length, prefix, id);
                    if same_length.is_empty() {
                        self.by_prefix.remove(&prefix.len());
                    }
                }
            }
        }
    }
}

fn forget<K: Ord>(index: &mut BTreeMap<K, BTreeSet<u64>>, key: &K, id: u64) {
    if let Some(ids) = index.get_mut(key) {
        ids.remove(&id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().expect("the hub never panics while it is locked, unless its store broke its order")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{Metadata, Node};
    use crate::outcome::Cause;
    use crate::term::Term;

    fn event(revision: u64) -> Event {
        Event {
            group: Group::new("billing").unwrap(),
            revision: Revision(revision),
            ordinal: 0,
            term: Term::new(revision).unwrap(),
            leader: Some(Node::new("a").unwrap()),
            metadata: Metadata::NONE,
            cause: Cause::Elected,
        }
    }

    fn poll(watch: &mut HubWatch) -> Option<WatchItem> {
        match watch.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(item) => item,
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_leap_is_told_as_a_gap_after_what_was_known_before_it() {
        let hub = Hub::new(Incarnation(1), Revision(0), Bounds::default());
        let mut watch = hub.subscribe(Scope::Prefix(String::new()), None, None);
        assert_eq!(poll(&mut watch), None);
        hub.publish(Revision(1), &[event(1)]);
        hub.leap(Revision(9));
        hub.publish(Revision(10), &[event(10)]);
        assert_eq!(poll(&mut watch), Some(WatchItem::Changed(event(1))));
        assert!(matches!(poll(&mut watch), Some(WatchItem::Gap { at, .. }) if at.revision.0 == 10));
        hub.publish(Revision(11), &[event(11)]);
        assert_eq!(poll(&mut watch), Some(WatchItem::Changed(event(11))));
        assert_eq!(poll(&mut watch), None);
    }

    #[test]
    fn a_cursor_from_before_a_leap_finds_a_gap_and_one_from_after_it_does_not() {
        let hub = Hub::new(Incarnation(1), Revision(0), Bounds::default());
        hub.leap(Revision(9));
        hub.publish(Revision(10), &[event(10)]);
        let after = |revision| Some(Cursor::after(Incarnation(1), Revision(revision)));
        let mut old = hub.subscribe(Scope::Prefix(String::new()), after(5), None);
        assert!(matches!(poll(&mut old), Some(WatchItem::Gap { .. })));
        let mut fresh = hub.subscribe(Scope::Prefix(String::new()), after(9), None);
        assert_eq!(poll(&mut fresh), Some(WatchItem::Changed(event(10))));
    }
}
