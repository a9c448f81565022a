//! The simulator: whole clusters in virtual time, with the real replica or the real lease, and the real
//! participant.
//!
//! One seed decides everything. A run gives a [`History`]; [`checkers`] named after the promises read
//! nothing else. A run that broke a promise can be replayed from its seed and is made small ([`shrink`]);
//! deliberately broken variants ([`Sabotage`], and with the feature `mutants` those in the rules
//! themselves) show that the checkers would notice. [`scenarios`] are the stories that must be told by
//! name.
//!
//! [`rehearsal`] is the same for an application of your own; [`trace`] acts what was recorded of a real
//! cluster again.
//!
//! Beside it stands the [`stage`]: the algorithms of the literature ([`protocols`]) under scenarios that
//! anybody can write, to be watched and measured rather than judged. [`tune`] measures on it what
//! time-outs cost.

pub mod blocks;
pub mod checkers;
pub mod chronicle;
mod clock;
pub mod history;
pub mod ledger;
#[cfg(feature = "mutants")]
pub mod mutants;
pub mod plan;
pub mod pool;
pub mod progress;
pub mod protocols;
mod queue;
pub mod rehearsal;
pub mod scenarios;
pub mod shrink;
pub mod stage;
pub mod stats;
pub mod sweep;
pub mod trace;
pub mod trial;
pub mod tune;
pub mod world;

pub use regent_election as election;
pub use regent_protocols::{dice, fnv};

pub use blocks::{Block, Side};
pub use history::History;
pub use plan::{Cuts, Fault, Plan, RegisterPlan, Sabotage, StoreKind};
pub use rehearsal::{Rehearsal, RehearsalOutcome};
pub use stats::Stats;
pub use sweep::{Failure, SweepOptions, SweepProgress, SweepReport, sweep, sweep_one};
pub use trial::{Trial, TrialVerdict, replay, run};
pub use world::{Application, Context, World, Written};
