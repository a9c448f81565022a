//! The rules of leader election.
//!
//! Everything that decides is here, and nothing that acts: no clock is read, no dice are rolled, no
//! socket or file is touched. The same inputs always give the same outputs, so a unit test, the
//! simulator and a server drive the very same code.
//!
//! - Vocabulary: [`name`], [`term`], [`moment`], [`policy`], [`limits`].
//! - The store's side: [`Command`]s go into the state machine, [`Answer`]s, [`Event`]s and
//!   [`Effect`]s come out; [`deadlines`] says which sessions are due; [`ledger`] keeps the two together
//!   and is what a store drives; [`store`] is the port that every engine implements.
//! - The holder's side: [`participant`] decides when to bid, renew, warn and stop; [`driver`] who in a
//!   process works under which term; [`timing`] derives every timer from one ttl; [`damping`] slows crash loops; [`fence`] refuses
//!   what is stale; [`tuning`] estimates which ttl suits a network.
//! - The witness's side: [`belief`] compares who acts with who may; [`forecast`] sees who will soon not lead any more.
//! - For everybody: [`error_text`] prints errors with their causes.
//! - The recorder's side: [`deed`] tells what an entry did, without any secret.

pub mod access;
pub mod belief;
pub mod codec;
pub mod command;
#[cfg(feature = "contract")]
pub mod contract;
pub mod damping;
pub mod deadlines;
pub mod deed;
pub mod door;
pub mod driver;
pub mod elections;
pub mod error_text;
pub mod fence;
pub mod forecast;
pub mod ledger;
pub mod limits;
pub mod moment;
pub mod mutant;
pub mod name;
pub mod outcome;
pub mod participant;
pub mod policy;
pub mod state;
pub mod store;
pub mod term;
pub mod timing;
mod together;
pub mod tuning;
pub mod watch;

pub use command::{
    Adds, Command, Entry, Finding, Frees, Grows, IfLost, Opening, Promotes, WaitKind,
};
pub use door::{Door, Step};
pub use fence::{Fence, FenceError};
pub use ledger::{HeartbeatOutcome, Ledger};
pub use moment::Moment;
pub use name::{
    Account, Digest, Digests, Group, Home, Metadata, NameError, Node, Reason, RequestId, Resource,
    SessionId, SessionNo,
};
pub use outcome::{Answer, Applied, Cause, Change, Effect, Event, OfficeChange, Refusal};
pub use participant::Participant;
pub use policy::{NodePattern, Policy, PolicyError, Priority, Settings};
pub use state::{State, StateBudget, StateGrowth};
pub use term::{Cursor, CursorError, Incarnation, Revision, Term};
pub use timing::{Budget, BudgetError, Drift, Wishes};
