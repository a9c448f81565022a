//! A [`Problem`] inside a gRPC status.
//!
//! The status's details (`grpc-status-details-bin`) are a `google.rpc.Status` with one
//! `regent.v1.Problem`, which is where generic clients of every language look. The code of the
//! status is the nearest one gRPC has; the word that programs should read is the problem's own.
//!
//! "No" and "perhaps" are never mixed: [`may_have_happened`] tells them apart by the code alone, and
//! every problem has a code on its own side. A status that this server did not make (the connection
//! broke, a proxy gave up) carries no problem and always means perhaps, whatever its code.

use prost::Message;
use prost::bytes::Bytes;
use tonic::metadata::MetadataValue;
use tonic::{Code as GrpcCode, Status};

use super::generated as pb;
use super::words;
use crate::problem::{Code, Facts, Problem};

/// The type of the one detail.
const PROBLEM_URL: &str = "type.googleapis.com/regent.v1.Problem";
/// Where generic clients read when to come back.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// `google.rpc.Status`, as far as it is needed here.
#[derive(Clone, PartialEq, Message)]
struct RichStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<AnyDetail>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct AnyDetail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// The code of gRPC nearest to `code`.
#[must_use]
pub const fn grpc_code(code: Code) -> GrpcCode {
    match code {
        Code::BadRequest
        | Code::PayloadTooLarge
        | Code::UnsupportedMediaType
        | Code::PolicyRefused
        | Code::AccessRefused => GrpcCode::InvalidArgument,
        Code::Unauthenticated | Code::CredentialOver => GrpcCode::Unauthenticated,
        Code::CrossOrigin
        | Code::NotAllowed
        | Code::TokenRefused
        | Code::Forbidden
        | Code::SessionOfAnother => GrpcCode::PermissionDenied,
        Code::NotFound | Code::MethodNotAllowed | Code::Unsupported => GrpcCode::Unimplemented,
        Code::GroupUnknown | Code::FenceUnknown | Code::AuthTokenUnknown | Code::SessionExpired => {
            GrpcCode::NotFound
        }
        Code::RequestTimeout | Code::HeartbeatNotNewer => GrpcCode::Aborted,
        Code::NotLeader
        | Code::TenureEnding
        | Code::SessionMismatch
        | Code::GroupEnding
        | Code::Moved
        | Code::OnItsWay
        | Code::NotExpected
        | Code::GroupStopped
        | Code::StillLed
        | Code::StaleTerm
        | Code::TermOver
        | Code::NeverGranted
        | Code::TermMissing
        | Code::NobodyLeads
        | Code::SuccessorUnknown
        | Code::SuccessorAmbiguous
        | Code::SuccessorSilent
        | Code::NoOffer
        | Code::RequestTooOld
        | Code::RequestAhead
        | Code::TermsExhausted
        | Code::OtherReplicaLeads
        | Code::BindingsChanged
        | Code::SecondApprovalNeeded
        | Code::MemberRefused => GrpcCode::FailedPrecondition,
        Code::RequestReused | Code::AuthTokenExists => GrpcCode::AlreadyExists,
        Code::TtlOutOfBounds => GrpcCode::OutOfRange,
        Code::Full | Code::RateLimited => GrpcCode::ResourceExhausted,
        Code::StoreUnavailable
        | Code::ShuttingDown
        | Code::UpstreamUnavailable
        | Code::FenceClosed => GrpcCode::Unavailable,
        Code::Internal => GrpcCode::Internal,
        Code::StoreCorrupt => GrpcCode::DataLoss,
        Code::Uncertain | Code::Unrecognised => GrpcCode::Unknown,
    }
}

/// Whether a status with this code leaves it open if something happened.
#[must_use]
pub const fn may_have_happened(code: GrpcCode) -> bool {
    matches!(
        code,
        GrpcCode::Unknown
            | GrpcCode::Internal
            | GrpcCode::DataLoss
            | GrpcCode::DeadlineExceeded
            | GrpcCode::Cancelled
    )
}

impl From<&Problem> for pb::Problem {
    fn from(problem: &Problem) -> Self {
        let facts = &*problem.facts;
        Self {
            code: problem.code.word().to_owned(),
            title: problem.title.clone(),
            detail: problem.detail.clone(),
            nothing_happened: problem.code.nothing_happened(),
            http_status: u32::from(problem.status),
            retry_after_ms: problem.retry_after_ms,
            field: facts.field.clone(),
            group: facts.group.as_ref().map(ToString::to_string),
            given_term: facts.given_term.map(regent_election::Term::get),
            current_term: facts.current_term.map(regent_election::Term::get),
            leader: facts.leader.as_ref().map(ToString::to_string),
            cause: words::cause_number(facts.cause),
            ttl_ms_min: facts.ttl_ms_min,
            ttl_ms_max: facts.ttl_ms_max,
            last_sequence: facts.last_sequence,
            leader_address: facts.leader_address.clone(),
            moved_to: facts.moved_to.as_ref().map(ToString::to_string),
            moved_from: facts.moved_from.as_ref().map(ToString::to_string),
            node: facts.node.as_ref().map(ToString::to_string),
            resource: facts.resource.as_ref().map(ToString::to_string),
            count: facts.count,
            ttl_ms: facts.ttl_ms,
            given_sequence: facts.given_sequence,
            given_revision: facts.given_revision.map(|revision| revision.0),
            known_revision: facts.known_revision.map(|revision| revision.0),
            right: facts.right.clone(),
            flaw: facts.flaw.clone(),
        }
    }
}

