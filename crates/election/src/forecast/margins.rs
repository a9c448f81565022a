//! The last margins of one session, and what they say about the next ones.
//!
//! ```text
//!   margin, of 1000 parts of a ttl
//!   546 ──•──•──•──•                            healthy by the default budget
//!                     •
//!                        •  •                   the line: the median of all slopes between two renewals
//!                              •   ╲
//!   350 ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─╲─ ─ ─     where answers begin to time out
//!                                      ╲
//!     0 ────────────────────────────────╲──     too late
//! ```
//!
//! A median of slopes (Theil and Sen) because up to three in ten renewals may be anything without moving it. All
//! arithmetic is in whole thousandths; no float decides who is asked to go.
//!
//! **Zero is too late.** By the default budget an answer is awaited for a fifth of the ttl. If the round trips are what
//! is slow, nothing is renewed any more once they take longer, and nobody is told: the last margin heard is about 350,
//! and the next word is silence. And a hand-over takes two more of those round trips, because a leader with news extends
//! nothing until it has read its list. So a fall is judged by when it reaches that edge, not the ground.

use std::collections::VecDeque;

use crate::limits::MARGINS_MAX;

/// The whole of a ttl. Everything here is in these parts of it, so that sessions with different ttls compare.
const WHOLE: i64 = 1000;
/// A renewal with at least this much left is nobody's concern: that is nearly what is healthy.
const CONCERN: i64 = 480;
/// Where answers begin to time out by the default budget, rounded up.
const EDGE: i64 = 350;
/// The edge must be reached within this many renewals: a standby needs one to hear that it is asked, the leader
/// one to hear that it is warm; and as many for what goes wrong.
const HORIZON: i64 = 4;
/// A fall is at least this deep, between what was usual in the first and in the last third of it. Whatever stays in a
/// band narrower than this never falls.
const FALL: i64 = 100;
/// Fewest renewals that make a fall.
const FALL_RENEWALS: usize = 5;
/// Of every ten pairs of renewals so many must fall: a single step down has six, one bad renewal four.
const FALLING_IN_TEN: usize = 7;
/// What counts as less between two renewals.
const LESS: i64 = 10;
/// By how much the last two renewals must have gone on falling: who has settled is not falling.
const GOES_ON: i64 = 20;
/// A renewal with less than this left came close, as for a near miss.
const CLOSE: i64 = 100;
/// So many of the last few renewals came close, the last one too: the next one may be the one too late.
const CLOSE_RENEWALS: usize = 4;
const CLOSE_OF: usize = 8;
/// Slopes and levels are counted in thousandths of a part.
const FINE: i64 = 1000;

/// What a session's last margins say about its next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// Nothing bad.
    Steady,
    /// They fall, and will be too late in this many renewals.
    Falling { too_late_in: u32 },
    /// They are close to too late, again and again.
    Close {
        /// How many of the last ones.
        count: u32,
    },
}

impl Outlook {
    /// Whether whoever leads like this is about to fail.
    #[must_use]
    pub const fn is_failing(self) -> bool {
        match self {
            Self::Steady => false,
            Self::Falling { .. } | Self::Close { .. } => true,
        }
    }
}

/// One renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Margin {
    ms: u64,
    parts: i64,
}

/// The last margins of one session, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Margins {
    last: VecDeque<Margin>,
}

impl Margins {
    /// A renewal came when this much was left.
    pub fn note(&mut self, margin_ms: u64, ttl_ms: u64) {
        if self.last.len() >= MARGINS_MAX {
            self.last.pop_front();
        }
        let ttl_ms = i128::from(ttl_ms.max(1));
        let parts = i128::from(margin_ms) * i128::from(WHOLE) / ttl_ms;
        let parts = i64::try_from(parts).unwrap_or(WHOLE).min(WHOLE);
        self.last.push_back(Margin { ms: margin_ms, parts });
    }

    /// How many are known.
    #[must_use]
    pub fn count(&self) -> usize {
        self.last.len()
    }

