//! How long a replica's work takes, counted in buckets, for operators.
//!
//! A count costs two additions and no lock, so that measuring is never the reason for being slow. No
//! rule reads any of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets in microseconds: from a quick disk to a hopeless one.
const BOUNDS_US: [u64; 14] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
    5_000_000,
];

/// What a replica measures of itself.
#[derive(Debug, Default)]
pub struct Measures {
    /// Changes, from their arrival at this replica until they were applied here.
    pub commits: Tally,
    /// Batches of the log, from the first byte written until all were durable.
    pub syncs: Tally,
}

/// Durations, counted by how long they were.
#[derive(Debug, Default)]
pub struct Tally {
    /// The last one counts what is longer than every bound.
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Tally {
    /// Counts one.
    pub(crate) fn note(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// How many there were up to each bound in seconds and above the one before; the last bound is
    /// infinite.
    #[must_use]
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().map(|count| count.load(Ordering::Relaxed))).collect()
    }

    /// All of them together, in seconds.
    #[must_use]
    pub fn sum_s(&self) -> f64 {
        self.sum_us.load(Ordering::Relaxed) as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_once_at_the_first_bound_that_holds_it() {
        let tally = Tally::default();
        for us in [50, 51, 5_000_000, 5_000_001] {
            tally.note(Duration::from_micros(us));
        }
        let counts: Vec<u64> = tally.buckets().iter().map(|(_, count)| *count).collect();
        assert_eq!((counts[0], counts[1], counts[13], counts[14]), (1, 1, 1, 1));
        assert_eq!(counts.iter().sum::<u64>(), 4);
        assert!((tally.sum_s() - 10.000_102).abs() < 1e-9);
        assert!(tally.buckets().is_sorted_by(|a, b| a.0 < b.0));
    }
}
