//! The port itself: what an engine has to do, and the errors that say what the caller may do next.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::time::Time;
use super::views::HeartbeatView;
use crate::command::Command;
use crate::name::{Group, RequestId, SessionId};
use crate::outcome::{Answer, Event, Refusal};
use crate::state::{Query, View};
use crate::term::{Cursor, Revision, Term};

const UNAVAILABLE: &str = "the store is unavailable: ";
const NOTHING_HAPPENED: &str = "; nothing happened";
const UNKNOWN: &str = "the outcome is unknown: ";
const MAY_HAVE_HAPPENED: &str = "; it may have happened, look before you decide anything";

/// The reason alone. A server sends its error as text, and whoever passes it on makes an error of it again: what this
/// file says around a reason is said once, and the outer word counts.
fn bare(why: &str) -> &str {
    let mut bare = why;
    while let Some(rest) = bare.strip_prefix(UNAVAILABLE).or_else(|| bare.strip_prefix(UNKNOWN)) {
        bare = rest
            .strip_suffix(NOTHING_HAPPENED)
            .or_else(|| rest.strip_suffix(MAY_HAVE_HAPPENED))
            .unwrap_or(rest);
    }
    bare.strip_suffix("; it may have happened").unwrap_or(bare)
}

/// Why a store gave no answer of the kind asked for, told by what the caller may do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A definite no, with its reason. Nothing happened.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Nothing happened. Try again when you like, or after the time named.
    #[error("{UNAVAILABLE}{}{NOTHING_HAPPENED}", bare(why))]
    Unavailable {
        /// What is wrong.
        why: String,
        /// When to try again.
        retry_after: Option<Duration>,
    },
    /// It may have happened. Look before you decide anything.
    #[error("{UNKNOWN}{}{MAY_HAVE_HAPPENED}", bare(why))]
    Uncertain {
        /// What is wrong.
        why: String,
    },
    /// This engine cannot do this at all.
    #[error("{store} cannot {what}")]
    Unsupported {
        store: &'static str,
        /// What was asked.
        what: &'static str,
    },
    /// What is stored could not have been written by us. Stop, call a person.
    #[error("the store holds what Regent cannot have written: {0}; stop and look")]
    Corrupt(String),
}

impl StoreError {
    /// The reason alone, without what it means for the request; none if the store answered.
    #[must_use]
    pub fn outage(&self) -> Option<&str> {
        match self {
            Self::Unavailable { why, .. } | Self::Uncertain { why } => Some(bare(why)),
            Self::Refused(_) | Self::Unsupported { .. } | Self::Corrupt(_) => None,
        }
    }

    /// The error of a later step of a verb whose earlier step has taken effect: "nothing happened"
    /// is no longer true then.
    #[must_use]
    pub fn half_done(self) -> Self {
        match self {
            Self::Unavailable { why, .. } => Self::Uncertain { why },
            Self::Refused(_)
            | Self::Uncertain { .. }
            | Self::Unsupported { .. }
            | Self::Corrupt(_) => self,
        }
    }
}

/// Short for what every verb of the port returns.
pub type StoreResult<T> = Result<T, StoreError>;

/// What a store claims; the contract suite fails one that claims too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Asynchronous replication or worse: never advertised as exclusive.
    BestEffort,
    /// Exclusive under the clock bound; terms rise only while the object lives.
    LeaseOnly,
    /// Linearizable, durable before acknowledged, terms rise for ever.
    Strict,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::BestEffort => "best-effort",
            Self::LeaseOnly => "lease-only",
            Self::Strict => "strict",
        })
    }
}

/// What a store says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its scheme, like `local`, `memory` or `etcd`.
    pub name: &'static str,
    /// Where it keeps its data, for people.
    pub place: String,
    /// What it claims.
    pub level: Level,
    /// Why not more, or what a restart costs; one sentence for people.
    pub caveat: Option<String>,
}

/// How a read is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// No older than any answer given before the read began.
    #[default]
    Linearizable,
    /// Whatever this server knows.
    Stale,
}

/// What to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One group.
    Group(Group),
    /// These groups.
    Groups(Vec<Group>),
    /// Every group whose name opens with this; the empty text means all.
    Prefix(String),
    /// One group, for a campaign that waits in its line: every item means "look again". Changes that
    /// cannot concern a standby may be left out, so an engine may wake candidates one by one.
    Turn(Group),
}

