//! A holder's ttl: how often renewals would fail for a living holder, and how long a dead one is
//! waited for.
//!
//! From the send of the last acknowledged heartbeat, the next is sent after the renewal period, and
//! another one whenever the newest has had its time-out; an answer counts however late, until the
//! work must stop.
//!
//! ```text
//!   0            R        R+T       R+2T     act_for
//!   |------------|---------|---------|---------|  stops; the office is lost
//!   sent         try       try       try
//! ```
//! The office is lost when every try fails: `Π (1 − answered × share of trips within act_for −
//! tried at)`.

use super::curve::{DAY_MS, Estimate};
use super::surroundings::{Pause, Surroundings, Trips};
use crate::timing::{Budget, Drift};

/// Moments of a renewal period at which a pause may begin that are looked at.
const PHASES: u64 = 64;
/// Tries that are looked at: three fit into a derived budget; more only where somebody wished for
/// it.
const TRIES_MAX: usize = 64;

/// Ttls worth looking at, from the shortest that is allowed to an hour.
const TTLS_MS: &[u64] = &[
    500, 600, 750, 1_000, 1_250, 1_500, 2_000, 2_500, 3_000, 4_000, 5_000, 6_000, 7_500, 10_000,
    12_500, 15_000, 20_000, 30_000, 45_000, 60_000, 90_000, 120_000, 180_000, 300_000, 600_000,
    1_800_000, 3_600_000,
];

/// Budgets from quick to patient, every timer derived from the ttl.
#[must_use]
pub fn ladder(drift: Drift) -> Vec<Budget> {
    TTLS_MS.iter().filter_map(|ttl_ms| Budget::new(*ttl_ms, drift).ok()).collect()
}

/// What a budget costs in these surroundings; the slowest way counts as the way to the store.
#[must_use]
pub fn estimate(budget: &Budget, surroundings: &Surroundings) -> Estimate {
    let renewals = Renewals::new(budget, surroundings);
    let cycles_per_day = DAY_MS as f64 / renewals.renew_ms as f64;
    let pauses = surroundings.pauses().iter();
    let false_by_pauses = pauses.fold(0.0, |sum, pause| sum + renewals.lost_by(*pause));
    let trip_ms = |permille| renewals.way.at_permille(permille).div_ceil(1000);
    // The successor is told, asks for the office, and is answered. What of that is lost is made
    // good by its next heartbeat.
    let arrives = surroundings.arrives();
    let is_told_late = 1.0 - arrives * arrives * arrives > 0.01;
    let late_ms = if is_told_late { renewals.renew_ms } else { 0 };
    Estimate {
        false_by_network: cycles_per_day * renewals.missed(renewals.tries(renewals.renew_ms)),
        false_by_pauses,
        failover_ms_p50: budget.ttl_ms() - renewals.renew_ms / 2 + 2 * trip_ms(500),
        failover_ms_p99: budget.ttl_ms() + 2 * trip_ms(990) + late_ms,
    }
}

/// Renewals of one budget on one way.
pub(super) struct Renewals {
    pub(super) renew_ms: u64,
    pub(super) timeout_ms: u64,
    pub(super) act_ms: u64,
    pub(super) answered: f64,
    way: Trips,
}

impl Renewals {
    pub(super) fn new(budget: &Budget, surroundings: &Surroundings) -> Self {
        let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            renew_ms: ms(budget.renew_every()),
            timeout_ms: ms(budget.request_timeout()),
            act_ms: ms(budget.act_for()),
            answered: surroundings.answered(),
            way: surroundings.slowest(),
        }
    }

    /// When tries are made, the first one at `from_ms` after the send of the last acknowledged
    /// heartbeat.
    pub(super) fn tries(&self, from_ms: u64) -> impl Iterator<Item = u64> + use<> {
        let (timeout_ms, act_ms) = (self.timeout_ms, self.act_ms);
        let at = move |number: u64| from_ms.saturating_add(number.saturating_mul(timeout_ms));
        (0..).map(at).take_while(move |at| *at < act_ms).take(TRIES_MAX)
    }

    /// The chance that none of these tries is answered before the work must stop.
    pub(super) fn missed(&self, tries: impl Iterator<Item = u64>) -> f64 {
        tries.map(|at| 1.0 - self.answered * self.in_time(at)).product()
    }

    /// The share of round trips that, begun at this moment, are over before the work must stop.
    fn in_time(&self, at_ms: u64) -> f64 {
        match self.act_ms.checked_sub(at_ms) {
            None | Some(0) => 0.0,
            Some(left_ms) => self.way.within(left_ms.saturating_mul(1000)),
        }
    }

    /// How often a day a living holder loses its office by pauses of this kind, of its own or of
    /// its store.
    fn lost_by(&self, pause: Pause) -> f64 {
        let cycle_us = self.renew_ms * 1000 + self.way.at_permille(500);
        let begins = (0..PHASES).map(|phase| cycle_us * (2 * phase + 1) / (2 * PHASES) / 1000);
        let lost: f64 =
            begins.map(|at| self.lost_at(at, pause) + self.lost_with_store(at, pause)).sum();
        pause.per_day() * lost / PHASES as f64
    }

    /// The chance to lose the office by a pause of one's own that begins here.
    fn lost_at(&self, at_ms: u64, pause: Pause) -> f64 {
        let wakes_ms = at_ms.saturating_add(pause.length_ms);
        if wakes_ms >= self.act_ms {
            // Time is judged before news: what the clock has ended, no answer brings back.
            return 1.0;
        }
        let before = (at_ms >= self.renew_ms).then_some(self.renew_ms);
        self.missed(before.into_iter().chain(self.tries(wakes_ms.max(self.renew_ms))))
    }

    /// The chance to lose the office by a pause of the store that begins here: what is asked
    /// meanwhile is answered when it is over.
    fn lost_with_store(&self, at_ms: u64, pause: Pause) -> f64 {
        let wakes_ms = at_ms.saturating_add(pause.length_ms);
        self.missed(self.tries(self.renew_ms).map(|at| at.max(wakes_ms)))
    }
}
