//! Every error there is: RFC 9457 problem details with a stable code.
//!
//! A program reads `code` (all of them stand in [`crate::code`]), a person reads `detail`.

use std::fmt;

use regent_election::store::StoreError;
use regent_election::{
    Cause, CursorError, Group, Home, NameError, Node, PolicyError, Refusal, Term,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::code::Code;
use crate::leader::millis;
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
    #[serde(default, with = "wire::cause_option", skip_serializing_if = "Option::is_none")]
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

/// The code of a definite no.
#[must_use]
pub const fn code_of(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::SessionUnknown => Code::SessionExpired,
        Refusal::SessionMismatch { .. } => Code::SessionMismatch,
        Refusal::HeartbeatNotNewer { .. } => Code::HeartbeatNotNewer,
        Refusal::NotLeader { .. } => Code::NotLeader,
        Refusal::TenureEnding { .. } => Code::TenureEnding,
        Refusal::TtlOutOfBounds { .. } => Code::TtlOutOfBounds,
        Refusal::NotAllowed { .. } => Code::NotAllowed,
        Refusal::GroupUnknown { .. } => Code::GroupUnknown,
        Refusal::GroupEnding { .. } => Code::GroupEnding,
        Refusal::Moved { .. } => Code::Moved,
        Refusal::OnItsWay { .. } => Code::OnItsWay,
        Refusal::NotExpected { .. } => Code::NotExpected,
        Refusal::StillLed { .. } => Code::StillLed,
        Refusal::NobodyLeads { .. } => Code::NobodyLeads,
        Refusal::Full { .. } => Code::Full,
        Refusal::SuccessorUnknown { .. } => Code::SuccessorUnknown,
        Refusal::SuccessorAmbiguous { .. } => Code::SuccessorAmbiguous,
        Refusal::SuccessorSilent { .. } => Code::SuccessorSilent,
        Refusal::NoOffer { .. } => Code::NoOffer,
        Refusal::RequestTooOld { .. } => Code::RequestTooOld,
        Refusal::RequestAhead { .. } => Code::RequestAhead,
        Refusal::RequestReused => Code::RequestReused,
        Refusal::Policy(_) => Code::PolicyRefused,
        Refusal::StaleTerm { .. } => Code::StaleTerm,
        Refusal::TermOver { .. } => Code::TermOver,
        Refusal::NeverGranted { .. } => Code::NeverGranted,
        Refusal::FenceUnknown { .. } => Code::FenceUnknown,
        Refusal::TermsExhausted { .. } => Code::TermsExhausted,
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let mut problem = Self::new(code_of(&refusal), refusal.to_string());
        let facts = &mut *problem.facts;
        match refusal {
            Refusal::NotLeader { group, given, term, leader } => {
                facts.group = Some(group);
                facts.given_term = Some(given);
                facts.current_term = Some(term);
                facts.leader = leader;
            }
            Refusal::TenureEnding { group, term, cause } => {
                facts.group = Some(group);
                facts.current_term = Some(term);
                facts.cause = Some(cause);
            }
            Refusal::TtlOutOfBounds { group, min, max, ttl_ms: _ } => {
                facts.group = group;
                facts.ttl_ms_min = Some(min);
                facts.ttl_ms_max = Some(max);
            }
            Refusal::Moved { group, to } => {
                facts.group = Some(group);
                facts.moved_to = Some(to);
            }
            Refusal::StillLed { group, term } => {
                facts.group = Some(group);
                facts.current_term = Some(term);
            }
            Refusal::StaleTerm { group, given, current, resource: _ }
            | Refusal::NeverGranted { group, given, current } => {
                facts.group = Some(group);
                facts.given_term = Some(given);
                facts.current_term = Some(current);
            }
            Refusal::TermOver { group, given } => {
                facts.group = Some(group);
                facts.given_term = Some(given);
            }
            Refusal::NotAllowed { group, .. }
            | Refusal::FenceUnknown { group, .. }
            | Refusal::OnItsWay { group, .. }
            | Refusal::NotExpected { group, .. }
            | Refusal::GroupUnknown { group }
            | Refusal::GroupEnding { group }
            | Refusal::NobodyLeads { group }
            | Refusal::SuccessorUnknown { group, .. }
            | Refusal::SuccessorAmbiguous { group, .. }
            | Refusal::SuccessorSilent { group, .. }
            | Refusal::NoOffer { group }
            | Refusal::TermsExhausted { group } => facts.group = Some(group),
            Refusal::HeartbeatNotNewer { last, given: _ } => facts.last_sequence = Some(last),
            Refusal::SessionUnknown
            | Refusal::SessionMismatch { .. }
            | Refusal::Full { .. }
            | Refusal::RequestTooOld { .. }
            | Refusal::RequestAhead { .. }
            | Refusal::RequestReused
            | Refusal::Policy(_) => {}
        }
        problem
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
    fn a_stale_leader_is_told_both_terms_and_who_leads() {
        let refusal = Refusal::NotLeader {
            group: Group::new("billing").unwrap(),
            given: Term::new(3).unwrap(),
            term: Term::new(5).unwrap(),
            leader: Some(Node::new("web-2").unwrap()),
        };
        let json = serde_json::to_value(Problem::from(refusal)).unwrap();
        assert_eq!(json["code"], "NOT_LEADER");
        assert_eq!(json["type"], "urn:regent:problem:not_leader");
        assert_eq!((&json["given_term"], &json["current_term"]), (&3.into(), &5.into()));
        assert_eq!(json["leader"], "web-2");
        assert_eq!(json["detail"], "term 3 < current 5: web-2 leads billing; stop at once");
    }

    #[test]
    fn a_code_of_a_later_version_is_read_as_unrecognised() {
        let mut json = serde_json::to_value(Problem::new(Code::Full, "x")).unwrap();
        json["code"] = "OF_THE_FUTURE".into();
        let problem: Problem = serde_json::from_value(json).unwrap();
        assert_eq!(problem.code, Code::Unrecognised);
        assert!(!problem.code.nothing_happened());
    }
}
