//! The seam through which stores meet time and chance: a lease clock, a pause, and dice.
//!
//! [`SystemTime`] is the real one. A test gives every participant a clock of its own, which may run
//! fast or slow against the others within the drift that it admits.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use regent_election::Moment;

/// A pause under way.
pub type Pause = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Time, as one process has it.
pub trait Time: Send + Sync + fmt::Debug + 'static {
    /// The present moment on the lease clock.
    fn now(&self) -> Moment;

    /// How far that clock may stray from real time, in parts per million.
    fn drift_ppm(&self) -> u32;

    /// Waits for so long, or somewhat longer.
    fn sleep(&self, for_how_long: Duration) -> Pause;

    /// The wall clock in milliseconds since 1970: a note for people, which no rule reads.
    fn wall_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// A number that nobody else has: nonces, and pauses that are not everybody's.
    fn chance(&self) -> u128 {
        let half = || u128::from(getrandom::u64().expect("the system has random numbers"));
        half() << 64 | half()
    }
}

/// The lease clock of this machine, and the runtime's timer.
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
        regent_clock::now()
    }

    fn drift_ppm(&self) -> u32 {
        regent_clock::drift_ppm()
    }

    fn sleep(&self, for_how_long: Duration) -> Pause {
        Box::pin(tokio::time::sleep(for_how_long))
    }
}
