//! Stories that must be told by name: one fault, one expectation each.
//!
//! A scenario drives the world by hand and says what must be true on the way; the checkers judge its
//! history like any other. It is told in the world of a seed, which decides delays, timers and clocks,
//! so the same story is told a little differently each time.
//!
//! One file is one family. A story ends with [`World::finish`]: everything healed, everything dead and
//! born again, nothing lost.

mod expiry;
mod fences;
mod graphs;
mod members;
mod partitions;
mod pauses;
mod restore;
mod witness;

use crate::plan::{Plan, Sabotage};
use crate::trial::{Trial, Verdict, attempt};
use crate::world::World;

/// One story.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The fact it shows.
    pub name: &'static str,
    /// Replicas at the start.
    pub replicas: u64,
    /// What its world has that a calm one has not.
    pub plan: fn(&mut Plan),
    /// What happens. It panics where an expectation of its own is not met.
    pub script: fn(&mut World),
}

/// All of them.
pub const ALL: &[Scenario] = &[
    partitions::MAJORITY_SIDE,
    partitions::THREE_PARTS,
    partitions::CHAIN,
    partitions::ISOLATED,
    graphs::ALL_OF_THREE,
    pauses::RAFT_LEADER,
    pauses::GROUP_LEADER,
    pauses::STORE_SLEPT,
    pauses::DEAF_LEADER,
    expiry::CLOCKS_APART,
    expiry::MEETS_ITS_EXPIRY,
    expiry::IN_THE_INBOX,
    expiry::CROWD,
    fences::REFUSED,
    members::REPLACED,
    members::WALK,
    witness::SURVIVES_ONE,
    witness::OLDER_TAIL,
    restore::RESTORED,
];

impl Scenario {
    /// Tells the story in the world of a seed, perhaps with a mistake in the driver.
    ///
    /// The verdict is never void: whether enough happened is for the story itself to say. An
    /// expectation that was not met is a violation of the promise `panic`.
    #[must_use]
    pub fn run(&self, seed: u64, sabotage: Option<Sabotage>) -> Trial {
        let mut plan = Plan { sabotage, ..Plan::calm(seed, self.replicas) };
        (self.plan)(&mut plan);
        let mut trial = attempt(plan, self.script);
        if matches!(trial.verdict, Verdict::Void(_)) {
            trial.verdict = Verdict::Passed;
        }
        trial
    }
}

/// Nothing beside a calm world.
const fn as_it_is(_plan: &mut Plan) {}
