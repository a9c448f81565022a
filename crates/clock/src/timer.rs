//! Real time, as stores have it: the lease clock of this machine, the runtime's timer, the system's
//! random numbers.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use regent_election::Moment;
use regent_election::store::{Pause, Time};

/// The time of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemTime;

impl SystemTime {
    /// The same, to be shared.
    #[must_use]
    pub fn shared() -> Arc<dyn Time> {
        Arc::new(Self)
    }
}

impl Time for SystemTime {
    fn now(&self) -> Moment {
        crate::now()
    }

    fn drift_ppm(&self) -> u32 {
        crate::drift_ppm()
    }

    fn sleep(&self, for_how_long: Duration) -> Pause {
        Box::pin(tokio::time::sleep(for_how_long))
    }

    fn wall_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn chance(&self) -> u128 {
        let half = || u128::from(getrandom::u64().expect("the system has random numbers"));
        half() << 64 | half()
    }
}
