//! Stories that must be told by name: one fault, one expectation each.
//!
//! A scenario drives the world by hand and says what must be true at the end; the checkers judge its
//! history like any other.

use crate::plan::{Plan, Sabotage};
use crate::trial::{Trial, attempt};
use crate::world::World;

/// One story.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The fact it shows.
    pub name: &'static str,
    /// Replicas at the start.
    pub replicas: u64,
    /// What happens. It panics where an expectation of its own is not met.
    pub script: fn(&mut World),
}

/// All of them.
pub const ALL: &[Scenario] = &[];

impl Scenario {
    /// Tells the story in the world of a seed, perhaps with a mistake in the driver.
    #[must_use]
    pub fn run(&self, seed: u64, sabotage: Option<Sabotage>) -> Trial {
        let plan = Plan { sabotage, ..Plan::calm(seed, self.replicas) };
        attempt(plan, self.script)
    }
}
