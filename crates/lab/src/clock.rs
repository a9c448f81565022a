//! A process's own lease clock against true time.
//!
//! Nobody in the world may read true time but the world itself and the history. A clock has an
//! unknown start and a rate that is wrong by some parts per million; it runs on while its process
//! is paused. Within the bound ρ a rate may change at any moment; a jump is beyond it.

use regent_election::Moment;

const PPM: i128 = 1_000_000;

/// One process's clock: a straight line since its last change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    since: u64,
    read: u64,
    rate_ppm: i64,
}

impl Clock {
    /// A clock that shows `read` at true time `since` and is `rate_ppm` too fast.
    #[must_use]
    pub(crate) const fn new(since: u64, read: u64, rate_ppm: i64) -> Self {
        Self { since, read, rate_ppm }
    }

    /// What it shows at true time `at`.
    #[must_use]
    pub(crate) fn read(&self, at: u64) -> Moment {
        let passed = i128::from(at.saturating_sub(self.since));
        let shown = passed * (PPM + i128::from(self.rate_ppm)) / PPM;
        Moment::from_nanos(self.read.saturating_add(u64::try_from(shown).unwrap_or(0)))
    }

    /// The first true time at which it shows `moment` or later, if it is not disturbed.
    #[must_use]
    pub(crate) fn when(&self, moment: Moment) -> u64 {
        let left = i128::from(moment.as_nanos().saturating_sub(self.read));
        let passed = (left * PPM).div_euclid(PPM + i128::from(self.rate_ppm));
        let mut at = self.since.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX));
        // Rounding makes the line a staircase; step up to the tread.
        while self.read(at) < moment {
            at += 1;
        }
        at
    }

    /// Runs at another rate from `at` on.
    pub(crate) fn set_rate(&mut self, at: u64, rate_ppm: i64) {
        *self = Self { since: at, read: self.read(at).as_nanos(), rate_ppm };
    }

    /// Shows `nanos` more from `at` on.
    pub(crate) fn jump(&mut self, at: u64, nanos: u64) {
        let read = self.read(at).as_nanos().saturating_add(nanos);
        *self = Self { since: at, read, rate_ppm: self.rate_ppm };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_comes_when_the_clock_shows_it_and_not_before() {
        for rate_ppm in [-400_000, -10_000, -1, 0, 1, 10_000, 400_000] {
            let mut clock = Clock::new(1_000, 77_000_000, rate_ppm);
            for step in 1..200_u64 {
                let moment = Moment::from_nanos(77_000_000 + step * step * 9_973);
                let at = clock.when(moment);
                assert!(clock.read(at) >= moment);
                assert!(at == 1_000 || clock.read(at - 1) < moment, "{rate_ppm} {step}");
            }
            let before = clock.read(5_000_000);
            clock.set_rate(5_000_000, 0);
            assert_eq!(clock.read(5_000_000), before);
            clock.jump(6_000_000, 500);
            assert_eq!(clock.read(6_000_000).as_nanos(), before.as_nanos() + 1_000_500);
        }
    }
}
