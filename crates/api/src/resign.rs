//! `POST /v1/groups/{group}/resign`: gives the office up; the caller has stopped before it asks.
//!
//! It also confirms the end of a tenure that was told to stop.

use regent_election::{RequestId, SessionId, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema, wire};

/// A leader's farewell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResignRequest {
    /// The leader's session.
    #[serde(with = "wire::secret")]
    #[schemars(with = "schema::SessionSecret")]
    pub session_id: SessionId,
    /// The term it held.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
    /// Makes a repeat take effect once.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::RequestName>")]
    pub request_id: Option<RequestId>,
}

/// It is done, or had been done already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// Always true: a no is a problem, never `false`.
    pub done: bool,
}

impl Done {
    /// The only value there is.
    pub const YES: Self = Self { done: true };
}
