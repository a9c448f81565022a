//! What is going to happen, in order of true time; what is due at the same instant in order of
//! arrival here.
//!
//! The heap holds only when and which: what happens is large, and a heap moves what it holds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of happenings.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    heap: BinaryHeap<Reverse<Due>>,
    count: u64,
    happenings: Vec<Option<T>>,
    /// Places among the happenings that are free.
    free: Vec<usize>,
}

/// When, in which order of arrival, and where it is kept.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: u64,
    order: u64,
    place: usize,
}

impl<T> Queue<T> {
    pub(crate) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), count: 0, happenings: Vec::new(), free: Vec::new() }
    }

    /// Something happens at `at`.
    pub(crate) fn push(&mut self, at: u64, what: T) {
        self.count += 1;
        let place = self.free.pop().unwrap_or(self.happenings.len());
        if place == self.happenings.len() {
            self.happenings.push(Some(what));
        } else {
            self.happenings[place] = Some(what);
        }
        self.heap.push(Reverse(Due { at, order: self.count, place }));
    }

    /// When the next thing happens.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(due)| due.at)
    }

    /// The next thing that happens.
    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        let Reverse(Due { at, place, .. }) = self.heap.pop()?;
        self.free.push(place);
        Some((at, self.happenings[place].take()?))
    }
}
