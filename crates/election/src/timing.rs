//! The timing budget: from one `ttl`, every timer of a holder, with the proof that they fit.
//!
//! The store frees a lease when `ttl` has passed on *its* clock since a heartbeat arrived. The holder
//! must have stopped by then, though its own clock may run slow while the store's runs fast. With a
//! drift bound ρ, a duration `d` read on a clock lasts between `d/(1+ρ)` and `d/(1−ρ)` in truth, so
//!
//! ```text
//!   sent                                                 holder's slowest clock
//!    |------------- valid_for = ttl × (1 − ε) --------------|
//!    |-- act_for ------------------------------|-stop_grace-|
//!    |-- renew --|-- renew --|-- answer --|
//!      |------------------------ ttl --------------------------|--> freed
//!   arrived                                              store's fastest clock
//!
//!   valid_for / (1−ρ) ≤ ttl / (1+ρ)      so      ε = 2ρ/(1+ρ)
//! ```
//!
//! Subtracting ρ alone forgets that both clocks may be wrong at once, and overlaps (a test shows by
//! how much). All arithmetic is in whole milliseconds and parts per million, exact in `u128`; no
//! float decides who leads.
//!
//! Road not taken: a table of independent time-outs that are "usually" compatible. Here nobody can
//! set a timer that was not checked against all others.

use std::fmt;
use std::time::Duration;

use crate::limits::{
    DRIFT_PPM_MAX, HEARTBEAT_RETRY_MS_MAX, RENEW_MS_MIN, TTL_MS_CEILING, TTL_MS_DEFAULT,
    TTL_MS_FLOOR,
};
use crate::mutant::{self, Mutant};

const PPM: u128 = 1_000_000;

/// How wrong the rate of any clock concerned may be, in parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Drift(u32);

impl Drift {
    /// 1 %: twenty times the fastest slew of a time daemon, for a clock that is not slewed at all.
    pub const DEFAULT: Self = Self(10_000);
    /// 10 %: where only a slewed clock can be had (semantics 1).
    pub const COARSE: Self = Self(100_000);

    /// A drift bound, if it is at most 40 %.
    pub const fn from_ppm(ppm: u32) -> Result<Self, BudgetError> {
        if ppm <= DRIFT_PPM_MAX { Ok(Self(ppm)) } else { Err(BudgetError::Drift { ppm }) }
    }

    /// Parts per million.
    #[must_use]
    pub const fn ppm(self) -> u32 {
        self.0
    }

    /// Whether a holder on the slowest allowed clock, valid for `valid_for_ms`, is done before a
    /// store on the fastest allowed clock has counted `ttl_ms`. Exact.
    #[must_use]
    pub const fn separates(self, valid_for_ms: u64, ttl_ms: u64) -> bool {
        let rho = self.0 as u128;
        valid_for_ms as u128 * (PPM + rho) <= ttl_ms as u128 * (PPM - rho)
    }

    /// The longest whole number of milliseconds that [`Drift::separates`] allows: `ttl × (1 − ε)`
    /// with `ε = 2ρ/(1+ρ)`, rounded down.
    #[must_use]
    pub const fn valid_for_ms(self, ttl_ms: u64) -> u64 {
        let rho = self.0 as u128;
        // At most `ttl_ms`, so it fits.
        (ttl_ms as u128 * (PPM - rho) / (PPM + rho)) as u64
    }
}

impl Default for Drift {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 10_000, self.0 % 10_000);
        if part == 0 {
            write!(f, "{whole}%")
        } else {
            write!(f, "{whole}.{}%", format!("{part:04}").trim_end_matches('0'))
        }
    }
}

/// What a user may set beside the ttl; whatever is not set is derived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// How long the work needs to stop; a tenth of the ttl by default.
    pub stop_grace_ms: Option<u64>,
    /// The pause between two heartbeats; a third of the ttl by default, less where drift takes much.
    pub renew_every_ms: Option<u64>,
    /// How long an answer is awaited; a fifth of the ttl by default, less where that does not fit.
    pub request_timeout_ms: Option<u64>,
}

