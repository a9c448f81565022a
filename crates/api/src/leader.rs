//! `GET /v1/groups/{group}/leader`: who leads, and [`Office`], which many answers carry.

use std::time::Duration;

use regent_election::store::{LeaderView, OfficeState};
use regent_election::{Cursor, Group, Home, Metadata, Node, Revision, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema, wire};

/// How a read is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Consistency {
    /// No older than any answer given before the read began.
    #[default]
    Linearizable,
    /// Whatever this server knows.
    Stale,
}

impl From<Consistency> for regent_election::store::Consistency {
    fn from(consistency: Consistency) -> Self {
        match consistency {
            Consistency::Linearizable => Self::Linearizable,
            Consistency::Stale => Self::Stale,
        }
    }
}

/// What may stand behind the `?` of a leader's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaderQuery {
    /// How the read is served; linearizable if not said.
    #[serde(default)]
    pub consistency: Consistency,
}

/// Who leads a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Office {
    /// The group's name.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::GroupName")]
    pub group: Group,
    /// The node id of the leader; null is an answer too.
    #[serde(with = "wire::text_option")]
    #[schemars(with = "Option<schema::NodeId>")]
    pub leader: Option<Node>,
    /// The leader's term, or the last one granted.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
    /// How the office stands.
    #[serde(with = "wire::state")]
    #[schemars(with = "schema::StateWord")]
    pub state: OfficeState,
    /// What the leader tells about itself.
    #[serde(with = "wire::metadata")]
    #[schemars(with = "schema::Metadata")]
    pub metadata: Metadata,
    /// How long the leader's session lives if it is not heard again: a hint, never a permission.
    /// Absent where the server cannot know.
    #[serde(default, with = "wire::millis_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Millis>")]
    pub valid_for_ms: Option<u64>,
    /// The store that the group has moved to: ask there. Absent if it lives here.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Home>")]
    pub moved_to: Option<Home>,
    /// The revision at which this was true.
    #[serde(with = "wire::revision")]
    #[schemars(with = "schema::Revision")]
    pub revision: Revision,
    /// Where a watch that misses nothing after this answer begins.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::Cursor")]
    pub cursor: Cursor,
}

impl From<LeaderView> for Office {
    fn from(view: LeaderView) -> Self {
        Self {
            group: view.group,
            leader: view.leader,
            term: view.term,
            state: view.state,
            metadata: view.metadata,
            valid_for_ms: view.valid_for.map(millis),
            moved_to: view.moved_to,
            revision: view.revision,
            cursor: view.cursor,
        }
    }
}

impl From<Office> for LeaderView {
    fn from(office: Office) -> Self {
        Self {
            group: office.group,
            leader: office.leader,
            term: office.term,
            state: office.state,
            metadata: office.metadata,
            valid_for: office.valid_for_ms.map(Duration::from_millis),
            moved_to: office.moved_to,
            revision: office.revision,
            cursor: office.cursor,
        }
    }
}

/// Who leads a group, and how fresh that is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaderResponse {
    /// Who leads.
    #[serde(flatten)]
    pub office: Office,
    /// How this read was served: a stale one says so.
    pub consistency: Consistency,
    /// Why this server cannot say `valid_for_ms` though somebody leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_for_unknown: Option<String>,
}

/// Whole milliseconds, rounded down: a hint about validity must never be too long.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis())
        .unwrap_or(regent_election::limits::TERM_MAX)
        .min(regent_election::limits::TERM_MAX)
}
