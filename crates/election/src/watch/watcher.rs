//! One watcher: what it has been given, and where it goes on.
//!
//! A watcher is live or behind. Live, it is offered every event of its scope as it is published and
//! keeps it in a short queue. When that is full it falls behind: the queue stays as it is, and the
//! rest is read from the ring in stretches, until a stretch ends at the present. Both ways meet at
//! `reached`, so nothing is missing and nothing comes twice.

use std::collections::VecDeque;
use std::task::Waker;

use super::EventRing;
use crate::name::Group;
use crate::outcome::Event;
use crate::store::{Scope, WatchItem};
use crate::term::{Cursor, Revision};

/// What a group itself remembers of its last changes: serves a one-group watch whose cursor the
/// ring has left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Every change of that group after this place is in `events`…
    pub after: Cursor,
    /// …up to this revision.
    pub up_to: Revision,
    /// The changes, oldest first.
    pub events: Vec<Event>,
}

/// One watcher's place in everything that is published.
pub(super) struct Watcher {
    /// What it watches; a list of groups is sorted.
    scope: Scope,
    queue: VecDeque<Event>,
    /// Everything in scope up to here was delivered or is in the queue, and nothing up to here is
    /// taken again. A live watcher is further: it has been offered everything published.
    reached: Cursor,
    /// Whether events are queued as they are published; otherwise the ring is read from `reached`.
    is_live: bool,
    /// Everything in scope up to here has been delivered, if the queue holds more.
    delivered: Cursor,
    /// Whom to wake when there is something to deliver.
    pub(super) waker: Option<Waker>,
}

impl Watcher {
    /// A watcher that goes on after `cursor`, or after what `ring` holds.
    pub(super) fn starting(
        mut scope: Scope,
        cursor: Option<Cursor>,
        replay: Option<Replay>,
        ring: &EventRing,
    ) -> Self {
        if let Scope::Groups(groups) = &mut scope {
            groups.sort_unstable();
            groups.dedup();
        }
        let start = cursor.unwrap_or(ring.newest());
        let mut watcher = Self {
            scope,
            queue: VecDeque::new(),
            reached: start,
            is_live: false,
            delivered: start,
            waker: None,
        };
        if let Some(replay) = replay {
            watcher.replay(replay, ring);
        }
        watcher
    }

    /// What it watches.
    pub(super) const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Whether it is told of events as they are published.
    pub(super) const fn is_live(&self) -> bool {
        self.is_live
    }

    /// What is published next does not follow what was published last, at `newest`: the ring decides
    /// how to go on.
    pub(super) fn fall_behind(&mut self, newest: Cursor) {
        if self.is_live {
            self.reached = self.reached.max(newest);
            self.is_live = false;
        }
    }

    /// Takes one published event, or leaves it to the ring.
    pub(super) fn offer(&mut self, event: &Event, place: Cursor, queue_max: usize) {
        if !self.is_live || place <= self.reached {
            return;
        }
        if self.queue.is_empty() {
            self.delivered = self.delivered.max(just_before(place));
        }
        if self.queue.len() < queue_max {
            self.queue.push_back(event.clone());
            self.reached = place;
        } else {
            self.is_live = false;
        }
    }

    /// The next item. `None` of a live watcher means that there is none yet; of one that is behind,
    /// that a stretch of at most `scan_max` events held nothing for it.
    pub(super) fn next(&mut self, ring: &EventRing, scan_max: usize) -> Option<WatchItem> {
        if self.queue.is_empty() && !self.is_live {
            if ring.after(self.reached).is_none() {
                return Some(self.skip(ring));
            }
            self.catch_up(ring, scan_max);
        }
        let event = self.queue.pop_front()?;
        self.delivered = ring.place(&event);
        Some(WatchItem::Changed(event))
    }

    /// Everything in scope up to here has been delivered. It never falls.
    pub(super) fn cursor(&self, ring: &EventRing) -> Cursor {
        match (self.queue.is_empty(), self.is_live) {
            (false, _) => self.delivered,
            (true, false) => self.reached,
            (true, true) => self.reached.max(ring.newest()),
        }
    }

    /// Queues what the group itself remembers of what the ring has forgotten; the rest is the ring's.
    fn replay(&mut self, replay: Replay, ring: &EventRing) {
        let is_useful = matches!(self.scope, Scope::Group(_))
            && ring.after(self.reached).is_none()
            && self.reached.incarnation == ring.newest().incarnation
            && replay.after <= self.reached;
        if !is_useful {
            return;
        }
        let from = self.reached;
        // The ring forgets whole entries: what it has forgotten of its oldest revision is all of it.
        let up_to = replay.up_to.min(ring.oldest().revision);
        let up_to = Cursor::after(from.incarnation, up_to);
        let is_due = |event: &Event| from < ring.place(event) && ring.place(event) <= up_to;
        self.queue.extend(replay.events.into_iter().filter(is_due));
        self.reached = from.max(up_to);
    }

    /// Goes on at the present, since the ring has left this watcher behind.
    fn skip(&mut self, ring: &EventRing) -> WatchItem {
        self.reached = ring.newest();
        self.delivered = ring.newest();
        self.is_live = true;
        WatchItem::Gap { oldest: ring.oldest(), at: ring.newest() }
    }

    /// Reads one stretch of the ring into the empty queue; where it ends at the present, the watcher
    /// is live.
    fn catch_up(&mut self, ring: &EventRing, scan_max: usize) {
        self.delivered = self.reached;
        let mut left = scan_max;
        for event in ring.after(self.reached).into_iter().flatten().take(scan_max) {
            left -= 1;
            self.reached = ring.place(event);
            if covers(&self.scope, &event.group) {
                self.queue.push_back(event.clone());
            }
        }
        if left > 0 {
            self.reached = self.reached.max(ring.newest());
            self.is_live = true;
        }
    }
}

/// The place that only `place` itself separates from what follows it.
fn just_before(place: Cursor) -> Cursor {
    match place.ordinal.checked_sub(1) {
        Some(ordinal) => Cursor { ordinal, ..place },
        None => Cursor::after(place.incarnation, Revision(place.revision.0.saturating_sub(1))),
    }
}

/// Whether events of `group` are meant; a list of groups is searched as the sorted list it is.
fn covers(scope: &Scope, group: &Group) -> bool {
    match scope {
        Scope::Groups(groups) => groups.binary_search(group).is_ok(),
        Scope::Group(_) | Scope::Turn(_) | Scope::Prefix(_) => scope.covers(group),
    }
}
