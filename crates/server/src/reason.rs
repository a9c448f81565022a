//! Why a renewal failed, as the label of a metric.

use regent_api::Code;

/// The reasons that are counted from the first scrape on: those of leaders that lose their office.
pub(crate) const RENEW_REASONS: [&str; 4] =
    ["NOT_LEADER", "SESSION_EXPIRED", "BACKEND_DOWN", "TIMEOUT"];

/// The reason of a failed renewal, as its readers know it.
pub(crate) const fn renew_reason(code: Code) -> &'static str {
    match code {
        Code::StoreUnavailable | Code::ShuttingDown | Code::StoreCorrupt => "BACKEND_DOWN",
        Code::Uncertain | Code::RequestTimeout => "TIMEOUT",
        Code::BadRequest
        | Code::Unauthenticated
        | Code::CredentialOver
        | Code::Forbidden
        | Code::SessionOfAnother
        | Code::AuthTokenUnknown
        | Code::AuthTokenExists
        | Code::SecondApprovalNeeded
        | Code::BindingsChanged
        | Code::AccessRefused
        | Code::CrossOrigin
        | Code::NotAllowed
        | Code::NotFound
        | Code::GroupUnknown
        | Code::MethodNotAllowed
        | Code::NotLeader
        | Code::TenureEnding
        | Code::SessionMismatch
        | Code::HeartbeatNotNewer
        | Code::GroupEnding
        | Code::Moved
        | Code::OnItsWay
        | Code::NotExpected
        | Code::GroupStopped
        | Code::StillLed
        | Code::StaleTerm
        | Code::TermOver
        | Code::NeverGranted
        | Code::FenceUnknown
        | Code::TermMissing
        | Code::TokenRefused
        | Code::UpstreamUnavailable
        | Code::FenceClosed
        | Code::NobodyLeads
        | Code::Full
        | Code::SuccessorUnknown
        | Code::SuccessorAmbiguous
        | Code::SuccessorSilent
        | Code::NoOffer
        | Code::RequestTooOld
        | Code::RequestAhead
        | Code::RequestReused
        | Code::TermsExhausted
        | Code::OtherReplicaLeads
        | Code::MemberRefused
        | Code::SessionExpired
        | Code::PayloadTooLarge
        | Code::UnsupportedMediaType
        | Code::TtlOutOfBounds
        | Code::PolicyRefused
        | Code::RateLimited
        | Code::Internal
        | Code::Unsupported
        | Code::Unrecognised => code.word(),
    }
}