    /// The last `count` margins in milliseconds, the oldest first.
    pub fn last_ms(&self, count: usize) -> impl Iterator<Item = u64> {
        self.last.iter().skip(self.last.len().saturating_sub(count)).map(|margin| margin.ms)
    }

    /// The worst of the last `count`, in thousandths of the ttl; none unless there are so many.
    #[must_use]
    pub fn worst(&self, count: usize) -> Option<i64> {
        let first = self.last.len().checked_sub(count)?;
        self.last.iter().skip(first).map(|margin| margin.parts).min()
    }

    /// What they say about the next ones.
    #[must_use]
    pub fn outlook(&self) -> Outlook {
        let Some(newest) = self.last.back().filter(|margin| margin.parts < CONCERN) else {
            return Outlook::Steady;
        };
        let parts: Vec<i64> = self.last.iter().map(|margin| margin.parts).collect();
        if newest.parts < CLOSE {
            let close = parts.iter().rev().take(CLOSE_OF).filter(|parts| **parts < CLOSE).count();
            if close >= CLOSE_RENEWALS {
                return Outlook::Close { count: close as u32 };
            }
        }
        // A fall may have begun with any renewal: those before it were healthy, and must not hide it.
        (FALL_RENEWALS..=parts.len())
            .find_map(|count| fall(&parts[parts.len() - count..]))
            .map_or(Outlook::Steady, |too_late_in| Outlook::Falling { too_late_in })
    }
}

/// In how many renewals these come too late, if they fall deep, on the whole and to the end, and soon over the edge.
fn fall(parts: &[i64]) -> Option<u32> {
    let count = parts.len();
    let goes_on = parts[count - 3] - parts[count - 1] >= GOES_ON;
    let third = count.div_ceil(3);
    let depth = low_median(&parts[..third]) - high_median(&parts[count - third..]);
    if !goes_on || depth < FALL {
        return None;
    }
    let pairs = || (0..count).flat_map(|left| (left + 1..count).map(move |right| (left, right)));
    let falling = pairs().filter(|(left, right)| parts[*left] - parts[*right] >= LESS).count();
    if falling * 10 < pairs().count() * FALLING_IN_TEN {
        return None;
    }
    let run = |left: usize, right: usize| (right - left) as i64;
    let slopes: Vec<i64> = pairs()
        .map(|(left, right)| (parts[right] - parts[left]) * FINE / run(left, right))
        .collect();
    let slope = high_median(&slopes);
    let levels: Vec<i64> =
        (0..count).map(|at| parts[at] * FINE + slope * run(at, count - 1)).collect();
    let level = high_median(&levels);
    if slope >= 0 || level + slope * HORIZON > EDGE * FINE {
        return None;
    }
    u32::try_from(level.max(0) / -slope + 1).ok()
}

/// The middle one, of two the lower.
fn low_median(numbers: &[i64]) -> i64 {
    nth(numbers, (numbers.len() - 1) / 2)
}

/// The middle one, of two the higher.
fn high_median(numbers: &[i64]) -> i64 {
    nth(numbers, numbers.len() / 2)
}

