//! `POST /v1/groups/{group}/accept`, `resign`, `warm`, `offer` and `transfer`: what a session says about one tenure.
//!
//! - `accept`: a promoted standby takes its office, and may act once answered. Without it the office passes to the
//!   next in line after a third of the ttl.
//! - `resign`: gives the office up; the caller has stopped before it asks. It also confirms the end of a tenure that
//!   was told to stop.
//! - `offer`: first step of a hand-over: a standby is asked to get warm, and the caller goes on leading.
//! - `warm`: the standby of an offer says that it is ready to take over.
//! - `transfer`: hands the office to a named standby; the caller has stopped before it asks. With an offer before
//!   it, nobody waits.
//!
//! They need the same two shapes, so they share them; the address says which of them it is.

use regent_election::{Node, RequestId, SessionId, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema, wire};

/// Something about one tenure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenureRequest {
    /// The caller's session.
    #[serde(with = "wire::secret")]
    #[schemars(with = "schema::SessionSecret")]
    pub session_id: SessionId,
    /// The term that the caller holds, was promoted to, or is offered.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
    /// Makes a repeat take effect once.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::RequestName>")]
    pub request_id: Option<RequestId>,
}

/// A step of a hand-over to a named standby.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HandOverRequest {
    /// The leader's session.
    #[serde(with = "wire::secret")]
    #[schemars(with = "schema::SessionSecret")]
    pub session_id: SessionId,
    /// The term that it holds.
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
