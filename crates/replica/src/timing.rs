//! The replica's timers, checked once with the arithmetic shown.
//!
//! A leader must be able to show itself twice before the most impatient follower gives up, and a
//! request to a peer must fail before the next heartbeat is due, or a slow peer would look dead.

use crate::limits::TICK_MS;

/// Election time-outs, heartbeats and peer requests of one cluster, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    election_ms_min: u64,
    election_ms_max: u64,
    heartbeat_ms: u64,
    peer_request_ms: u64,
}

/// Why timers do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// The leader could not show itself twice.
    #[error(
        "heartbeat {heartbeat_ms} ms is at or above half the smallest election time-out ({min} ms / 2 = {half} ms): one lost heartbeat would start an election; send heartbeats more often or raise the election time-out"
    )]
    Heartbeat {
        /// The heartbeat asked for.
        heartbeat_ms: u64,
        /// The smallest election time-out.
        min: u64,
        /// Half of it.
        half: u64,
    },
    /// A peer request could outlive a heartbeat.
    #[error(
        "peer request time-out {peer_request_ms} ms is at or above the heartbeat of {heartbeat_ms} ms: a slow peer would delay the next heartbeat; lower the one or raise the other"
    )]
    PeerRequest {
        /// The time-out asked for.
        peer_request_ms: u64,
        heartbeat_ms: u64,
    },
    /// The bounds of the election time-out do not rise.
    #[error(
        "election time-outs {min} ms to {max} ms are refused: they must rise, so that two candidates rarely draw the same, and end at 60000 ms or less"
    )]
    Election { min: u64, max: u64 },
    /// Below what ticks can count.
    #[error("heartbeat {heartbeat_ms} ms is refused: at least {TICK_MS} ms")]
    TooShort {
        /// The heartbeat asked for.
        heartbeat_ms: u64,
    },
}

impl Timing {
    /// For replicas within a data centre.
    pub const LAN: Self =
        Self { election_ms_min: 150, election_ms_max: 300, heartbeat_ms: 50, peer_request_ms: 40 };

    /// For replicas in several regions.
    pub const WAN: Self = Self {
        election_ms_min: 1000,
        election_ms_max: 5000,
        heartbeat_ms: 250,
        peer_request_ms: 200,
    };

    /// These timers, if they go together.
    pub const fn new(
        election_ms_min: u64,
        election_ms_max: u64,
        heartbeat_ms: u64,
        peer_request_ms: u64,
    ) -> Result<Self, TimingError> {
        if election_ms_min >= election_ms_max || election_ms_max > 60_000 {
            return Err(TimingError::Election { min: election_ms_min, max: election_ms_max });
        }
        if heartbeat_ms < TICK_MS {
            return Err(TimingError::TooShort { heartbeat_ms });
        }
        if heartbeat_ms * 2 >= election_ms_min {
            let half = election_ms_min / 2;
            return Err(TimingError::Heartbeat { heartbeat_ms, min: election_ms_min, half });
        }
        if peer_request_ms >= heartbeat_ms {
            return Err(TimingError::PeerRequest { peer_request_ms, heartbeat_ms });
        }
        Ok(Self { election_ms_min, election_ms_max, heartbeat_ms, peer_request_ms })
    }

    /// The smallest election time-out.
    #[must_use]
    pub const fn election_ms_min(self) -> u64 {
        self.election_ms_min
    }

    /// The bound below which election time-outs are drawn.
    #[must_use]
    pub const fn election_ms_max(self) -> u64 {
        self.election_ms_max
    }

    /// How often a leader shows itself.
    #[must_use]
    pub const fn heartbeat_ms(self) -> u64 {
        self.heartbeat_ms
    }

    /// How long a peer has to answer.
    #[must_use]
    pub const fn peer_request_ms(self) -> u64 {
        self.peer_request_ms
    }

    /// The same with more or less patience, in per cent: election time-outs change, heartbeats do not. None if
    /// they would not go together.
    #[must_use]
    pub const fn stretched(self, percent: u64) -> Option<Self> {
        let min = self.election_ms_min.saturating_mul(percent) / 100;
        let max = self.election_ms_max.saturating_mul(percent) / 100;
        match Self::new(min, max, self.heartbeat_ms, self.peer_request_ms) {
            Ok(timing) => Some(timing),
            Err(_) => None,
        }
    }

    /// A warning if the network measured is too slow for these timers.
    #[must_use]
    pub fn warning(self, round_trip_ms: u64) -> Option<String> {
        (self.election_ms_min < 3 * round_trip_ms).then(|| {
            format!(
                "smallest election time-out {} ms is below three measured round trips (3 × {round_trip_ms} ms): leaders may be deposed for no reason; use the wan profile or raise it",
                self.election_ms_min
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profiles_pass_their_own_check() {
        for profile in [Timing::LAN, Timing::WAN] {
            let Timing { election_ms_min, election_ms_max, heartbeat_ms, peer_request_ms } =
                profile;
            let checked =
                Timing::new(election_ms_min, election_ms_max, heartbeat_ms, peer_request_ms);
            assert_eq!(checked, Ok(profile));
        }
    }

    #[test]
    fn timers_that_do_not_go_together_are_refused_with_the_arithmetic() {
        let refuse = |a, b, c, d| Timing::new(a, b, c, d).unwrap_err().to_string();
        assert!(refuse(150, 300, 75, 40).contains("150 ms / 2 = 75 ms"));
        assert!(refuse(150, 300, 50, 50).contains("50 ms is at or above the heartbeat of 50 ms"));
        assert!(refuse(300, 150, 50, 40).contains("must rise"));
        assert!(refuse(150, 150, 50, 40).contains("must rise"));
        assert!(refuse(150, u64::MAX, 50, 40).contains("60000"));
        assert!(refuse(150, 300, 0, 0).contains("at least 10 ms"));
    }

    #[test]
    fn patience_is_stretched_as_long_as_the_timers_go_together() {
        let patient = Timing::LAN.stretched(400).unwrap();
        assert_eq!((patient.election_ms_min(), patient.election_ms_max()), (600, 1200));
        assert_eq!((patient.heartbeat_ms(), patient.peer_request_ms()), (50, 40));
        assert_eq!(Timing::LAN.stretched(100), Some(Timing::LAN));
        assert_eq!(Timing::LAN.stretched(66), None, "two heartbeats must fit");
        assert_eq!(Timing::WAN.stretched(1300), None, "a minute is the longest");
    }

    #[test]
    fn a_slow_network_is_warned_about() {
        assert_eq!(Timing::LAN.warning(50), None);
        assert!(Timing::LAN.warning(51).unwrap().contains("3 × 51 ms"));
    }
}
