//! What a number of events in a stretch of time allows to conclude.

use regent_election::tuning::Rate;

/// How sure a conclusion is: it is wrong one time in twenty.
const DOUBT: f64 = 0.05;
/// Halvings in which a bound is found: far below any figure that is shown.
const HALVINGS: u32 = 60;

/// Events that were seen, and how long was watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub events: u64,
    /// For how many milliseconds of virtual time.
    pub watched_ms: u64,
}

/// What was seen says of a wanted rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateVerdict {
    /// They are rarer, at 95 %.
    Rarer,
    /// They are more frequent, at 95 %.
    MoreFrequent,
    /// Too little was seen to say either.
    Open,
}

impl Seen {
    /// How many a day there were.
    #[must_use]
    pub fn per_day(&self) -> f64 {
        self.events as f64 / self.days()
    }

    /// For how many days was watched.
    #[must_use]
    pub fn days(&self) -> f64 {
        (self.watched_ms.max(1)) as f64 / 86_400_000.0
    }

    /// There are at most so many a day, at 95 %. With none seen in N days that is 3/N.
    #[must_use]
    pub fn at_most_per_day(&self) -> f64 {
        // So many are expected if as few as were seen come only one time in twenty.
        bound(|expected| up_to(self.events, expected) > DOUBT, self.events) / self.days()
    }

    /// There are at least so many a day, at 95 %.
    #[must_use]
    pub fn at_least_per_day(&self) -> f64 {
        let Some(fewer) = self.events.checked_sub(1) else { return 0.0 };
        bound(|expected| 1.0 - up_to(fewer, expected) < DOUBT, self.events) / self.days()
    }

    /// What was seen says of this rate.
    #[must_use]
    pub fn against(&self, wanted: Rate) -> RateVerdict {
        if self.at_most_per_day() <= wanted.per_day() {
            RateVerdict::Rarer
        } else if self.at_least_per_day() > wanted.per_day() {
            RateVerdict::MoreFrequent
        } else {
            RateVerdict::Open
        }
    }
}

/// The number up to which something holds that holds for small ones.
fn bound(holds: impl Fn(f64) -> bool, events: u64) -> f64 {
    let (mut low, mut high) = (0.0, 10.0 + 4.0 * events as f64);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if holds(middle) { low = middle } else { high = middle }
    }
    high
}

/// The chance of at most so many events where so many are expected (Poisson).
fn up_to(events: u64, expected: f64) -> f64 {
    if events > 300 {
        // The sum below would underflow; with so many a normal one is as good.
        let distance = (events as f64 + 0.5 - expected) / expected.max(1.0).sqrt();
        return 1.0 / (1.0 + (-1.702 * distance).exp());
    }
    let mut term = (-expected).exp();
    let mut sum = term;
    for number in 1..=events {
        term *= expected / number as f64;
        sum += term;
    }
    sum
}