fn nth(numbers: &[i64], place: usize) -> i64 {
    let mut numbers = numbers.to_vec();
    *numbers.select_nth_unstable(place).1
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const TTL_MS: u64 = 10_000;
    /// What the default budget leaves when nothing is slow.
    const HEALTHY: i64 = 546;

    fn note(margins: &mut Margins, parts: i64) {
        let ms = u64::try_from(parts.max(0)).unwrap() * TTL_MS / 1000;
        margins.note(ms, TTL_MS);
    }

    fn of(parts: &[i64]) -> Margins {
        let mut margins = Margins::default();
        parts.iter().for_each(|parts| note(&mut margins, *parts));
        margins
    }

    #[test]
    fn a_fall_is_told_while_there_is_time_to_hand_over() {
        let steps = [546, 546, 546, 496, 446, 396];
        assert_eq!(of(&steps[..5]).outlook(), Outlook::Steady);
        let Outlook::Falling { too_late_in } = of(&steps).outlook() else { panic!("it falls") };
        assert!((5..=10).contains(&too_late_in), "{too_late_in}");
    }

    #[test]
    fn neither_bad_renewals_nor_a_single_step_down_are_a_fall() {
        for parts in [
            &[546, 546, 546, 546, 546, 10][..],
            &[546, 546, 546, 10, 546, 546],
            &[546, 20, 546, 10, 546, 30],
            &[546, 546, 546, 330, 330, 330],
            &[546, 546, 546, 331, 334, 330, 332],
            &[300, 300, 300, 300, 300, 300],
            &[20, 30, 20],
            &[],
        ] {
            assert_eq!(of(parts).outlook(), Outlook::Steady, "{parts:?}");
        }
    }

    #[test]
    fn who_recovers_is_steady() {
        let mut margins = of(&[546, 496, 446, 396, 346, 296]);
        assert!(margins.outlook().is_failing());
        note(&mut margins, 400);
        assert_eq!(margins.outlook(), Outlook::Steady);
        let mut margins = of(&[50, 60, 50, 40, 50]);
        assert_eq!(margins.outlook(), Outlook::Close { count: 5 });
        note(&mut margins, 500);
        assert_eq!(margins.outlook(), Outlook::Steady);
    }

    #[test]
    fn margins_are_bounded_and_nonsense_is_clamped() {
        let mut margins = Margins::default();
        for _ in 0..100 {
            margins.note(u64::MAX, 0);
        }
        assert_eq!((margins.count(), margins.worst(4)), (MARGINS_MAX, Some(WHOLE)));
        assert_eq!(margins.worst(MARGINS_MAX + 1), None);
    }

    /// When a session that was healthy and then falls by `slope` a renewal is found out, and how much is left then.
    fn found(healthy: usize, slope: i64, noise: &[i64]) -> Option<i64> {
        let mut margins = Margins::default();
        let mut noise = noise.iter().cycle();
        let mut level = HEALTHY;
        for renewal in 0.. {
            if renewal >= healthy {
                level -= slope;
            }
            if level <= 0 {
                return None;
            }
            note(&mut margins, level + noise.next().unwrap());
            if margins.outlook().is_failing() {
                return Some(level);
            }
        }
        unreachable!("it falls")
    }

    proptest! {
        /// Whatever the noise: what stays in a band does not fall, and what is not close is not close.
        #[test]
        fn steady_margins_with_noise_never_fail(
            low in CLOSE..WHOLE - FALL,
            noise in vec(0..FALL, 1..200),
        ) {
            let mut margins = Margins::default();
            for noise in noise {
                note(&mut margins, low + noise);
                prop_assert_eq!(margins.outlook(), Outlook::Steady);
            }
        }

        #[test]
        fn an_honest_decline_is_always_found_before_it_is_too_late(
            healthy in 1..40usize,
            slope in 2..=100i64,
            noise in vec(-5..=5i64, 16),
        ) {
            prop_assert!(found(healthy, slope, &noise).is_some());
        }

        /// One that a hand-over can be made of: not so steep that nothing is left, not so slow that it is no fall.
        #[test]
        fn a_moderate_decline_is_found_while_a_hand_over_fits(
            healthy in 5..40usize,
            slope in 15..=35i64,
            noise in vec(-3..=3i64, 16),
        ) {
            let left = found(healthy, slope, &noise).unwrap_or_default();
            prop_assert!(left >= EDGE, "{left} left");
        }

        #[test]
        fn a_rise_is_never_a_fall(mut parts in vec(CLOSE..WHOLE, 1..16)) {
            parts.sort_unstable();
            prop_assert_eq!(of(&parts).outlook(), Outlook::Steady);
        }

        #[test]
        fn no_margins_make_it_panic(
            margins in vec((any::<u64>(), any::<u64>()), 0..40),
        ) {
            let mut all = Margins::default();
            for (margin_ms, ttl_ms) in margins {
                all.note(margin_ms, ttl_ms);
                let outlook = all.outlook();
                prop_assert!(!outlook.is_failing() || all.count() >= CLOSE_RENEWALS);
            }
        }
    }
}
