//! The seam through which stores meet time and chance: a lease clock, a pause, and dice.
//!
//! [`SystemTime`] is the real one. A test gives every participant a clock of its own, which may run
//! fast or slow against the others within the drift that it admits.

pub use regent_clock::SystemTime;
pub use regent_election::store::{Pause, Time};
