//! Every error there is: RFC 9457 problem details with a stable code.
//!
//! A program reads `code` (all of them stand in [`crate::code`]), a person reads `detail`.

use std::fmt;

use regent_election::store::StoreError;
use regent_election::{
    Cause, CursorError, Group, Home, NameError, Node, PolicyError, Resource, Revision, Term,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::code::Code;
use crate::leader::millis;
pub use crate::refusal::code_of;
use crate::{schema, wire};

/// How problems are labelled in `Content-Type`.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// What went wrong (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Names the code as a URI, as RFC 9457 asks.
    #[serde(rename = "type")]
    pub kind: String,
    /// The same few words for every problem with this code.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What went wrong, for programs.
    pub code: Code,
    /// What went wrong this time and what to do about it, for people.
    pub detail: String,
    /// When to try again, where that helps; also in the `Retry-After` header, in whole seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What else is known about it; the members stand beside the others.
    #[serde(flatten)]
    pub facts: Box<Facts>,
}

/// Further members of a problem, for programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// The field of the request that is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The known name nearest to an unknown one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub did_you_mean: Option<String>,
    /// The group that is meant.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::GroupName>")]
    pub group: Option<Group>,
    /// The term that the caller named.
    #[serde(default, with = "wire::term_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Term>")]
    pub given_term: Option<Term>,
    /// The term of the group.
    #[serde(default, with = "wire::term_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Term>")]
    pub current_term: Option<Term>,
    /// Who leads instead.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::NodeId>")]
    pub leader: Option<Node>,
    /// Why the tenure is ending.
    #[serde(
        default,
        serialize_with = "wire::cause_option::serialize",
        deserialize_with = "wire::cause_option::if_known",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<schema::CauseWord>")]
    pub cause: Option<Cause>,
    /// Shortest ttl allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms_min: Option<u64>,
    /// Longest ttl allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms_max: Option<u64>,
    /// The number of the last heartbeat seen of this session. Above one's own highest it means that
    /// another process uses the same session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sequence: Option<u64>,
    /// Where clients reach the replica that leads the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_address: Option<String>,
    /// The store that the group has moved to.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Home>")]
    pub moved_to: Option<Home>,
    /// The store that the group comes from.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Home>")]
    pub moved_from: Option<Home>,
    /// The node that is meant.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::NodeId>")]
    pub node: Option<Node>,
    /// The resource that is meant.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::ResourceName>")]
    pub resource: Option<Resource>,
    /// How many there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The ttl that the caller named, or that its session has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// The number of the caller's heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_sequence: Option<u64>,
    /// The revision that the caller named.
    #[serde(default, with = "wire::revision_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub given_revision: Option<Revision>,
    /// What that revision was compared with: the store's own, or the last one whose request ids are forgotten.
    #[serde(default, with = "wire::revision_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub known_revision: Option<Revision>,
    /// The right that the caller lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<String>,
    /// What is wrong with the credential: `expired` or `revoked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flaw: Option<String>,
}

impl Problem {
    /// A problem of this kind; `detail` is a clause for a person.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:regent:problem:{}", code.word().to_ascii_lowercase()),
            title: code.title().to_owned(),
            status: code.status(),
            code,
            detail: detail.into(),
            retry_after_ms: None,
            facts: Box::default(),
        }
    }

    /// The same, about one field.
    #[must_use]
    pub fn at(mut self, field: &str) -> Self {
        self.facts.field = Some(field.to_owned());
        self
    }

    /// The same, with a time to try again.
    #[must_use]
    pub fn retry_after(self, retry_after_ms: u64) -> Self {
        Self { retry_after_ms: Some(retry_after_ms), ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, self.code)
    }
}

impl std::error::Error for Problem {}

impl From<NameError> for Problem {
    fn from(error: NameError) -> Self {
        Self::new(Code::BadRequest, error.to_string())
    }
}

impl From<CursorError> for Problem {
    fn from(error: CursorError) -> Self {
        Self::new(Code::BadRequest, error.to_string())
    }
}

impl From<PolicyError> for Problem {
    fn from(error: PolicyError) -> Self {
        Self::new(Code::PolicyRefused, error.to_string())
    }
}

/// When to try again if the store did not say.
const RETRY_MS_DEFAULT: u64 = 1000;

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let detail = error.to_string();
        match error {
            StoreError::Refused(refusal) => refusal.into(),
            StoreError::Unavailable { retry_after, why: _ } => {
                Self::new(Code::StoreUnavailable, detail)
                    .retry_after(retry_after.map_or(RETRY_MS_DEFAULT, millis))
            }
            StoreError::Uncertain { why: _ } => Self::new(Code::Uncertain, detail),
            StoreError::Unsupported { .. } => Self::new(Code::Unsupported, detail),
            StoreError::Corrupt(_) => Self::new(Code::StoreCorrupt, detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_of_a_later_version_is_read_as_unrecognised() {
        let mut json = serde_json::to_value(Problem::new(Code::Full, "x")).unwrap();
        json["code"] = "OF_THE_FUTURE".into();
        let problem: Problem = serde_json::from_value(json).unwrap();
        assert_eq!(problem.code, Code::Unrecognised);
        assert!(!problem.code.nothing_happened());
    }
}
