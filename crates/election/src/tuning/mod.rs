//! Which time-outs suit a network: an estimate by arithmetic, the same for the lab and for a
//! server.
//!
//! Every time-out is a bargain. A short one finds a dead leader soon and takes a living one for
//! dead when a few messages are lost or a process stands still; a long one does neither. Given the
//! surroundings (round trips, loss, pauses) this module says for any setting how long a failover
//! takes and how often a living leader would lose its office for no reason, and picks the smallest
//! setting that meets a target.
//!
//! ```text
//!   false failovers                           failover
//!   per day    *                                  . '  time
//!               *                             . '
//!                 *                       . '
//!                     *     chosen    . '
//!                             * *|. '
//!              -------------------------------> ttl
//! ```
//!
//! **What is modelled.** Messages are lost independently, each way, with one chance. Round trips
//! are drawn independently from one histogram per way. A process stands still for a given time, at
//! moments that do not depend on anything; the leader and whoever it renews with do so equally
//! often. A holder renews as [`crate::participant`] does, and a replica of the log as
//! `regent-replica` does: pre-votes, a quorum check, time-outs by lot.
//! **What is not.** Loss in bursts, a network that slows down as a whole, pauses that many
//! processes share (one overloaded host), clocks beyond their bound, disks. Each of them makes a
//! living leader look dead more often than is said here.
//!
//! Nothing here is safe or unsafe: a ttl becomes timers only through [`crate::Budget`], which
//! checks them exactly. So chances may be floats here, and nowhere else among the rules.
//!
//! Road not taken: to learn time-outs from the last round trips alone, as a transport does. A round
//! trip says nothing about how much a false failover costs; a target does.

mod curve;
mod lease;
mod log;
mod surroundings;
mod words;

pub use curve::{Choice, Curve, Estimate, Point, Rate, Target};
pub use lease::{estimate as estimate_lease, ladder as lease_ladder};
pub use log::{LogTimers, estimate as estimate_log, ladder as log_ladder};
pub use surroundings::{Pause, Surroundings, Trips};
pub use words::{explain_lease, explain_log};

#[cfg(test)]
mod tests;
