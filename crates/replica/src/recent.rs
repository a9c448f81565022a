//! Durations of the last minutes, counted by how long they were: what time-outs are judged by.
//!
//! Two halves, of which the older is forgotten when the newer is full: what was slow an hour ago
//! says nothing about the network of today, and a single list of samples would grow or forget the
//! rare ones first.

use std::time::Duration;

use regent_election::Moment;

use crate::limits::MEASURED_FOR;

/// Upper bounds of round trips in microseconds, a quarter more each: fine enough that the bound of
/// a bucket is no lie about what is in it.
const TRIP_STEPS: usize = 60;
/// Upper bounds of pauses in microseconds. Shorter ones are the noise of any scheduler.
const PAUSE_BOUNDS_US: [u64; 14] = [
    25_000, 50_000, 100_000, 150_000, 200_000, 300_000, 400_000, 600_000, 800_000, 1_200_000,
    2_000_000, 4_000_000, 8_000_000, 16_000_000,
];
/// The shortest delay of a loop that counts as a pause.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(10);

const TRIP_BOUNDS_US: [u64; TRIP_STEPS] = {
    let mut bounds = [50; TRIP_STEPS];
    let mut at = 1;
    while at < TRIP_STEPS {
        bounds[at] = bounds[at - 1] * 5 / 4;
        at += 1;
    }
    bounds
};

/// Durations of the last minutes.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    bounds_us: &'static [u64],
    older: Vec<u64>,
    newer: Vec<u64>,
    /// When the newer half began, and when the older one did.
    began_at: (Moment, Moment),
}

impl Recent {
    /// Round trips.
    pub(crate) fn trips(now: Moment) -> Self {
        Self::new(&TRIP_BOUNDS_US, now)
    }

    /// Pauses of a loop.
    pub(crate) fn pauses(now: Moment) -> Self {
        Self::new(&PAUSE_BOUNDS_US, now)
    }

    fn new(bounds_us: &'static [u64], now: Moment) -> Self {
        let none = vec![0; bounds_us.len()];
        Self { bounds_us, older: none.clone(), newer: none, began_at: (now, now) }
    }

    /// Counts one. What is longer than every bound counts as the longest.
    pub(crate) fn note(&mut self, now: Moment, took: Duration) {
        self.forget(now);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = self.bounds_us.partition_point(|bound| *bound < us);
        self.newer[at.min(self.bounds_us.len() - 1)] += 1;
    }

    /// Forgets what is old.
    pub(crate) fn forget(&mut self, now: Moment) {
        if now.since(self.began_at.0) >= MEASURED_FOR / 2 {
            self.older = std::mem::replace(&mut self.newer, vec![0; self.bounds_us.len()]);
            self.began_at = (now, self.began_at.0);
        }
    }

    /// For how long was measured what is counted.
    pub(crate) fn watched(&self, now: Moment) -> Duration {
        now.since(self.began_at.1)
    }

    /// How many there were up to each bound in microseconds and above the one before.
    pub(crate) fn counts(&self) -> Vec<(u64, u64)> {
        let sums = self.older.iter().zip(&self.newer).map(|(older, newer)| older + newer);
        self.bounds_us.iter().copied().zip(sums).collect()
    }

    /// How many there were.
    #[cfg(test)]
    pub(crate) fn count(&self) -> u64 {
        self.counts().iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_old_is_forgotten_by_halves() {
        let half_ms = MEASURED_FOR.as_millis() as u64 / 2;
        let at = Moment::from_millis;
        let mut recent = Recent::trips(at(0));
        recent.note(at(1), Duration::from_micros(60));
        recent.note(at(half_ms), Duration::from_micros(61));
        assert_eq!(recent.count(), 2);
        assert_eq!(recent.watched(at(half_ms + 5)), Duration::from_millis(half_ms + 5));
        recent.note(at(2 * half_ms), Duration::from_secs(1 << 40));
        assert_eq!(recent.count(), 2, "the first is forgotten");
        assert_eq!(recent.counts().last().map(|(_, count)| *count), Some(1), "longer than all");
        assert!(TRIP_BOUNDS_US.is_sorted() && *TRIP_BOUNDS_US.last().unwrap() > 10_000_000);
    }
}
