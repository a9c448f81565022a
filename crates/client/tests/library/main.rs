//! The library as an application uses it: over HTTP against a real server in this process, and over
//! a store without one.
//!
//! Nothing here waits for a time: it waits until something is so, and fails when it never is.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod beliefs;
mod bench;
mod campaign;
mod elector;
mod embedded_tls;
mod extensions;
mod fences;
mod hand_over;
mod health;
mod lead;
mod locks;
mod lost_replies;
mod moves;
mod overrun;
mod partition;
mod pauses;
mod rolling;
mod stopped;
