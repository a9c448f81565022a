//! When to campaign: our own seeded draw instead of the library's hidden dice.
//!
//! After k campaigns in a row that nobody won, the draw doubles k times, up to tenfold: two
//! candidates that keep splitting the vote drift apart.

use crate::limits::BACKOFF_FACTOR_MAX;
use crate::timing::Timing;

/// The election timer of one replica.
#[derive(Clone, Debug)]
pub(super) struct ElectionTimer {
    timing: Timing,
    dice: u64,
    drawn_ms: u64,
    fruitless: u32,
}

impl ElectionTimer {
    pub(super) fn new(timing: Timing, seed: u64) -> Self {
        let mut timer = Self { timing, dice: seed, drawn_ms: 0, fruitless: 0 };
        timer.draw();
        timer
    }

    /// Another patience holds from here on.
    pub(super) fn set_timing(&mut self, timing: Timing) {
        self.timing = timing;
        self.draw();
    }

    /// Whether a replica that has not heard of a leader for `silent_ms` campaigns.
    pub(super) const fn is_over(&self, silent_ms: u64) -> bool {
        silent_ms >= self.drawn_ms
    }

    /// A campaign begins: nobody has won since the last one.
    pub(super) fn campaigned(&mut self) {
        self.fruitless = self.fruitless.saturating_add(1);
        self.draw();
    }

    /// Somebody leads.
    pub(super) fn settled(&mut self) {
        if self.fruitless > 0 {
            self.fruitless = 0;
            self.draw();
        }
    }

    /// How long until the timer is over, if silence began `silent_ms` ago.
    pub(super) const fn left_ms(&self, silent_ms: u64) -> u64 {
        self.drawn_ms.saturating_sub(silent_ms)
    }

    fn draw(&mut self) {
        let (min, max) = (self.timing.election_ms_min(), self.timing.election_ms_max());
        // The first campaign after a leader fell silent is no split vote yet.
        let doublings = self.fruitless.saturating_sub(1).min(31);
        let factor = (1u32 << doublings).min(BACKOFF_FACTOR_MAX);
        self.drawn_ms = (min + self.roll() % (max - min)) * u64::from(factor);
    }

    /// splitmix64.
    const fn roll(&mut self) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_lie_within_the_bounds_and_differ_by_seed() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..1000 {
            let timer = ElectionTimer::new(Timing::LAN, seed);
            assert!((150..300).contains(&timer.drawn_ms));
            seen.insert(timer.drawn_ms);
        }
        assert!(seen.len() > 140, "only {} different draws", seen.len());
    }

    #[test]
    fn split_votes_double_the_draw_up_to_tenfold() {
        let mut timer = ElectionTimer::new(Timing::LAN, 7);
        for (low, high) in [(150, 300), (300, 600), (600, 1200), (1200, 2400), (1500, 3000)] {
            timer.campaigned();
            assert!((low..high).contains(&timer.drawn_ms), "{}", timer.drawn_ms);
        }
        for _ in 0..100 {
            timer.campaigned();
            assert!((1500..3000).contains(&timer.drawn_ms));
        }
        timer.settled();
        assert!((150..300).contains(&timer.drawn_ms));
    }
}
