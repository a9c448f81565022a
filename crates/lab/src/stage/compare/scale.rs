//! How messages grow with the number of nodes: the same death of a leader among few and among many.
//!
//! What is counted begins with the death, so that neither the first election nor a return is in it.
//! Patience is drawn from a wide range, so that mostly one node notices alone: theory speaks of one
//! election, and several that begin at once cost several times as much. Theory speaks of the worst case,
//! too, and for the bully that is the lowest name noticing first, so that is measured beside it. The
//! exponent is the slope of a straight line through the logarithms, by least squares: of the order of n²
//! is a slope near 2.

use crate::stage::algorithm::Algorithm;
use crate::stage::parse::parse;
use crate::stage::record::{StageRecord, What};
use crate::stage::scenario::Scenario;

/// Numbers of nodes, if nobody says which.
pub const SIZES: &[u16] = &[3, 5, 7, 9, 13, 19, 25];

/// Who notices that the leader is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Noticer {
    /// Whoever draws the shortest patience.
    AnyNode,
    /// The lowest name: the leader's last heartbeats do not reach it.
    Lowest,
}

impl Noticer {
    /// Both.
    pub const ALL: &[Self] = &[Self::AnyNode, Self::Lowest];

    /// Its name in tables and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AnyNode => "any-notices",
            Self::Lowest => "lowest-notices",
        }
    }

    /// What it means, in a clause.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::AnyNode => "the leader dies, and whoever draws the shortest patience notices",
            Self::Lowest => "the leader dies, and the lowest name notices: the bully's worst case",
        }
    }

    /// Whether an algorithm is measured in this way. Where nobody has to notice first, or where it matters
    /// not who does, once is enough.
    #[must_use]
    pub const fn is_for(self, algorithm: Algorithm) -> bool {
        match self {
            Self::AnyNode => true,
            Self::Lowest => matches!(algorithm, Algorithm::Bully | Algorithm::Ring),
        }
    }

    /// The scenario with so many nodes.
    #[must_use]
    pub fn scenario(self, nodes: u16) -> Scenario {
        let text = match self {
            Self::AnyNode => {
                "about the leader dies\nlasts 10s\npatience 400ms..4s\nlatency 1ms..2ms\n\
                 at 5s crash leader"
            }
            // Patience is all but the same for all, so that 200 ms without heartbeats decide who is first.
            Self::Lowest => {
                "about the leader dies, and the lowest notices\nlasts 9s\npatience 400ms..410ms\n\
                 at 4.8s cut leader -> A\nat 5s crash leader"
            }
        };
        let mut scenario = parse(self.name(), text).expect("a test plays both");
        scenario.nodes = nodes;
        scenario
    }
}

/// When the leader dies, in nanoseconds; the end if nobody led.
pub(super) fn died_at(record: &StageRecord) -> u64 {
    let death = record.entries.iter().find(|entry| matches!(entry.what, What::Crashes { .. }));
    death.map_or(record.ended_at, |entry| entry.at)
}

/// The slope of the straight line through the logarithms of these points, by least squares; none through
/// fewer than two, or if something is zero.
#[must_use]
pub fn exponent(points: &[(u16, f64)]) -> Option<f64> {
    if points.len() < 2 || points.iter().any(|(nodes, value)| *nodes == 0 || *value <= 0.0) {
        return None;
    }
    let logs: Vec<(f64, f64)> =
        points.iter().map(|(nodes, value)| (f64::from(*nodes).ln(), value.ln())).collect();
    let count = logs.len() as f64;
    let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
    let across: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let along: f64 = logs.iter().map(|(x, _)| (x - mean_x) * (x - mean_x)).sum();
    (along > 0.0).then(|| across / along)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponent_of_a_power_is_its_exponent() {
        for (power, factor) in [(1, 4.0), (2, 0.5), (3, 1.0)] {
            let value = |nodes: &u16| (*nodes, factor * f64::from(*nodes).powi(power));
            let points: Vec<_> = SIZES.iter().map(value).collect();
            let found = exponent(&points).unwrap();
            assert!((found - f64::from(power)).abs() < 1e-9, "{power}: {found}");
        }
        assert_eq!(exponent(&[(3, 6.0)]), None);
        assert_eq!(exponent(&[(3, 0.0), (5, 0.0)]), None);
        assert_eq!(exponent(&[(3, 5.0), (3, 6.0)]), None);
    }
}
