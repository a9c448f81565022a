//! `POST /v1/groups/{group}/offer`: first step of a hand-over: a standby is asked to get warm.
//!
//! The caller goes on leading. The second step, after its work has drained, is a transfer.

use regent_election::{Node, RequestId, SessionId, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema, wire};

/// A leader asks a standby to get warm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfferRequest {
    /// The leader's session.
    #[serde(with = "wire::secret")]
    #[schemars(with = "schema::SessionSecret")]
    pub session_id: SessionId,
    /// The term it holds.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
    /// The node id of the standby meant; exactly one session may stand under it.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::NodeId")]
    pub to: Node,
    /// Makes a repeat take effect once.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::RequestName>")]
    pub request_id: Option<RequestId>,
}
