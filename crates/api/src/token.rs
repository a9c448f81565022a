//! `GET /v1/groups/{group}/token`, `POST …/token/validate`, `GET` and `DELETE …/fences`: the token service.
//!
//! The term is the fencing token. A resource that can keep a number beside its data compares it there, which
//! needs no service (`docs/fencing.md`). One that cannot asks here: is this the current term, or, with a
//! resource, is it at least the highest that was admitted there? The second raises the mark in the same
//! step, so that of two leaders the later one shuts the earlier out.

use std::time::Duration;

use regent_election::store::{FenceView, FencesPage, LeaderView, OfficeState};
use regent_election::{Group, Home, Node, Resource, Revision, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema, wire};

/// The header in which the holder proves its session to be given a signed token.
pub const SESSION_HEADER: &str = "regent-session";

/// The current token of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenResponse {
    /// The group's name.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::GroupName")]
    pub group: Group,
    /// The current term, or the last one if nobody holds the office.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
    /// Who holds it; null is an answer too.
    #[serde(with = "wire::text_option")]
    #[schemars(with = "Option<schema::NodeId>")]
    pub leader: Option<Node>,
    /// How the office stands.
    #[serde(with = "wire::state")]
    #[schemars(with = "schema::StateWord")]
    pub state: OfficeState,
    /// How long the holder's session lives if it is not heard again: a hint, never a permission.
    #[serde(default, with = "wire::millis_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Millis>")]
    pub valid_for_ms: Option<u64>,
    /// The term signed by this service, for the holder alone: whoever proves the session that holds the
    /// office. Absent if the service has no key, or somebody else asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The revision at which this was true.
    #[serde(with = "wire::revision")]
    #[schemars(with = "schema::Revision")]
    pub revision: Revision,
}

impl TokenResponse {
    /// The answer, without a signature.
    #[must_use]
    pub fn new(view: LeaderView) -> Self {
        Self {
            group: view.group,
            term: view.term,
            leader: view.leader,
            state: view.state,
            valid_for_ms: view.valid_for.map(millis),
            token: None,
            revision: view.revision,
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a term may still write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValidateTokenRequest {
    /// The term to be judged.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
    /// Where it is to be admitted. Without one it is compared with the current term of the group.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::ResourceName>")]
    pub resource: Option<Resource>,
}

/// A term that may write. One that may not is a problem: `STALE_TERM` with both numbers, `TERM_OVER`, or
/// `NEVER_GRANTED`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ValidateTokenResponse {
    /// The group's name.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::GroupName")]
    pub group: Group,
    /// The fencing term.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
    /// Where it was admitted: no lower term is admitted there any more.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::ResourceName>")]
    pub resource: Option<Resource>,
    /// Always true: a refusal is a problem.
    pub valid: bool,
}

/// What may stand behind the `?` of a list of fences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FencesQuery {
    /// Only resources whose names open with this.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Only resources after this name: the `next` of the page before.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::ResourceName>")]
    pub after: Option<Resource>,
    /// How many at most: 1 to 256, 100 if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// One page of the fences of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FencesResponse {
    /// The group's name.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::GroupName")]
    pub group: Group,
    /// In the order of their names.
    pub fences: Vec<FenceBody>,
    /// No resource of this group admits a term below this one, whether it has a fence or not.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub floor: Term,
    /// Ask for the page after this name, if there is more.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::ResourceName>")]
    pub next: Option<Resource>,
    /// The last term that the group has granted.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub current_term: Term,
    /// The store that the group has moved to: its fences are there.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Home>")]
    pub moved_to: Option<Home>,
    /// The revision at which this was true.
    #[serde(with = "wire::revision")]
    #[schemars(with = "schema::Revision")]
    pub revision: Revision,
}

/// One fence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FenceBody {
    /// What it protects.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::ResourceName")]
    pub resource: Resource,
    /// The highest term admitted there.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
}

impl FencesResponse {
    /// The answer about `group`.
    #[must_use]
    pub fn new(group: Group, page: FencesPage) -> Self {
        let body = |FenceView { resource, mark }| FenceBody { resource, term: mark };
        Self {
            group,
            fences: page.fences.into_iter().map(body).collect(),
            floor: page.floor,
            next: page.next,
            current_term: page.term,
            moved_to: page.moved_to,
            revision: page.revision,
        }
    }
}

/// Which fence to forget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteFenceQuery {
    /// What it protects.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::ResourceName")]
    pub resource: Resource,
}
