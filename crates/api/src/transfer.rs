//! `POST /v1/groups/{group}/transfer`: hands the office to a named standby.
//!
//! The caller has stopped before it asks. With an offer before it, nobody waits.

use regent_election::{Node, RequestId, SessionId, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema, wire};

/// A leader hands its office over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferRequest {
    /// The leader's session.
    #[serde(with = "wire::secret")]
    #[schemars(with = "schema::SessionSecret")]
    pub session_id: SessionId,
    /// The term it held.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
    /// The node id of the successor; exactly one session may stand under it.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::NodeId")]
    pub to: Node,
    /// Makes a repeat take effect once.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::RequestName>")]
    pub request_id: Option<RequestId>,
}
