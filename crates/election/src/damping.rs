//! Damps crash loops: a candidate whose work fails soon after it was elected waits longer and longer before it stands
//! again, so that a node that cannot do the work does not take the office from those that can, term after term.
//!
//! Each process counts for itself and for each group. No clock and no dice: the caller says how long it led and draws the
//! pause from the bounds.

use std::time::Duration;

use crate::limits::{DAMPING_MS_MAX, DAMPING_MS_MIN, MINIMUM_TENURE_MS_DEFAULT};

/// How often the work of one candidate failed in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damping {
    failures: u32,
}

impl Damping {
    /// The work failed after it had led for so long. Gives the shortest and the longest pause before the next campaign;
    /// none, and the count begins anew, if it had led for the usual minimum tenure.
    pub fn failed(&mut self, led_for: Duration) -> Option<(Duration, Duration)> {
        if led_for >= Duration::from_millis(MINIMUM_TENURE_MS_DEFAULT) {
            self.failures = 0;
            return None;
        }
        let doublings = self.failures.min(u64::BITS / 2);
        self.failures = self.failures.saturating_add(1);
        let low_ms = (DAMPING_MS_MIN << doublings).min(DAMPING_MS_MAX / 2);
        Some((Duration::from_millis(low_ms), Duration::from_millis(low_ms * 2)))
    }

    /// How often in a row.
    #[must_use]
    pub const fn failures(self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::from_millis(10);

    #[test]
    fn pauses_double_up_to_a_bound() {
        let mut damping = Damping::default();
        let lows: Vec<u128> =
            (0..9).map(|_| damping.failed(AT_ONCE).unwrap().0.as_millis()).collect();
        assert_eq!(lows, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
        for _ in 0..1_000 {
            let (low, high) = damping.failed(AT_ONCE).unwrap();
            assert!(low <= high && high <= Duration::from_millis(DAMPING_MS_MAX));
        }
    }

    /// However short its terms and pauses come out: five in six seconds.
    #[test]
    fn a_program_that_fails_at_once_takes_at_most_five_terms_in_six_seconds() {
        let (mut damping, mut now, mut terms) = (Damping::default(), Duration::ZERO, 0);
        while now < Duration::from_secs(6) {
            terms += 1;
            now += damping.failed(Duration::ZERO).unwrap().0;
        }
        assert!(terms <= 5, "{terms}");
    }

    #[test]
    fn a_minimum_tenure_clears_the_count() {
        let mut damping = Damping::default();
        damping.failed(AT_ONCE);
        damping.failed(AT_ONCE);
        assert_eq!(damping.failures(), 2);
        assert_eq!(damping.failed(Duration::from_millis(MINIMUM_TENURE_MS_DEFAULT)), None);
        assert_eq!(damping.failed(AT_ONCE).unwrap().0, Duration::from_millis(500));
    }
}
