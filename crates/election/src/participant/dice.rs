//! Seeded chance: the only dice of the rules, and they are given by the caller.
//!
//! Used for jitter alone. Secrets are never made of it: [`super::Action::NeedSession`] asks for those.

use std::time::Duration;

use crate::limits::RETRY_MS_MIN_DEFAULT;

/// A generator in the manner of splitmix64: tiny, and good enough to keep a herd apart.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A duration between the two, both included, all equally likely.
    pub(super) fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let span = high.saturating_sub(low).as_nanos() + 1;
        let share = (u128::from(self.roll()) * span) >> 64;
        low + Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// The pause before try number `tries` (the first retry is 1): full jitter between 100 ms and a
    /// ceiling that doubles with every try up to half the ttl.
    pub(super) fn back_off(&mut self, tries: u32, ttl: Duration) -> Duration {
        let low = Duration::from_millis(RETRY_MS_MIN_DEFAULT);
        let doubled = low * 2_u32.saturating_pow(tries.clamp(1, 24));
        self.between(low, doubled.min(ttl / 2).max(low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    #[test]
    fn pauses_lie_between_100_ms_and_half_the_ttl_and_grow() {
        let mut dice = Dice::new(7);
        for tries in 0..100 {
            let ceiling_ms = if tries <= 1 { 200 } else { 100 << tries.min(20) };
            for _ in 0..50 {
                let pause = dice.back_off(tries, TTL);
                assert!(pause >= Duration::from_millis(100));
                assert!(pause <= Duration::from_millis(ceiling_ms).min(TTL / 2), "{tries}");
            }
        }
        let longest = (0..200).map(|_| dice.back_off(u32::MAX, TTL)).max().unwrap();
        assert!(longest > TTL * 2 / 5, "the whole range is used: {longest:?}");
    }

    #[test]
    fn the_same_seed_rolls_the_same_and_others_do_not() {
        let rolls = |seed| {
            let mut dice = Dice::new(seed);
            (0..8).map(|_| dice.back_off(5, TTL)).collect::<Vec<_>>()
        };
        assert_eq!(rolls(1), rolls(1));
        assert_ne!(rolls(1), rolls(2));
    }
}
