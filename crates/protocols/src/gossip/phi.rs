//! The φ accrual failure detector (Hayashibara and others, 2004): not "dead" or "alive" but how unlikely the
//! silence has become.
//!
//! φ = -log₁₀ P(a sign of life comes later than now), for gaps that are normally distributed with the mean
//! and the deviation of the last ones. φ = 1 is wrong once in ten times, φ = 8 once in a hundred million: if
//! gaps go on as they were. So a slow network makes it patient by itself, and a pause of the observer makes
//! it suspect everybody.

use std::collections::VecDeque;
use std::time::Duration;

use regent_election::Moment;

/// Gaps that are remembered.
const GAPS_MAX: usize = 100;

/// One node as another hears it.
#[derive(Clone, Debug)]
pub(super) struct Detector {
    gaps_ms: VecDeque<f64>,
    heard_at: Moment,
    /// The deviation is taken to be at least this. Whom a node talks to is drawn by lot, so now and then nobody
    /// talks to it for some rounds; a normal distribution does not know of such gaps, and would suspect
    /// everybody in the first of them.
    deviation_ms_min: f64,
}

impl Detector {
    /// Heard for the first time; gaps are expected to be like this.
    pub(super) fn new(now: Moment, expected: Duration) -> Self {
        let ms = expected.as_secs_f64() * 1_000.0;
        // As if two gaps had been seen that differ by half of it.
        let gaps_ms = VecDeque::from([ms * 0.75, ms * 1.25]);
        Self { gaps_ms, heard_at: now, deviation_ms_min: ms * 1.25 }
    }

    /// A sign of life.
    pub(super) fn hear(&mut self, now: Moment) {
        self.gaps_ms.push_back(now.since(self.heard_at).as_secs_f64() * 1_000.0);
        if self.gaps_ms.len() > GAPS_MAX {
            self.gaps_ms.pop_front();
        }
        self.heard_at = now;
    }

    /// How unlikely the silence is by now.
    pub(super) fn phi(&self, now: Moment) -> f64 {
        let count = self.gaps_ms.len().max(1) as f64;
        let mean = self.gaps_ms.iter().sum::<f64>() / count;
        let variance = self.gaps_ms.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
        let deviation = variance.sqrt().max(self.deviation_ms_min);
        let silence = now.since(self.heard_at).as_secs_f64() * 1_000.0;
        -log10_of_tail((silence - mean) / deviation)
    }
}

/// log₁₀ of the probability that a normal variable is above this many deviations, by the logistic
/// approximation of its distribution (Bowling and others, 2009); far out, where that is below what a float
/// holds, it is continued by its exponent.
fn log10_of_tail(y: f64) -> f64 {
    let exponent = y * (1.5976 + 0.070_566 * y * y);
    if exponent > 30.0 {
        -exponent / std::f64::consts::LN_10
    } else {
        -(exponent.exp().ln_1p()) / std::f64::consts::LN_10
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phi_is_the_exponent_of_a_table_of_the_normal_distribution() {
        // P(X > y) from any table; the approximation is good to a hundredth of its exponent.
        for (y, tail) in [(0.0, 0.5), (1.0, 0.158_655), (2.0, 0.022_750), (3.0, 0.001_349_9)] {
            let expected: f64 = f64::log10(tail);
            assert!((log10_of_tail(y) - expected).abs() < 0.05, "{y}: {}", log10_of_tail(y));
        }
    }

    #[test]
    fn suspicion_grows_with_silence_and_slower_on_an_irregular_network() {
        let every = Duration::from_millis(100);
        let hear = |gaps: [u64; 4]| {
            let mut detector = Detector::new(Moment::from_millis(0), every);
            let mut now = 0;
            for gap in gaps.iter().cycle().take(200) {
                now += gap;
                detector.hear(Moment::from_millis(now));
            }
            move |silence: u64| detector.phi(Moment::from_millis(now + silence))
        };
        let (regular, irregular) = (hear([100, 100, 100, 100]), hear([20, 900, 50, 30]));
        assert!(regular(100) < 1.0);
        for silence in (100..900).step_by(50) {
            assert!(regular(silence + 50) > regular(silence), "{silence}");
            assert!(irregular(silence) < regular(silence).max(1.0), "{silence}");
        }
        assert!(regular(900) > 8.0 && irregular(900) < 8.0);
    }
}
