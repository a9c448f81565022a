//! The trade-off: settings from quick to patient, what each costs, and which one a target picks.

use std::fmt;

pub(super) const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// So many in so much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub count: u32,
    /// In how much time.
    pub per_ms: u64,
}

impl Rate {
    /// One in a week: often enough to notice, rarely enough to sleep.
    pub const WEEKLY: Self = Self { count: 1, per_ms: 7 * DAY_MS };

    /// How many a day.
    #[must_use]
    pub fn per_day(self) -> f64 {
        f64::from(self.count) * DAY_MS as f64 / self.per_ms.max(1) as f64
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units =
            [("day", DAY_MS), ("week", 7 * DAY_MS), ("hour", DAY_MS / 24), ("year", 365 * DAY_MS)];
        match units.iter().find(|(_, ms)| *ms == self.per_ms) {
            Some((unit, _)) => write!(f, "{} a {unit}", self.count),
            None => write!(f, "{} in {} days", self.count, self.per_ms as f64 / DAY_MS as f64),
        }
    }
}

/// What a setting is to achieve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Ninety-nine of a hundred failovers are over within this.
    pub failover_ms: u64,
    /// A living leader loses its office no more often than this.
    pub false_failovers: Rate,
}

/// What a setting costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// How often a day a living leader loses its office because messages are lost or late.
    pub false_by_network: f64,
    /// How often a day it does because somebody stood still.
    pub false_by_pauses: f64,
    /// From a leader's death until the next one acts: half of the time it is not longer.
    pub failover_ms_p50: u64,
    /// The same, ninety-nine times of a hundred.
    pub failover_ms_p99: u64,
}

impl Estimate {
    /// How often a day a living leader loses its office.
    #[must_use]
    pub fn false_per_day(&self) -> f64 {
        self.false_by_network + self.false_by_pauses
    }

    /// Whether living leaders are left alone as much as the target wants.
    #[must_use]
    pub fn is_calm(&self, target: &Target) -> bool {
        self.false_per_day() <= target.false_failovers.per_day()
    }

    /// Whether dead leaders are succeeded as soon as the target wants.
    #[must_use]
    pub const fn is_quick(&self, target: &Target) -> bool {
        self.failover_ms_p99 <= target.failover_ms
    }
}

/// One setting and what it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point<S> {
    pub setting: S,
    /// What it costs.
    pub estimate: Estimate,
}

/// Settings from quick to patient.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve<S>(pub Vec<Point<S>>);

/// What a target picks of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The quickest that meets both targets, by its place.
    Found(usize),
    /// No setting meets both; one target must give.
    TargetsConflict {
        /// The quickest that leaves living leaders alone, if any does.
        calm: Option<usize>,
        /// The most patient that still succeeds dead ones in time, if any does.
        quick: Option<usize>,
    },
}

impl<S: Copy> Curve<S> {
    /// The trade-off of these settings.
    pub fn of(settings: &[S], estimate: impl Fn(&S) -> Estimate) -> Self {
        let point = |setting: &S| Point { setting: *setting, estimate: estimate(setting) };
        Self(settings.iter().map(point).collect())
    }

    /// What the target picks.
    #[must_use]
    pub fn choose(&self, target: &Target) -> Choice {
        choose(
            self.0
                .iter()
                .map(|point| (point.estimate.is_calm(target), point.estimate.is_quick(target))),
        )
    }
}

/// The first that is both calm and quick; otherwise what each wish alone would get.
pub(super) fn choose(points: impl Iterator<Item = (bool, bool)>) -> Choice {
    let (mut calm, mut quick) = (None, None);
    for (at, (is_calm, is_quick)) in points.enumerate() {
        if is_calm && is_quick {
            return Choice::Found(at);
        }
        if is_calm && calm.is_none() {
            calm = Some(at);
        }
        if is_quick {
            quick = Some(at);
        }
    }
    Choice::TargetsConflict { calm, quick }
}

impl Choice {
    /// The same choice over verdicts that were made otherwise, by measuring: whether each is calm
    /// and quick.
    pub fn among(points: impl Iterator<Item = (bool, bool)>) -> Self {
        choose(points)
    }
}
