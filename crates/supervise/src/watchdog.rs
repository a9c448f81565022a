//! Gives the machine's watchdog its signs of life, while and only while the lease is valid.

use std::path::Path;
use std::time::Duration;

use regent_election::Moment;
use regent_tether::Watchdog;

use crate::observer::SharedObserver;

/// A watchdog that wants to be petted.
#[derive(Debug)]
pub(crate) struct Petted {
    watchdog: Watchdog,
    every: Duration,
    next_at: Moment,
}

impl Petted {
    /// Opens the device; a clause says why it cannot be.
    pub(crate) fn open(path: &Path, ttl: Duration) -> Result<Self, String> {
        let refused = |error| format!("watchdog {}: {error}", path.display());
        let watchdog = Watchdog::open(path, ttl).map_err(refused)?;
        let every = watchdog.timeout() / 4;
        Ok(Self { watchdog, every, next_at: Moment::ZERO })
    }

    /// Pets it if that is due and the lease is valid. One that is over is not helped along: either the
    /// tree is gone before the watchdog bites, or the machine is to be.
    pub(crate) fn look(&mut self, now: Moment, valid_until: Option<Moment>, told: &SharedObserver) {
        if !is_due(now, self.next_at, valid_until) {
            return;
        }
        self.next_at = now + self.every;
        if let Err(error) = self.watchdog.pet() {
            told.remark(&format!("watchdog: {error}"));
        }
    }

    /// Nothing is left that it could be needed for.
    pub(crate) fn disarm(self, told: &SharedObserver) {
        if let Err(error) = self.watchdog.disarm() {
            told.remark(&format!(
                "watchdog: it cannot be disarmed and will reset the machine: {error}"
            ));
        }
    }
}

fn is_due(now: Moment, next_at: Moment, valid_until: Option<Moment>) -> bool {
    next_at <= now && valid_until.is_some_and(|until| now < until)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_is_over_gives_no_sign_of_life() {
        let at = Moment::from_millis;
        assert!(is_due(at(10), at(10), Some(at(11))));
        assert!(!is_due(at(9), at(10), Some(at(11))), "not yet");
        assert!(!is_due(at(11), at(10), Some(at(11))));
        assert!(!is_due(at(11), at(10), None));
    }
}