/// Why timers do not fit together. The message shows the arithmetic and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// A drift bound that would leave nothing.
    #[error("drift {ppm} ppm is refused: at most {DRIFT_PPM_MAX} ppm; get a better clock")]
    Drift {
        /// The bound asked for.
        ppm: u32,
    },
    /// A ttl no store keeps.
    #[error(
        "ttl {} is refused: it must lie within {} to {}",
        Ms(*.ttl_ms), Ms(TTL_MS_FLOOR), Ms(TTL_MS_CEILING)
    )]
    Ttl {
        /// The ttl asked for.
        ttl_ms: u64,
    },
    /// No time at all to stop.
    #[error("a stop grace of 0ms is refused: work needs at least 1ms to stop")]
    StopGrace,
    /// Timers that would only make noise.
    #[error(
        "{what} of {} is refused: at least {}; choose more, or leave it out to have it derived",
        Ms(*.given_ms), Ms(RENEW_MS_MIN)
    )]
    TooShort {
        what: &'static str,
        /// What was asked for.
        given_ms: u64,
    },
    /// The next heartbeat would wait for the time-out of the last.
    #[error(
        "a request time-out of {} is longer than the {} between renewals; wait less for an answer or renew less often",
        Ms(*.request_timeout_ms), Ms(*.renew_every_ms)
    )]
    TimeoutAboveRenewal { request_timeout_ms: u64, renew_every_ms: u64 },
    /// The sum does not fit before expiry.
    #[error(
        "ttl {} leaves no room for two renewals {} apart, {} for an answer and {} to stop: 2 × {renew} + {answer} + {stop} = {sum} > {valid}, what is safe of it at {drift} drift; raise ttl, renew more often or stop faster",
        Ms(*.ttl_ms), Ms(*.renew_every_ms), Ms(*.request_timeout_ms), Ms(*.stop_grace_ms),
        renew = Ms(*.renew_every_ms), answer = Ms(*.request_timeout_ms), stop = Ms(*.stop_grace_ms),
        sum = Sum(*.renew_every_ms, *.request_timeout_ms, *.stop_grace_ms), valid = Ms(*.valid_for_ms)
    )]
    NoRoom {
        ttl_ms: u64,
        /// What is safe of it.
        valid_for_ms: u64,
        /// The pause between renewals.
        renew_every_ms: u64,
        /// The wait for an answer.
        request_timeout_ms: u64,
        /// The time to stop.
        stop_grace_ms: u64,
        /// The drift bound.
        drift: Drift,
    },
}

/// All timers of a holder, checked against each other. A value of this type is safe to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    ttl_ms: u64,
    drift: Drift,
    valid_for_ms: u64,
    stop_grace_ms: u64,
    renew_every_ms: u64,
    request_timeout_ms: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(TTL_MS_DEFAULT, Drift::DEFAULT).expect("the default ttl fits the default drift")
    }
}

impl Budget {
    /// The budget of a ttl, everything else derived. Every ttl within bounds has one.
    pub fn new(ttl_ms: u64, drift: Drift) -> Result<Self, BudgetError> {
        Self::with(ttl_ms, drift, Wishes::default())
    }

    /// The budget of a ttl with some timers given, if they fit.
    pub fn with(ttl_ms: u64, drift: Drift, wishes: Wishes) -> Result<Self, BudgetError> {
        if !(TTL_MS_FLOOR..=TTL_MS_CEILING).contains(&ttl_ms) {
            return Err(BudgetError::Ttl { ttl_ms });
        }
        let valid_for_ms = drift.valid_for_ms(ttl_ms);
        let stop_grace_ms = wishes.stop_grace_ms.unwrap_or(ttl_ms / 10);
        let act_for_ms = valid_for_ms.saturating_sub(stop_grace_ms);
        let renew_every_ms =
            wishes.renew_every_ms.unwrap_or((ttl_ms / 3).min(act_for_ms * 2 / 5).max(RENEW_MS_MIN));
        let request_timeout_ms = wishes.request_timeout_ms.unwrap_or_else(|| {
            let left_ms = act_for_ms.saturating_sub(renew_every_ms.saturating_mul(2));
            (ttl_ms / 5).min(left_ms).min(renew_every_ms).max(RENEW_MS_MIN)
        });
        let budget =
            Self { ttl_ms, drift, valid_for_ms, stop_grace_ms, renew_every_ms, request_timeout_ms };
        budget.check()?;
        Ok(budget)
    }

    /// The session's ttl in milliseconds, as it travels.
    #[must_use]
    pub const fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    /// The session's ttl.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// The drift bound this budget is safe under.
    #[must_use]
    pub const fn drift(&self) -> Drift {
        self.drift
    }

    /// How long after the *send* of an acknowledged heartbeat its holder may pass a check.
    #[must_use]
    pub const fn valid_for(&self) -> Duration {
        Duration::from_millis(self.valid_for_ms)
    }

    /// [`Budget::valid_for`] when the store acknowledged another ttl than ours: the shorter counts.
    #[must_use]
    pub fn valid_for_acknowledged(&self, ttl_ms: u64) -> Duration {
        if mutant::is(Mutant::MarginOnce) {
            return Duration::from_millis(
                ttl_ms - ttl_ms * u64::from(self.drift.ppm()) / 1_000_000,
            );
        }
        Duration::from_millis(self.drift.valid_for_ms(ttl_ms.min(self.ttl_ms)))
    }

