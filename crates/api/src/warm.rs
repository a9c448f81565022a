//! `POST /v1/groups/{group}/warm`: the standby of an offer says that it is ready to take over.

use regent_election::{RequestId, SessionId, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema, wire};

/// A standby is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WarmRequest {
    /// The standby's session.
    #[serde(with = "wire::secret")]
    #[schemars(with = "schema::SessionSecret")]
    pub session_id: SessionId,
    /// The term of the leader that offered.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
    /// Makes a repeat take effect once.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::RequestName>")]
    pub request_id: Option<RequestId>,
}
