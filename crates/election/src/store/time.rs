//! Time and chance, as a store has them: a lease clock, a pause, and random numbers.
//!
//! The rules read no clock, so a wait above the port asks the store for its time. The real one is
//! `regent_clock::SystemTime`; a simulation gives every process a clock of its own, which may run fast
//! or slow within the drift that it admits.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::moment::Moment;

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
    fn wall_ms(&self) -> u64;

    /// A random number: nonces, and pauses that differ between processes.
    fn chance(&self) -> u128;
}