    /// How long work has to stop.
    #[must_use]
    pub const fn stop_grace(&self) -> Duration {
        Duration::from_millis(self.stop_grace_ms)
    }

    /// How long after the send of the last acknowledged heartbeat work may go on before it must
    /// begin to stop.
    #[must_use]
    pub const fn act_for(&self) -> Duration {
        Duration::from_millis(self.valid_for_ms - self.stop_grace_ms)
    }

    /// The pause between two heartbeats, send to send.
    #[must_use]
    pub const fn renew_every(&self) -> Duration {
        Duration::from_millis(self.renew_every_ms)
    }

    /// How long an answer is awaited before the request is tried again.
    #[must_use]
    pub const fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }

    /// The pause before a heartbeat that was answered by a failure is tried again.
    #[must_use]
    pub fn retry_pause(&self) -> Duration {
        let pause_ms = (self.renew_every_ms / 8).clamp(RENEW_MS_MIN, HEARTBEAT_RETRY_MS_MAX);
        Duration::from_millis(pause_ms)
    }

    /// How long after the send of the last acknowledged heartbeat the leadership is in jeopardy: the
    /// renewal that was due has had its whole time-out and was not acknowledged.
    #[must_use]
    pub const fn jeopardy_after(&self) -> Duration {
        Duration::from_millis(self.renew_every_ms + self.request_timeout_ms)
    }

    fn check(&self) -> Result<(), BudgetError> {
        // Derived, not wished, so no input can break it; a wrong margin must never run.
        assert!(
            self.drift.separates(self.valid_for_ms, self.ttl_ms),
            "valid_for {} overlaps ttl {} at {} drift",
            Ms(self.valid_for_ms),
            Ms(self.ttl_ms),
            self.drift
        );
        if self.stop_grace_ms == 0 {
            return Err(BudgetError::StopGrace);
        }
        for (what, given_ms) in [
            ("a renewal period", self.renew_every_ms),
            ("a request time-out", self.request_timeout_ms),
        ] {
            if given_ms < RENEW_MS_MIN {
                return Err(BudgetError::TooShort { what, given_ms });
            }
        }
        let needed = sum_ms(self.renew_every_ms, self.request_timeout_ms, self.stop_grace_ms);
        if needed > u128::from(self.valid_for_ms) {
            return Err(BudgetError::NoRoom {
                ttl_ms: self.ttl_ms,
                valid_for_ms: self.valid_for_ms,
                renew_every_ms: self.renew_every_ms,
                request_timeout_ms: self.request_timeout_ms,
                stop_grace_ms: self.stop_grace_ms,
                drift: self.drift,
            });
        }
        if self.request_timeout_ms > self.renew_every_ms {
            return Err(BudgetError::TimeoutAboveRenewal {
                request_timeout_ms: self.request_timeout_ms,
                renew_every_ms: self.renew_every_ms,
            });
        }
        Ok(())
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ttl {}: renewed every {}, answers awaited {}, work stops after {} unrenewed and is gone by {}, {} before a store could free the lease on a perfect clock ({} drift allowed)",
            Ms(self.ttl_ms),
            Ms(self.renew_every_ms),
            Ms(self.request_timeout_ms),
            Ms(self.valid_for_ms - self.stop_grace_ms),
            Ms(self.valid_for_ms),
            Ms(self.ttl_ms - self.valid_for_ms),
            self.drift,
        )
    }
}

fn sum_ms(renew_every_ms: u64, request_timeout_ms: u64, stop_grace_ms: u64) -> u128 {
    2 * u128::from(renew_every_ms) + u128::from(request_timeout_ms) + u128::from(stop_grace_ms)
}

/// Milliseconds as people write them: `250ms`, `5s`, `3.333s`.
pub(crate) struct Ms(pub(crate) u64);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ms(f, u128::from(self.0))
    }
}

struct Sum(u64, u64, u64);

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ms(f, sum_ms(self.0, self.1, self.2))
    }
}

fn write_ms(f: &mut fmt::Formatter<'_>, ms: u128) -> fmt::Result {
    let (seconds, part) = (ms / 1000, ms % 1000);
    if seconds == 0 {
        write!(f, "{ms}ms")
    } else if part == 0 {
        write!(f, "{seconds}s")
    } else {
        write!(f, "{seconds}.{}s", format!("{part:03}").trim_end_matches('0'))
    }
}