impl Scope {
    /// Whether events of `group` are meant.
    #[must_use]
    pub fn covers(&self, group: &Group) -> bool {
        match self {
            Self::Group(one) | Self::Turn(one) => one == group,
            Self::Groups(some) => some.contains(group),
            Self::Prefix(prefix) => group.as_str().starts_with(prefix.as_str()),
        }
    }
}

/// What a watch delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchItem {
    /// The leader of a group changed.
    Changed(Event),
    /// Changes after the cursor asked for are no longer known. What follows starts at `at`; the
    /// watcher must read the present state of what it watches.
    Gap {
        /// The oldest place from which a watch could still be resumed.
        oldest: Cursor,
        /// Where this watch goes on.
        at: Cursor,
    },
}

/// A running watch. Dropping it ends it.
#[async_trait]
pub trait Watch: Send + fmt::Debug {
    /// The next item, in order, none missing, none twice. `None` means that the store is shutting
    /// down: resume elsewhere from [`Watch::cursor`]. Dropping the future before it is ready loses
    /// nothing.
    async fn next(&mut self) -> Option<WatchItem>;

    /// The place up to which everything has been delivered.
    fn cursor(&self) -> Cursor;
}

/// What an applied command brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The answer of the rules.
    pub answer: Answer,
    /// What was asked to be read in the moment after the command was applied.
    pub view: Option<View>,
    /// The revision at which it was applied, if the store counts them for all groups together.
    pub revision: Option<Revision>,
}

/// What an engine has to do. Everything else is written once, above it, as methods of `dyn Store`.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// What this store is and claims.
    fn describe(&self) -> Description;

    /// The time that waits above the port are measured by.
    fn time(&self) -> &dyn Time;

    /// Whether the store can serve now; the error says why not.
    async fn ready(&self) -> StoreResult<()>;

    /// Applies a command once, and reads `then` in the moment after it: one question, one state.
    ///
    /// Asked for [`Query::Heartbeat`] after it, a command of a session counts as a heartbeat of that session.
    ///
    /// Dropping the future may abandon the command, except for [`Command::Close`]: that takes its way
    /// once the future was polled.
    async fn submit(
        &self,
        command: Command,
        request: Option<RequestId>,
        then: Option<Query>,
    ) -> StoreResult<Done>;

    /// Counts a heartbeat: the session and all its tenures live on for a ttl. An expiring session is
    /// never revived, and a `sequence` that is not above the last one is refused.
    ///
    /// With `proves` the heartbeat must prove that tenure first: a refusal extends nothing. An office
    /// to which the session was promoted is accepted by it.
    async fn count_heartbeat(
        &self,
        session: SessionId,
        sequence: Option<u64>,
        proves: Option<(Group, Term)>,
    ) -> StoreResult<HeartbeatView>;

    /// Reads. A stale read may be served from whatever this process knows.
    async fn read(&self, query: Query, consistency: Consistency) -> StoreResult<View>;

    /// Watches from just after `cursor`, or from now. A cursor that is too old, or of another life
    /// of the store, gets a [`WatchItem::Gap`] first; one in the future waits.
    async fn watch(&self, scope: Scope, cursor: Option<Cursor>) -> StoreResult<Box<dyn Watch>>;

    /// Ends all watches with `None`, and with them all waiting campaigns as lost; later calls are
    /// refused as unavailable.
    async fn shut_down(&self);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unavailable(why: &str) -> StoreError {
        StoreError::Unavailable { why: why.to_owned(), retry_after: None }
    }

    #[test]
    fn an_error_that_went_through_a_server_is_wrapped_once() {
        let first = unavailable("no quorum");
        let told = first.to_string();
        assert_eq!(told, "the store is unavailable: no quorum; nothing happened");
        let second = unavailable(&told);
        assert_eq!(second.to_string(), told);
        assert_eq!(unavailable(&second.to_string()).to_string(), told);
    }

    /// The outer word counts: an error that says "nothing happened" and "it may have happened" says nothing.
    #[test]
    fn an_outcome_that_is_unknown_is_not_also_said_to_be_known() {
        let told = unavailable("no quorum").half_done().to_string();
        assert!(!told.contains("nothing happened"), "{told}");
        let wrapped = StoreError::Uncertain { why: unavailable("no quorum").to_string() };
        assert_eq!(wrapped.to_string(), told);
        assert_eq!(unavailable(&told).to_string(), unavailable("no quorum").to_string());
        let lost = StoreError::Uncertain { why: "no answer; it may have happened".to_owned() };
        assert_eq!(lost.to_string().matches("it may have happened").count(), 1, "{lost}");
    }
}