impl From<pb::Problem> for Problem {
    /// A word of a later version is `Unrecognised`; a fact that cannot be read is left out.
    fn from(problem: pb::Problem) -> Self {
        let known = Code::ALL.iter().copied().find(|code| code.word() == problem.code);
        let code = known.unwrap_or(Code::Unrecognised);
        Self {
            kind: format!("urn:regent:problem:{}", problem.code.to_ascii_lowercase()),
            title: problem.title,
            status: u16::try_from(problem.http_status).unwrap_or(code.status()),
            code,
            detail: problem.detail,
            retry_after_ms: problem.retry_after_ms,
            facts: Box::new(Facts {
                field: problem.field,
                did_you_mean: None,
                group: problem.group.and_then(|group| group.parse().ok()),
                given_term: problem.given_term.and_then(regent_election::Term::new),
                current_term: problem.current_term.and_then(regent_election::Term::new),
                leader: problem.leader.and_then(|leader| leader.parse().ok()),
                cause: words::cause(problem.cause),
                ttl_ms_min: problem.ttl_ms_min,
                ttl_ms_max: problem.ttl_ms_max,
                last_sequence: problem.last_sequence,
                leader_address: problem.leader_address,
                moved_to: problem.moved_to.and_then(|to| to.parse().ok()),
                moved_from: problem.moved_from.and_then(|from| from.parse().ok()),
                node: problem.node.and_then(|node| node.parse().ok()),
                resource: problem.resource.and_then(|resource| resource.parse().ok()),
                count: problem.count,
                ttl_ms: problem.ttl_ms,
                given_sequence: problem.given_sequence,
                given_revision: problem.given_revision.map(regent_election::Revision),
                known_revision: problem.known_revision.map(regent_election::Revision),
                right: problem.right,
                flaw: problem.flaw,
            }),
        }
    }
}

impl From<Problem> for Status {
    fn from(problem: Problem) -> Self {
        let code = grpc_code(problem.code);
        let value = pb::Problem::from(&problem).encode_to_vec();
        let rich = RichStatus {
            code: code as i32,
            message: problem.detail.clone(),
            details: vec![AnyDetail { type_url: PROBLEM_URL.to_owned(), value }],
        };
        let details = Bytes::from(rich.encode_to_vec());
        let mut status = Self::with_details(code, problem.detail, details);
        if let Some(retry_after_ms) = problem.retry_after_ms {
            status.metadata_mut().insert(PUSHBACK, MetadataValue::from(retry_after_ms));
        }
        status
    }
}

/// The problem inside `status`, if a Regent server put one there.
#[must_use]
pub fn problem(status: &Status) -> Option<Problem> {
    let rich = RichStatus::decode(status.details()).ok()?;
    let detail = rich.details.into_iter().find(|detail| detail.type_url == PROBLEM_URL)?;
    pb::Problem::decode(&*detail.value).ok().map(Problem::from)
}

#[cfg(test)]
mod tests {
    use regent_election::{Group, Node, Refusal, Term};

    use super::*;

    #[test]
    fn no_and_perhaps_are_told_apart_by_the_code_of_the_status_too() {
        for code in Code::ALL.iter().chain([&Code::Unrecognised]) {
            let grpc = grpc_code(*code);
            assert_eq!(may_have_happened(grpc), !code.nothing_happened(), "{code} as {grpc:?}");
            assert_ne!(grpc, GrpcCode::Ok);
        }
    }

    #[test]
    fn a_problem_comes_out_of_its_status_as_it_went_in() {
        for code in Code::ALL {
            let problem = Problem::new(*code, "x").retry_after(17).at("ttl_ms");
            let status = Status::from(problem.clone());
            assert_eq!(self::problem(&status), Some(problem));
            assert_eq!(status.metadata().get(PUSHBACK).unwrap(), "17");
        }
        let refused = Problem::from(Refusal::NotLeader {
            group: Group::new("billing").unwrap(),
            given: Term::new(3).unwrap(),
            term: Term::new(5).unwrap(),
            leader: Some(Node::new("web-2").unwrap()),
        });
        assert_eq!(self::problem(&Status::from(refused.clone())), Some(refused));
    }

    #[test]
    fn a_status_from_elsewhere_holds_no_problem() {
        assert_eq!(problem(&Status::unavailable("a proxy gave up")), None);
        let foreign = Bytes::from_static(b"\xff\xff not ours");
        assert_eq!(problem(&Status::with_details(GrpcCode::Unknown, "x", foreign)), None);
    }

    #[test]
    fn a_word_of_a_later_version_is_unrecognised_and_leaves_it_open() {
        let later = pb::Problem { code: "OF_THE_FUTURE".to_owned(), ..pb::Problem::default() };
        let problem = Problem::from(later);
        assert_eq!(problem.code, Code::Unrecognised);
        assert!(!problem.code.nothing_happened());
    }
}
