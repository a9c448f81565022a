//! `POST /v1/groups/{group}/renew`: keeps a session alive and proves one tenure.
//!
//! Anything but a yes means: stop at once. `NOT_LEADER` is a definite no; an answer that did not
//! come extends nothing.

use regent_election::{Revision, SessionId, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema, wire};

/// A sign of life of a leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// The leader's session.
    #[serde(with = "wire::secret")]
    #[schemars(with = "schema::SessionSecret")]
    pub session_id: SessionId,
    /// The term it holds.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
    /// Changes the session's ttl, if it is another; the longer of both holds for one old ttl.
    #[serde(default, with = "wire::millis_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Millis>")]
    pub extend_by_ms: Option<u64>,
}

/// An acknowledged sign of life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeartbeatResponse {
    /// The ttl that counts from when the request left its sender, not from this answer.
    #[serde(with = "wire::millis")]
    #[schemars(with = "schema::Millis")]
    pub ttl_ms: u64,
    /// Rises with every change to the session's tenures that it did not ask for. A holder that
    /// does not know this number extends nothing until it has read its session.
    pub epoch: u64,
    /// The revision at which the session was known to exist.
    #[serde(with = "wire::revision")]
    #[schemars(with = "schema::Revision")]
    pub revision: Revision,
}

impl From<regent_election::store::HeartbeatView> for HeartbeatResponse {
    fn from(heard: regent_election::store::HeartbeatView) -> Self {
        Self { ttl_ms: heard.ttl_ms, epoch: heard.epoch, revision: heard.revision }
    }
}

impl From<HeartbeatResponse> for regent_election::store::HeartbeatView {
    fn from(heard: HeartbeatResponse) -> Self {
        Self { ttl_ms: heard.ttl_ms, epoch: heard.epoch, revision: heard.revision }
    }
}
