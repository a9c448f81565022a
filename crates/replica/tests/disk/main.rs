//! The disk is held to its contract on a disk that fails in every way it may.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

mod crash;
mod damage;
mod model;
mod room;
mod sim;
mod trips;
