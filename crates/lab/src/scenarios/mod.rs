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
use crate::trial::{Trial, TrialVerdict, attempt};
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

/// A story by its number from 1, its name, or a part of its name that no other has; or a clause that says
/// why it is none.
pub fn find(name: &str) -> Result<&'static Scenario, String> {
    if let Ok(number) = name.parse::<usize>() {
        let found = number.checked_sub(1).and_then(|place| ALL.get(place));
        return found.ok_or_else(|| {
            format!("there is no story {number}; they are numbered 1 to {}", ALL.len())
        });
    }
    if let Some(scenario) = ALL.iter().find(|scenario| scenario.name == name) {
        return Ok(scenario);
    }
    let found: Vec<&Scenario> =
        ALL.iter().filter(|scenario| scenario.name.contains(name)).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(format!("no story's name holds {name:?}; `regent lab scenarios` lists them")),
        many => {
            let names: Vec<&str> = many.iter().map(|scenario| scenario.name).collect();
            Err(format!("{name:?} may mean:\n  {}", names.join("\n  ")))
        }
    }
}

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
        if matches!(trial.verdict, TrialVerdict::Void(_)) {
            trial.verdict = TrialVerdict::Passed;
        }
        trial
    }
}

/// Nothing beside a calm world.
const fn as_it_is(_plan: &mut Plan) {}
