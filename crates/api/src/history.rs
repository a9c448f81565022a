//! `GET /v1/groups/{group}/history`: the last changes of a group and why they came about.

use regent_election::{Cause, Group, Node, Reason, Revision, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema, wire};

/// The last changes of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryResponse {
    /// The group's name.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::GroupName")]
    pub group: Group,
    /// Oldest first.
    pub changes: Vec<Change>,
}

/// One line of a group's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// When, in the order of the store.
    #[serde(with = "wire::revision")]
    #[schemars(with = "schema::Revision")]
    pub revision: Revision,
    /// When, on the wall clock of whoever proposed it (RFC 3339). A note for people: it may be
    /// wrong, and no program should act on it.
    pub at: Option<String>,
    /// The group's term after the change.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
    /// Who led after the change; null means nobody.
    #[serde(with = "wire::text_option")]
    #[schemars(with = "Option<schema::NodeId>")]
    pub leader: Option<Node>,
    /// Why it changed.
    #[serde(with = "wire::cause")]
    #[schemars(with = "schema::CauseWord")]
    pub cause: Cause,
    /// What an administrator said, or what was found.
    pub reason: Option<String>,
}

impl From<regent_election::Change> for Change {
    fn from(change: regent_election::Change) -> Self {
        let at = i64::try_from(change.wall_ms)
            .ok()
            .and_then(|wall_ms| jiff::Timestamp::from_millisecond(wall_ms).ok());
        Self {
            revision: change.revision,
            at: at.map(|at| at.to_string()),
            term: change.term,
            leader: change.leader,
            cause: change.cause,
            reason: change.reason.map(|reason| reason.as_str().to_owned()),
        }
    }
}

impl From<Change> for regent_election::Change {
    /// A time or a reason that cannot be read is left out: both are notes for people.
    fn from(change: Change) -> Self {
        let at = change.at.and_then(|at| at.parse::<jiff::Timestamp>().ok());
        Self {
            revision: change.revision,
            wall_ms: at.and_then(|at| u64::try_from(at.as_millisecond()).ok()).unwrap_or(0),
            term: change.term,
            leader: change.leader,
            cause: change.cause,
            reason: change.reason.and_then(|text| Reason::new(&text).ok()).map(Box::new),
        }
    }
}
