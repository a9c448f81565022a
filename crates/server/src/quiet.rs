//! What may be said or done only so often: lines of the log that strangers can cause, and alarms.
//!
//! Whoever reaches the port could otherwise fill the disk with lines, or bury the one that matters. Each kind has a
//! bound of its own, so a flood of one does not silence another; the next line of a kind that is told says how many
//! were not.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A bound for one kind.
#[derive(Debug)]
pub(crate) struct Quiet {
    max: u32,
    per: Duration,
    state: Mutex<Window>,
}

#[derive(Debug)]
struct Window {
    since: Option<Instant>,
    told: u32,
    untold: u64,
}

impl Quiet {
    /// At most `max` within `per`.
    pub(crate) const fn new(max: u32, per: Duration) -> Self {
        Self { max, per, state: Mutex::new(Window { since: None, told: 0, untold: 0 }) }
    }

    /// How many were held back since the last one that was let through; none if this one is held back, too.
    pub(crate) fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut window = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if window.since.is_none_or(|since| now.saturating_duration_since(since) >= self.per) {
            (window.since, window.told) = (Some(now), 0);
        }
        if window.told >= self.max {
            window.untold += 1;
            return None;
        }
        window.told += 1;
        Some(std::mem::take(&mut window.untold))
    }
}

/// A bound for lines of the log: enough to see what goes on, too few to fill a disk.
pub(crate) const fn lines() -> Quiet {
    Quiet::new(20, Duration::from_secs(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_back_is_counted_and_told_later() {
        let quiet = Quiet::new(2, Duration::from_secs(10));
        let began_at = Instant::now();
        let after = |seconds| began_at + Duration::from_secs(seconds);
        assert_eq!(quiet.admit_at(after(0)), Some(0));
        assert_eq!(quiet.admit_at(after(1)), Some(0));
        for _ in 0..5 {
            assert_eq!(quiet.admit_at(after(9)), None);
        }
        assert_eq!(quiet.admit_at(after(10)), Some(5));
        assert_eq!(quiet.admit_at(after(10)), Some(0));
        assert_eq!(quiet.admit_at(after(11)), None);
    }
}
