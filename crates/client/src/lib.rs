//! Regent from Rust.
//!
//! [`remote::Remote`] speaks to a Regent server over HTTP, one method per verb. [`fresh`] makes the
//! secrets and ids that make a lost reply safe to repeat.
//!
//! Nothing here decides who leads or for how long: that is `regent-election`. This crate carries the
//! question there and the answer back, and says honestly when it does not know the answer.

pub mod fresh;
pub mod limits;
pub mod remote;

pub use regent_api as api;
pub use regent_election as election;
