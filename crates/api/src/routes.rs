//! The one table of routes.
//!
//! The server builds its router from it, so that what is documented is served and what is served is
//! documented; a client takes its addresses from it.

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::problem::Code;
use crate::route::{Method, Operation, Route};
use crate::{
    AcceptRequest, AddMemberRequest, CampaignRequest, CampaignResponse, ClaimsQuery,
    ClaimsResponse, CloseSessionRequest, ClusterResponse, DeleteFenceQuery, DeleteGroupQuery, Done,
    FencesQuery, FencesResponse, GroupResponse, GroupsQuery, GroupsResponse, HealthResponse, Heard,
    HistoryResponse, LeaderQuery, LeaderResponse, MoveGroupRequest, OfferRequest,
    OpenSessionRequest, PromoteMemberRequest, PutGroupRequest, ReadyResponse, RemoveMemberRequest,
    RenewRequest, RenewSessionRequest, ResignRequest, SessionResponse, ShowSessionRequest,
    StepDownRequest, SteppedDown, TokenResponse, TransferClusterRequest, TransferRequest,
    ValidateTokenRequest, ValidateTokenResponse, WarmRequest, WatchManyQuery, WatchQuery,
    WatchResponse, WithdrawRequest,
};

fn of<T: JsonSchema>(to: &mut SchemaGenerator) -> Schema {
    to.subschema_for::<T>()
}

const HOLDING: &[Code] = &[
    Code::NotLeader,
    Code::TenureEnding,
    Code::SessionExpired,
    Code::GroupUnknown,
    Code::GroupEnding,
    Code::RequestTooOld,
    Code::RequestAhead,
    Code::RequestReused,
];
const HANDING_OVER: &[Code] = &[
    Code::NotLeader,
    Code::TenureEnding,
    Code::SessionExpired,
    Code::GroupUnknown,
    Code::GroupEnding,
    Code::SuccessorUnknown,
    Code::SuccessorAmbiguous,
    Code::SuccessorSilent,
    Code::TermsExhausted,
    Code::RequestTooOld,
    Code::RequestAhead,
    Code::RequestReused,
];

const CHANGING_MEMBERS: &[Code] = &[Code::OtherReplicaLeads, Code::MemberRefused];

