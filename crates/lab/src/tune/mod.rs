//! Time-outs measured: what a ttl, or the patience of a log, costs on a stage of given
//! surroundings.
//!
//! [`regent_election::tuning`] estimates by arithmetic; here the same settings are played. A ttl is
//! played by the real participants and the real rules ([`crate::protocols::session`]), the log's
//! time-outs by the real replica of which nobody asks anything
//! ([`crate::protocols::raft::Unasked`]). Two things are measured, each in runs of its own: in
//! *calm* ones nobody dies and every change of office is false; in *crashes* the leader dies, once,
//! and the next one is waited for.
//!
//! One seed decides a run, and runs share nothing, so any number of threads gives the same figures.
//! What is rare is not seen: [`Seen`] says what the number of events allows to conclude and nothing
//! more.

mod draw;
mod ladder;
mod measured;
pub mod parse;
mod runs;
mod seen;
mod told;

use std::ops::RangeInclusive;
use std::time::Duration;

use regent_election::tuning::{
    Estimate, LogTimers, Pause, Surroundings, Trips, estimate_lease, estimate_log,
};
use regent_election::{Budget, Drift};
use regent_replica::Timing;

pub use draw::{bars, svg};
pub use ladder::{lease_rungs, log_rungs};
pub use measured::{Measured, Rung};
pub use runs::{Crash, calm, crash};
pub use seen::{RateVerdict, Seen};
pub use told::{Found, Tuned};

/// Where settings are played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkConditions {
    /// The shortest and the longest round trip, in microseconds.
    pub trip_us: RangeInclusive<u64>,
    /// Chances in a million that a message is lost.
    pub loss_ppm: u32,
    /// How processes stand still.
    pub pause: Option<Pause>,
    /// How many replicas vote.
    pub voters: u16,
}

impl NetworkConditions {
    /// The way to the store, for the arithmetic.
    #[must_use]
    pub fn of_lease(&self) -> Surroundings {
        self.surroundings(1)
    }

    /// The ways between replicas, for the arithmetic.
    #[must_use]
    pub fn of_log(&self) -> Surroundings {
        self.surroundings(usize::from(self.voters.saturating_sub(1)))
    }

    fn surroundings(&self, ways: usize) -> Surroundings {
        let trips = Trips::between(*self.trip_us.start(), *self.trip_us.end());
        Surroundings::new(vec![trips; ways], self.loss_ppm, self.pause.into_iter().collect())
    }
}

/// What is tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A holder's timers, all derived from its ttl.
    Lease(Budget),
    /// The time-outs of the replicated log.
    Log(LogTimers),
}

impl Setting {
    /// A ttl, if stores keep it.
    ///
    /// # Errors
    /// If they do not.
    pub fn ttl(ttl_ms: u64) -> Result<Self, regent_election::BudgetError> {
        Budget::new(ttl_ms, Drift::DEFAULT).map(Self::Lease)
    }

    /// What the arithmetic says of it.
    #[must_use]
    pub fn estimate(&self, place: &NetworkConditions) -> Estimate {
        match self {
            Self::Lease(budget) => estimate_lease(budget, &place.of_lease()),
            Self::Log(timers) => estimate_log(timers, &place.of_log()),
        }
    }

    /// Its name among its like: the ttl, or the smallest election time-out, in milliseconds.
    #[must_use]
    pub const fn size_ms(&self) -> u64 {
        match self {
            Self::Lease(budget) => budget.ttl_ms(),
            Self::Log(timers) => timers.election_ms_min,
        }
    }

    /// How long one calm run of it lasts: as many renewals, or heartbeats, for every setting, so
    /// that patient ones are watched for longer at the same price.
    #[must_use]
    pub fn calm_for(&self) -> Duration {
        match self {
            Self::Lease(budget) => budget.renew_every() * runs::RENEWALS_PER_RUN,
            Self::Log(timers) => {
                Duration::from_millis(timers.heartbeat_ms) * runs::HEARTBEATS_PER_RUN
            }
        }
    }

    /// The replica's timers, where that is what is tuned: checked as every replica checks them.
    ///
    /// # Errors
    /// If the replica would refuse them.
    pub fn timing(timers: &LogTimers) -> Result<Timing, regent_replica::TimingError> {
        let LogTimers { heartbeat_ms, election_ms_min, election_ms_max } = *timers;
        Timing::new(election_ms_min, election_ms_max, heartbeat_ms, heartbeat_ms * 4 / 5)
    }
}

#[cfg(test)]
mod tests;
