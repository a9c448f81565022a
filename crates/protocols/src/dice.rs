//! Seeded chance: the only dice of a simulated world.
//!
//! Every concern rolls dice of its own, forked from the seed by name. So leaving one fault out of a
//! run changes nothing in the others' rolls, and a failing seed can be shrunk.

use std::ops::RangeInclusive;

use crate::fnv::print;

/// A generator in the manner of splitmix64: tiny, fast, the same everywhere.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The dice of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Dice for one concern, independent of every other's.
    #[must_use]
    pub fn fork(&self, concern: &str) -> Self {
        let mut dice = Self(self.0 ^ print(concern.bytes()));
        dice.roll();
        dice
    }

    /// The next 64 bits.
    pub const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is above zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.roll()) * u128::from(bound.max(1));
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number of the range.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = range.into_inner();
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True with this many chances in a million.
    pub fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// True once in `many`.
    pub fn once_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// One of them; none of an empty list.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() {
            None
        } else {
            from.get(self.below(from.len() as u64) as usize).copied()
        }
    }

    /// A number of the range, small ones far more likely than large ones: delays are like that.
    pub fn skewed(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = range.into_inner();
        let width = high.saturating_sub(low);
        let first = self.below(width.saturating_add(1));
        low + self.below(first.saturating_add(1))
    }

    /// Puts a list into an order of chance.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_concern_does_not_disturb_another() {
        let seed = Dice::new(7);
        let mut alone = seed.fork("links");
        let mut other = seed.fork("disks");
        let mut beside = seed.fork("links");
        for _ in 0..100 {
            other.roll();
            assert_eq!(alone.roll(), beside.roll());
        }
        assert_ne!(seed.fork("links").roll(), seed.fork("disks").roll());
    }

    #[test]
    fn numbers_stay_within_their_range_and_use_all_of_it() {
        let mut dice = Dice::new(1);
        let mut seen = [0; 7];
        for _ in 0..7000 {
            seen[dice.within(0..=6) as usize] += 1;
            assert!((3..=9).contains(&dice.skewed(3..=9)));
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
    }
}
