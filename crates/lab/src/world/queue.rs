//! What is going to happen, in order of true time; what is due at the same instant in order of
//! arrival here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of happenings.
#[derive(Debug)]
pub(super) struct Queue<T> {
    heap: BinaryHeap<Reverse<Due<T>>>,
    count: u64,
}

#[derive(Debug)]
struct Due<T> {
    at: u64,
    order: u64,
    what: T,
}

impl<T> PartialEq for Due<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl<T> Eq for Due<T> {}

impl<T> PartialOrd for Due<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Due<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl<T> Queue<T> {
    pub(super) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), count: 0 }
    }

    /// Something happens at `at`.
    pub(super) fn push(&mut self, at: u64, what: T) {
        self.count += 1;
        self.heap.push(Reverse(Due { at, order: self.count, what }));
    }

    /// When the next thing happens.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(due)| due.at)
    }

    /// The next thing that happens.
    pub(super) fn pop(&mut self) -> Option<(u64, T)> {
        self.heap.pop().map(|Reverse(due)| (due.at, due.what))
    }
}
