//! The last events of a store, for watchers that resume.
//!
//! Bounded in bytes, but never below a number of events: twice the largest session, so that one mass
//! expiry does not turn every watcher's cursor into a gap. An entry's events are forgotten together,
//! so what is not known of a revision is never a part of it.

use std::collections::VecDeque;

use super::Bounds;
use crate::outcome::Event;
use crate::term::{Cursor, Incarnation, Revision};

/// The last events, oldest first.
#[derive(Debug)]
pub struct EventRing {
    events: VecDeque<Event>,
    /// How many events and bytes each entry has that caused any.
    entries: VecDeque<(usize, usize)>,
    bytes: usize,
    /// Everything after this place is here.
    oldest: Cursor,
    /// Everything up to this place has been recorded.
    newest: Cursor,
    bounds: Bounds,
}

impl EventRing {
    /// An empty ring of a store that stands at `revision`.
    #[must_use]
    pub const fn new(incarnation: Incarnation, revision: Revision, bounds: Bounds) -> Self {
        let start = Cursor::after(incarnation, revision);
        Self {
            events: VecDeque::new(),
            entries: VecDeque::new(),
            bytes: 0,
            oldest: start,
            newest: start,
            bounds,
        }
    }

    /// Records everything that the entry at `revision` caused, perhaps nothing.
    ///
    /// Panics if revisions do not rise, or the events are not that entry's in rising order: watchers
    /// would be told a history that did not happen.
    pub fn record(&mut self, revision: Revision, events: &[Event]) {
        assert!(
            revision > self.newest.revision,
            "revision {revision} was recorded after {}",
            self.newest.revision
        );
        let rising = events.windows(2).all(|pair| pair[0].ordinal < pair[1].ordinal);
        let of_this_entry =
            events.iter().all(|event| event.revision == revision && event.ordinal < Cursor::WHOLE);
        assert!(rising && of_this_entry, "events of revision {revision} are out of order");
        if !events.is_empty() {
            let bytes = events.iter().map(event_bytes).sum();
            self.bytes += bytes;
            self.entries.push_back((events.len(), bytes));
            self.events.extend(events.iter().cloned());
        }
        self.newest = Cursor::after(self.newest.incarnation, revision);
        self.forget();
    }

    /// What happened after `cursor`, oldest first; `None` if some of that is forgotten or `cursor`
    /// is of another life of the store. After a place in the future there is nothing yet.
    #[must_use]
    pub fn after(&self, cursor: Cursor) -> Option<impl Iterator<Item = &Event>> {
        if cursor.incarnation != self.newest.incarnation || cursor < self.oldest {
            return None;
        }
        let known = self.events.partition_point(|event| self.place(event) <= cursor);
        Some(self.events.range(known..))
    }

    /// The oldest place from which a watch can be resumed.
    #[must_use]
    pub const fn oldest(&self) -> Cursor {
        self.oldest
    }

    /// The place after everything recorded.
    #[must_use]
    pub const fn newest(&self) -> Cursor {
        self.newest
    }

    /// How much is remembered.
    #[must_use]
    pub const fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Where `event` stands.
    #[must_use]
    pub const fn place(&self, event: &Event) -> Cursor {
        Cursor {
            incarnation: self.newest.incarnation,
            revision: event.revision,
            ordinal: event.ordinal,
        }
    }

    /// Forgets the oldest entries while there are too many bytes and enough events.
    fn forget(&mut self) {
        while let Some((count, bytes)) = self.entries.front().copied() {
            let would_be_left = self.events.len() - count;
            if self.bytes <= self.bounds.ring_bytes_max
                || would_be_left < self.bounds.ring_count_min
            {
                break;
            }
            self.entries.pop_front();
            self.bytes -= bytes;
            let last = self.events.drain(..count).next_back();
            self.oldest = last.map_or(self.oldest, |event| self.place(&event));
        }
    }
}

/// What an event costs at most: its names may be shared with the state, but need not be.
fn event_bytes(event: &Event) -> usize {
    let metadata: usize = event.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    let leader = event.leader.as_ref().map_or(0, |leader| leader.as_str().len());
    size_of::<Event>() + event.group.as_str().len() + leader + metadata
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{Group, Metadata};
    use crate::outcome::Cause;
    use crate::term::Term;

    const LIFE: Incarnation = Incarnation(7);

    fn event(revision: u64, ordinal: u32) -> Event {
        Event {
            group: Group::new("billing").unwrap(),
            revision: Revision(revision),
            ordinal,
            term: Term::NONE,
            leader: None,
            metadata: Metadata::NONE,
            cause: Cause::Resigned,
        }
    }

    fn places(ring: &EventRing, cursor: Cursor) -> Option<Vec<(u64, u32)>> {
        let events = ring.after(cursor)?;
        Some(events.map(|event| (event.revision.0, event.ordinal)).collect())
    }

    fn at(revision: u64, ordinal: u32) -> Cursor {
        Cursor { incarnation: LIFE, revision: Revision(revision), ordinal }
    }

    #[test]
    fn a_ring_resumes_in_the_midst_of_a_revision() {
        let mut ring = EventRing::new(LIFE, Revision(4), Bounds::default());
        ring.record(Revision(5), &[event(5, 0), event(5, 1), event(5, 2)]);
        ring.record(Revision(6), &[]);
        ring.record(Revision(7), &[event(7, 0)]);
        assert_eq!(places(&ring, at(5, 0)), Some(vec![(5, 1), (5, 2), (7, 0)]));
        assert_eq!(places(&ring, Cursor::after(LIFE, Revision(5))), Some(vec![(7, 0)]));
        assert_eq!(places(&ring, Cursor::after(LIFE, Revision(9))), Some(vec![]));
        assert_eq!(ring.newest(), Cursor::after(LIFE, Revision(7)));
    }

    #[test]
    fn what_was_before_the_ring_or_in_another_life_is_not_known() {
        let ring = EventRing::new(LIFE, Revision(4), Bounds::default());
        assert_eq!(places(&ring, Cursor::after(LIFE, Revision(3))), None);
        assert_eq!(places(&ring, at(4, 0)), None);
        assert_eq!(places(&ring, Cursor::after(Incarnation(8), Revision(4))), None);
    }

    #[test]
    fn the_oldest_entries_are_forgotten_whole_but_never_below_the_minimum() {
        let bounds = Bounds { ring_bytes_max: 1, ring_count_min: 3, queue_max: 1 };
        let mut ring = EventRing::new(LIFE, Revision(0), bounds);
        ring.record(Revision(1), &[event(1, 0), event(1, 1)]);
        ring.record(Revision(2), &[event(2, 0), event(2, 1)]);
        assert_eq!(ring.oldest(), Cursor::after(LIFE, Revision(0)), "two would be too few");
        ring.record(Revision(3), &[event(3, 0)]);
        assert_eq!(ring.oldest(), at(1, 1));
        assert_eq!(places(&ring, at(1, 0)), None);
        assert_eq!(places(&ring, at(1, 1)), Some(vec![(2, 0), (2, 1), (3, 0)]));
        assert_eq!(places(&ring, at(2, 0)), Some(vec![(2, 1), (3, 0)]));
    }

    #[test]
    #[should_panic(expected = "revision 2 was recorded after 3")]
    fn revisions_that_fall_are_never_recorded() {
        let mut ring = EventRing::new(LIFE, Revision(3), Bounds::default());
        ring.record(Revision(2), &[]);
    }
}