/// All routes.
pub const ROUTES: &[Route] = &[
    Route::new(
        Method::Post,
        Operation::Campaign,
        "/v1/groups/{group}/campaign",
        "campaign",
        "Wins a vacant office, or says who holds it",
    )
    .takes(of::<CampaignRequest>)
    .answers(of::<CampaignResponse>)
    .may(&[
        Code::NotAllowed,
        Code::GroupUnknown,
        Code::GroupEnding,
        Code::SessionExpired,
        Code::SessionMismatch,
        Code::TtlOutOfBounds,
        Code::Full,
        Code::TermsExhausted,
        Code::RequestTooOld,
        Code::RequestAhead,
        Code::RequestReused,
    ]),
    Route::new(
        Method::Post,
        Operation::Renew,
        "/v1/groups/{group}/renew",
        "renew",
        "Keeps a session alive and proves the tenure of one group",
    )
    .takes(of::<RenewRequest>)
    .answers(of::<Heard>)
    .may(&[
        Code::NotLeader,
        Code::TenureEnding,
        Code::SessionExpired,
        Code::GroupUnknown,
        Code::GroupEnding,
        Code::TtlOutOfBounds,
    ]),
    Route::new(
        Method::Post,
        Operation::Resign,
        "/v1/groups/{group}/resign",
        "resign",
        "Gives the office up; the caller has stopped before it asks",
    )
    .takes(of::<ResignRequest>)
    .answers(of::<Done>)
    .may(HOLDING),
    Route::new(
        Method::Post,
        Operation::Withdraw,
        "/v1/groups/{group}/withdraw",
        "withdraw",
        "Leaves the line, or the office",
    )
    .takes(of::<WithdrawRequest>)
    .answers(of::<Done>)
    .may(HOLDING),
    Route::new(
        Method::Post,
        Operation::Accept,
        "/v1/groups/{group}/accept",
        "accept",
        "A promoted standby accepts its office, and may act once answered",
    )
    .takes(of::<AcceptRequest>)
    .answers(of::<Heard>)
    .may(HOLDING),
    Route::new(
        Method::Post,
        Operation::Offer,
        "/v1/groups/{group}/offer",
        "offer",
        "First step of a hand-over: asks a standby to get warm",
    )
    .takes(of::<OfferRequest>)
    .answers(of::<Done>)
    .may(HANDING_OVER),
    Route::new(
        Method::Post,
        Operation::Warm,
        "/v1/groups/{group}/warm",
        "warm",
        "The standby of an offer says that it is warm",
    )
    .takes(of::<WarmRequest>)
    .answers(of::<Done>)
    .may(&[
        Code::NoOffer,
        Code::NotLeader,
        Code::TenureEnding,
        Code::SessionExpired,
        Code::GroupUnknown,
        Code::GroupEnding,
        Code::RequestTooOld,
        Code::RequestAhead,
        Code::RequestReused,
    ]),
    Route::new(
        Method::Post,
        Operation::Transfer,
        "/v1/groups/{group}/transfer",
        "transfer",
        "Hands the office to a named standby; the caller has stopped before it asks",
    )
    .takes(of::<TransferRequest>)
    .answers(of::<Done>)
    .may(HANDING_OVER),
    Route::new(
        Method::Get,
        Operation::Leader,
        "/v1/groups/{group}/leader",
        "leader",
        "Says who leads; nobody is an answer too",
    )
    .query(of::<LeaderQuery>)
    .answers(of::<LeaderResponse>)
    .may(&[Code::GroupUnknown]),
    Route::new(
        Method::Get,
        Operation::Watch,
        "/v1/groups/{group}/watch",
        "watch",
        "Tells every change of one group after a cursor",
    )
    .query(of::<WatchQuery>)
    .streams(of::<WatchResponse>)
    .may(&[Code::GroupUnknown]),
    Route::new(
        Method::Get,
        Operation::WatchMany,
        "/v1/watch",
        "watchMany",
        "Tells every change of many groups after a cursor",
    )
    .query(of::<WatchManyQuery>)
    .streams(of::<WatchResponse>)
    .may(&[Code::GroupUnknown]),
    Route::new(
        Method::Post,
        Operation::StepDown,
        "/v1/groups/{group}/step-down",
        "stepDown",
        "An administrator ends a tenure, with a reason",
    )
    .takes(of::<StepDownRequest>)
    .answers(of::<SteppedDown>)
    .may(&[
        Code::NobodyLeads,
        Code::GroupUnknown,
        Code::GroupEnding,
        Code::TenureEnding,
        Code::SuccessorUnknown,
        Code::SuccessorAmbiguous,
        Code::SuccessorSilent,
        Code::TermsExhausted,
        Code::RequestTooOld,
        Code::RequestAhead,
        Code::RequestReused,
    ]),
    Route::new(
        Method::Post,
        Operation::MoveGroup,
        "/v1/groups/{group}/move",
        "moveGroup",
        "One step of a group's move between two stores: expect, depart, arrive",
    )
    .takes(of::<MoveGroupRequest>)
    .answers(of::<GroupResponse>)
    .may(&[
        Code::Moved,
        Code::NotExpected,
        Code::StillLed,
        Code::GroupEnding,
        Code::Full,
        Code::RequestTooOld,
        Code::RequestAhead,
        Code::RequestReused,
    ]),
    Route::new(
        Method::Get,
        Operation::History,
        "/v1/groups/{group}/history",
        "history",
        "The last changes of a group and their causes, oldest first",
    )
    .answers(of::<HistoryResponse>)
    .may(&[Code::GroupUnknown]),
    Route::new(
        Method::Get,
        Operation::Token,
        "/v1/groups/{group}/token",
        "token",
        "The current fencing token; signed for its holder, who proves its session by a header",
    )
    .answers(of::<TokenResponse>)
    .may(&[Code::Moved, Code::SessionExpired]),
    Route::new(
        Method::Post,
        Operation::ValidateToken,
        "/v1/groups/{group}/token/validate",
        "validateToken",
        "Whether a term may still write: the current one, or one that a resource's fence admits",
    )
    .takes(of::<ValidateTokenRequest>)
    .answers(of::<ValidateTokenResponse>)
    .may(&[
        Code::StaleTerm,
        Code::TermOver,
        Code::NeverGranted,
        Code::Moved,
        Code::OnItsWay,
        Code::Full,
    ]),
    Route::new(
        Method::Get,
        Operation::ListFences,
        "/v1/groups/{group}/fences",
        "listFences",
        "The resources of a group and the highest term that each has admitted",
    )
    .query(of::<FencesQuery>)
    .answers(of::<FencesResponse>),
    Route::new(
        Method::Delete,
        Operation::DeleteFence,
        "/v1/groups/{group}/fences",
        "deleteFence",
        "Forgets a fence; what it refused stays refused at every resource of the group",
    )
    .query(of::<DeleteFenceQuery>)
    .answers(of::<Done>)
    .may(&[Code::FenceUnknown, Code::Moved, Code::OnItsWay]),
    Route::new(
        Method::Get,
        Operation::Claims,
        "/v1/claims",
        "claims",
        "Who acts under which term, as this server has heard from their heartbeats",
    )
    .query(of::<ClaimsQuery>)
    .answers(of::<ClaimsResponse>),
    Route::new(
        Method::Put,
        Operation::PutGroup,
        "/v1/groups/{group}",
        "putGroup",
        "Creates a group or replaces its policy",
    )
    .takes(of::<PutGroupRequest>)
    .answers(of::<GroupResponse>)
    .may(&[
        Code::PolicyRefused,
        Code::GroupEnding,
        Code::Full,
        Code::RequestTooOld,
        Code::RequestAhead,
        Code::RequestReused,
    ]),
    Route::new(
        Method::Get,
        Operation::ShowGroup,
        "/v1/groups/{group}",
        "showGroup",
        "A group as an operator sees it: leader, policy, line",
    )
    .answers(of::<GroupResponse>)
    .may(&[Code::GroupUnknown]),
    Route::new(
        Method::Delete,
        Operation::DeleteGroup,
        "/v1/groups/{group}",
        "deleteGroup",
        "Deletes a group; its terms never come back",
    )
    .query(of::<DeleteGroupQuery>)
    .answers(of::<SteppedDown>)
    .may(&[
        Code::GroupUnknown,
        Code::GroupEnding,
        Code::RequestTooOld,
        Code::RequestAhead,
        Code::RequestReused,
    ]),
    Route::new(
        Method::Get,
        Operation::ListGroups,
        "/v1/groups",
        "listGroups",
        "Groups in the order of their names, page by page",
    )
    .query(of::<GroupsQuery>)
    .answers(of::<GroupsResponse>),
    Route::new(
        Method::Post,
        Operation::OpenSession,
        "/v1/sessions/open",
        "openSession",
        "Opens a session",
    )
    .takes(of::<OpenSessionRequest>)
    .answers(of::<SessionResponse>)
    .may(&[Code::SessionExpired, Code::SessionMismatch, Code::TtlOutOfBounds, Code::Full]),
    Route::new(
        Method::Post,
        Operation::RenewSession,
        "/v1/sessions/renew",
        "renewSession",
        "Keeps a session and all its tenures alive",
    )
    .takes(of::<RenewSessionRequest>)
    .answers(of::<Heard>)
    .may(&[Code::SessionExpired, Code::HeartbeatNotNewer]),
    Route::new(
        Method::Post,
        Operation::ShowSession,
        "/v1/sessions/show",
        "showSession",
        "Everything a session holds, for its owner",
    )
    .takes(of::<ShowSessionRequest>)
    .answers(of::<SessionResponse>)
    .may(&[Code::SessionExpired]),
    Route::new(
        Method::Post,
        Operation::CloseSession,
        "/v1/sessions/close",
        "closeSession",
        "Ends a session: its tenures end as resigned",
    )
    .takes(of::<CloseSessionRequest>)
    .answers(of::<Done>),
    Route::new(
        Method::Get,
        Operation::ShowCluster,
        "/v1/cluster",
        "showCluster",
        "The replicas of our own store: who is there, who leads the log, how far everybody is",
    )
    .answers(of::<ClusterResponse>),
    Route::new(
        Method::Post,
        Operation::AddMember,
        "/v1/cluster/members/add",
        "addMember",
        "Takes a replica in as a learner: it receives everything and counts for nothing",
    )
    .takes(of::<AddMemberRequest>)
    .answers(of::<Done>)
    .may(CHANGING_MEMBERS),
    Route::new(
        Method::Post,
        Operation::PromoteMember,
        "/v1/cluster/members/promote",
        "promoteMember",
        "Makes a learner that has caught up a voter",
    )
    .takes(of::<PromoteMemberRequest>)
    .answers(of::<Done>)
    .may(CHANGING_MEMBERS),
    Route::new(
        Method::Post,
        Operation::RemoveMember,
        "/v1/cluster/members/remove",
        "removeMember",
        "Removes a replica; its number is never used again",
    )
    .takes(of::<RemoveMemberRequest>)
    .answers(of::<Done>)
    .may(CHANGING_MEMBERS),
    Route::new(
        Method::Post,
        Operation::TransferCluster,
        "/v1/cluster/transfer",
        "transferCluster",
        "Hands the lead of the log to another replica; no leader of any group changes",
    )
    .takes(of::<TransferClusterRequest>)
    .answers(of::<Done>)
    .may(CHANGING_MEMBERS),
    Route::new(
        Method::Get,
        Operation::Backup,
        "/v1/cluster/backup",
        "backup",
        "Groups, policies, terms and settings in one checksummed file; sessions are not in it",
    )
    .shows("application/octet-stream"),
    Route::new(
        Method::Get,
        Operation::Keys,
        "/.well-known/regent-keys",
        "keys",
        "The public keys that sign terms, as a JWK set; empty if this service signs nothing",
    )
    .shows("application/jwk-set+json"),
    Route::new(Method::Get, Operation::Healthz, "/healthz", "healthz", "Whether the process turns")
        .answers(of::<HealthResponse>),
    Route::new(Method::Get, Operation::Readyz, "/readyz", "readyz", "Whether the store serves")
        .answers(of::<ReadyResponse>)
        .may(&[Code::StoreUnavailable, Code::ShuttingDown]),
    Route::new(Method::Get, Operation::Metrics, "/metrics", "metrics", "Numbers for Prometheus")
        .shows("application/openmetrics-text"),
    Route::new(Method::Get, Operation::OpenApi, "/openapi.json", "openapi", "This document")
        .shows("application/json"),
    Route::new(
        Method::Get,
        Operation::Dashboard,
        "/",
        "dashboard",
        "A page that shows who leads what, live",
    )
    .shows("text/html"),
];

const _: () = {
    let mut row = 0;
    while row < ROUTES.len() {
        assert!(ROUTES[row].operation as usize == row, "one row per operation, in the same order");
        row += 1;
    }
    assert!(ROUTES.len() == Operation::Dashboard as usize + 1, "no operation without a row");
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_routes_share_an_id_or_a_method_and_path() {
        let mut ids: Vec<_> = ROUTES.iter().map(|route| route.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ROUTES.len());
        let mut places: Vec<_> = ROUTES.iter().map(|route| (route.path, route.method)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), ROUTES.len());
    }
}
