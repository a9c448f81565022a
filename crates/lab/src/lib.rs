//! The simulator: whole clusters in virtual time, with the real replica and the real participant.
//!
//! One seed decides everything. A run gives a [`History`]; [`checkers`] named after the promises read
//! nothing else. A run that broke a promise can be replayed from its seed; deliberately broken variants
//! ([`Sabotage`]) show that the checkers would notice.

pub mod checkers;
pub mod chronicle;
pub mod dice;
mod fnv;
pub mod history;
pub mod plan;
pub mod stats;
pub mod world;

pub use history::History;
pub use plan::{Fault, Plan, Sabotage};
pub use stats::Stats;
pub use world::World;
