//! The one table of routes.
//!
//! The server builds its router from it, so that what is documented is served and what is served is
//! documented; a client takes its addresses from it.

use regent_election::access::Right::{Administer, Observe, Operate, Stand};
use schemars::{JsonSchema, Schema, SchemaGenerator};

pub use crate::operation::Operation;
use crate::problem::Code;
use crate::route::Gate::{Needs, Open};
use crate::route::{Face, Method, Route};
use crate::{
    AddMemberRequest, AuthTokensResponse, BindingsResponse, CampaignRequest, CampaignResponse,
    ClaimsQuery, ClaimsResponse, CloseSessionRequest, ClusterResponse, CreateAuthTokenRequest,
    CreateAuthTokenResponse, DeleteFenceQuery, DeleteGroupQuery, Done, FencesQuery, FencesResponse,
    GroupResponse, GroupsQuery, GroupsResponse, HandOverRequest, HealthResponse, HeartbeatRequest,
    HeartbeatResponse, HistoryResponse, LeaderQuery, LeaderResponse, MoveGroupRequest,
    OpenSessionRequest, PromoteMemberRequest, PutBindingsRequest, PutGroupRequest, ReadyResponse,
    RemoveMemberRequest, RenewRequest, RevokeAuthTokenRequest, SessionResponse, ShowSessionRequest,
    StepDownRequest, SteppedDown, TenureRequest, TokenResponse, TransferClusterRequest,
    UsageResponse, ValidateTokenRequest, ValidateTokenResponse, WatchManyQuery, WatchQuery,
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
    Route::post(
        Operation::Campaign, Needs(Stand),
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
    Route::post(
        Operation::Renew, Needs(Stand),
        "/v1/groups/{group}/renew",
        "renew",
        "Keeps a session alive and proves the tenure of one group",
    )
    .takes(of::<RenewRequest>)
    .answers(of::<HeartbeatResponse>)
    .may(&[
        Code::NotLeader,
        Code::TenureEnding,
        Code::SessionExpired,
        Code::GroupUnknown,
        Code::GroupEnding,
        Code::TtlOutOfBounds,
    ]),
    Route::post(
        Operation::Resign, Needs(Stand),
        "/v1/groups/{group}/resign",
        "resign",
        "Gives the office up; the caller has stopped before it asks",
    )
    .gives_up()
    .takes(of::<TenureRequest>)
    .answers(of::<Done>)
    .may(HOLDING),
    Route::post(
        Operation::Withdraw, Needs(Stand),
        "/v1/groups/{group}/withdraw",
        "withdraw",
        "Leaves the line, or the office",
    )
    .gives_up()
    .takes(of::<WithdrawRequest>)
    .answers(of::<Done>)
    .may(HOLDING),
    Route::post(
        Operation::Accept, Needs(Stand),
        "/v1/groups/{group}/accept",
        "accept",
        "A promoted standby accepts its office, and may act once answered",
    )
    .takes(of::<TenureRequest>)
    .answers(of::<HeartbeatResponse>)
    .may(HOLDING),
    Route::post(
        Operation::Offer, Needs(Stand),
        "/v1/groups/{group}/offer",
        "offer",
        "First step of a hand-over: asks a standby to get warm",
    )
    .takes(of::<HandOverRequest>)
    .answers(of::<Done>)
    .may(HANDING_OVER),
    Route::post(
        Operation::Warm, Needs(Stand),
        "/v1/groups/{group}/warm",
        "warm",
        "The standby of an offer says that it is warm",
    )
    .takes(of::<TenureRequest>)
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
    Route::post(
        Operation::Transfer, Needs(Stand),
        "/v1/groups/{group}/transfer",
        "transfer",
        "Hands the office to a named standby; the caller has stopped before it asks",
    )
    .takes(of::<HandOverRequest>)
    .answers(of::<Done>)
    .may(HANDING_OVER),
    Route::get(
        Operation::Leader, Needs(Observe),
        "/v1/groups/{group}/leader",
        "leader",
        "Says who leads; nobody is an answer too",
    )
    .query(of::<LeaderQuery>)
    .answers(of::<LeaderResponse>)
    .may(&[Code::GroupUnknown]),
    Route::get(
        Operation::Watch, Needs(Observe),
        "/v1/groups/{group}/watch",
        "watch",
        "Tells every change of one group after a cursor",
    )
    .query(of::<WatchQuery>)
    .streams(of::<WatchResponse>)
    .may(&[Code::GroupUnknown]),
    Route::get(
        Operation::WatchMany, Needs(Observe),
        "/v1/watch",
        "watchMany",
        "Tells every change of many groups after a cursor",
    )
    .query(of::<WatchManyQuery>)
    .streams(of::<WatchResponse>)
    .may(&[Code::GroupUnknown]),
    Route::post(
        Operation::StepDown, Needs(Operate),
        "/v1/groups/{group}/step-down",
        "stepDown",
        "An administrator ends a tenure, with a reason",
    )
    .takes(of::<StepDownRequest>)
    .answers(of::<SteppedDown>)
    .may(&[
        Code::SecondApprovalNeeded,
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
    Route::post(
        Operation::MoveGroup, Needs(Administer),
        "/v1/groups/{group}/move",
        "moveGroup",
        "One step of a group's move between two stores (expect, depart, arrive) or of its recovery (stop, resume)",
    )
    .takes(of::<MoveGroupRequest>)
    .answers(of::<GroupResponse>)
    .may(&[
        Code::SecondApprovalNeeded,
        Code::Moved,
        Code::NotExpected,
        Code::GroupStopped,
        Code::StillLed,
        Code::GroupEnding,
        Code::Full,
        Code::RequestTooOld,
        Code::RequestAhead,
        Code::RequestReused,
    ]),
    Route::get(
        Operation::History, Needs(Observe),
        "/v1/groups/{group}/history",
        "history",
        "The last changes of a group and their causes, oldest first",
    )
    .answers(of::<HistoryResponse>)
    .may(&[Code::GroupUnknown]),
    Route::get(
        Operation::Token, Needs(Observe),
        "/v1/groups/{group}/token",
        "token",
        "The current fencing token; signed for its holder, who proves its session by a header",
    )
    .answers(of::<TokenResponse>)
    .may(&[Code::Moved, Code::SessionExpired]),
    Route::post(
        Operation::ValidateToken, Needs(Stand),
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
    Route::get(
        Operation::ListFences, Needs(Observe),
        "/v1/groups/{group}/fences",
        "listFences",
        "The resources of a group and the highest term that each has admitted",
    )
    .query(of::<FencesQuery>)
    .answers(of::<FencesResponse>),
    Route::new(
        Method::Delete,
        Operation::DeleteFence, Needs(Operate),
        "/v1/groups/{group}/fences",
        "deleteFence",
        "Forgets a fence; what it refused stays refused at every resource of the group",
    )
    .query(of::<DeleteFenceQuery>)
    .answers(of::<Done>)
    .may(&[Code::FenceUnknown, Code::Moved, Code::OnItsWay]),
    Route::get(
        Operation::Claims, Needs(Observe),
        "/v1/claims",
        "claims",
        "Who acts under which term, as this server has heard from their heartbeats",
    )
    .query(of::<ClaimsQuery>)
    .answers(of::<ClaimsResponse>),
    Route::new(
        Method::Put,
        Operation::PutGroup, Needs(Operate),
        "/v1/groups/{group}",
        "putGroup",
        "Creates a group or replaces its policy",
    )
    .takes(of::<PutGroupRequest>)
    .answers(of::<GroupResponse>)
    .may(&[
        Code::SecondApprovalNeeded,
        Code::PolicyRefused,
        Code::GroupEnding,
        Code::Full,
        Code::RequestTooOld,
        Code::RequestAhead,
        Code::RequestReused,
    ]),
    Route::get(
        Operation::ShowGroup, Needs(Observe),
        "/v1/groups/{group}",
        "showGroup",
        "A group as an operator sees it: leader, policy, line",
    )
    .answers(of::<GroupResponse>)
    .may(&[Code::GroupUnknown]),
    Route::new(
        Method::Delete,
        Operation::DeleteGroup, Needs(Operate),
        "/v1/groups/{group}",
        "deleteGroup",
        "Deletes a group; its terms never come back",
    )
    .query(of::<DeleteGroupQuery>)
    .answers(of::<SteppedDown>)
    .may(&[
        Code::SecondApprovalNeeded,
        Code::GroupUnknown,
        Code::GroupEnding,
        Code::GroupStopped,
        Code::RequestTooOld,
        Code::RequestAhead,
        Code::RequestReused,
    ]),
    Route::get(
        Operation::ListGroups, Needs(Observe),
        "/v1/groups",
        "listGroups",
        "Groups in the order of their names, page by page",
    )
    .query(of::<GroupsQuery>)
    .answers(of::<GroupsResponse>),
    Route::post(
        Operation::OpenSession, Needs(Stand),
        "/v1/sessions/open",
        "openSession",
        "Opens a session",
    )
    .takes(of::<OpenSessionRequest>)
    .answers(of::<SessionResponse>)
    .may(&[Code::SessionExpired, Code::SessionMismatch, Code::TtlOutOfBounds, Code::Full]),
    Route::post(
        Operation::Heartbeat, Needs(Stand),
        "/v1/sessions/heartbeat",
        "heartbeat",
        "Keeps a session and all its tenures alive",
    )
    .takes(of::<HeartbeatRequest>)
    .answers(of::<HeartbeatResponse>)
    .may(&[Code::SessionExpired, Code::HeartbeatNotNewer]),
    Route::post(
        Operation::ShowSession, Needs(Stand),
        "/v1/sessions/show",
        "showSession",
        "Everything a session holds, for its owner",
    )
    .takes(of::<ShowSessionRequest>)
    .answers(of::<SessionResponse>)
    .only_reads()
    .may(&[Code::SessionExpired]),
    Route::post(
        Operation::CloseSession, Needs(Stand),
        "/v1/sessions/close",
        "closeSession",
        "Ends a session: its tenures end as resigned",
    )
    .gives_up()
    .takes(of::<CloseSessionRequest>)
    .answers(of::<Done>),
    Route::get(
        Operation::ShowCluster, Needs(Observe),
        "/v1/cluster",
        "showCluster",
        "The replicas of our own store: who is there, who leads the log, how far everybody is",
    )
    .answers(of::<ClusterResponse>),
    Route::post(
        Operation::AddMember, Needs(Administer),
        "/v1/cluster/members/add",
        "addMember",
        "Takes a replica in as a learner: it receives everything and counts for nothing",
    )
    .takes(of::<AddMemberRequest>)
    .answers(of::<Done>)
    .may(CHANGING_MEMBERS),
    Route::post(
        Operation::PromoteMember, Needs(Administer),
        "/v1/cluster/members/promote",
        "promoteMember",
        "Makes a learner that has caught up a voter",
    )
    .takes(of::<PromoteMemberRequest>)
    .answers(of::<Done>)
    .may(CHANGING_MEMBERS),
    Route::post(
        Operation::RemoveMember, Needs(Administer),
        "/v1/cluster/members/remove",
        "removeMember",
        "Removes a replica; its number is never used again",
    )
    .takes(of::<RemoveMemberRequest>)
    .answers(of::<Done>)
    .may(CHANGING_MEMBERS),
    Route::post(
        Operation::TransferCluster, Needs(Administer),
        "/v1/cluster/transfer",
        "transferCluster",
        "Hands the lead of the log to another replica; no leader of any group changes",
    )
    .takes(of::<TransferClusterRequest>)
    .answers(of::<Done>)
    .may(CHANGING_MEMBERS),
    Route::get(
        Operation::Backup, Needs(Administer),
        "/v1/cluster/backup",
        "backup",
        "Groups, policies, terms and settings in one checksummed file; sessions are not in it",
    )
    .shows("application/octet-stream"),
    Route::get(
        Operation::ShowBindings, Needs(Administer),
        "/v1/auth/bindings",
        "showBindings",
        "Which principals have which role in which groups",
    )
    .answers(of::<BindingsResponse>),
    Route::new(
        Method::Put,
        Operation::PutBindings, Needs(Administer),
        "/v1/auth/bindings",
        "putBindings",
        "Replaces all bindings, if they are still at the version that was read",
    )
    .takes(of::<PutBindingsRequest>)
    .answers(of::<BindingsResponse>)
    .may(&[Code::BindingsChanged, Code::AccessRefused]),
    Route::get(
        Operation::ShowUsage, Needs(Administer),
        "/v1/auth/usage",
        "showUsage",
        "Which principals take most of the state, and how much one may take",
    )
    .answers(of::<UsageResponse>),
    Route::get(
        Operation::ListAuthTokens, Needs(Administer),
        "/v1/auth/tokens",
        "listAuthTokens",
        "All bearer tokens, without their secrets",
    )
    .answers(of::<AuthTokensResponse>),
    Route::post(
        Operation::CreateAuthToken, Needs(Administer),
        "/v1/auth/tokens/create",
        "createAuthToken",
        "Makes a bearer token; its secret is in this answer and nowhere else",
    )
    .takes(of::<CreateAuthTokenRequest>)
    .answers(of::<CreateAuthTokenResponse>)
    .may(&[Code::AccessRefused, Code::AuthTokenExists, Code::Full]),
    Route::post(
        Operation::RevokeAuthToken, Needs(Administer),
        "/v1/auth/tokens/revoke",
        "revokeAuthToken",
        "Makes a bearer token useless, but for giving up what its bearer holds",
    )
    .takes(of::<RevokeAuthTokenRequest>)
    .answers(of::<Done>)
    .may(&[Code::AuthTokenUnknown]),
    Route::get(
        Operation::Keys, Open,
        "/.well-known/regent-keys",
        "keys",
        "The public keys that sign terms, as a JWK set; empty if this service signs nothing",
    )
    .face(Face::HttpOnly("JOSE libraries fetch keys by HTTP"))
    .shows("application/jwk-set+json"),
    Route::get(Operation::Healthz, Open, "/healthz", "healthz", "Whether the process turns")
        .face(Face::HealthOfAll)
        .answers(of::<HealthResponse>),
    Route::get(Operation::Livez, Open, "/livez", "livez", "The same as /healthz")
        .face(Face::HttpOnly("it is /healthz by another name"))
        .answers(of::<HealthResponse>),
    Route::get(Operation::Readyz, Open, "/readyz", "readyz", "Whether the store serves")
        .face(Face::HealthOfService)
        .answers(of::<ReadyResponse>)
        .may(&[Code::StoreUnavailable, Code::ShuttingDown]),
    Route::get(Operation::Metrics, Needs(Observe), "/metrics", "metrics", "Numbers for Prometheus")
        .tells_all()
        .face(Face::HttpOnly("its readers scrape text over HTTP"))
        .shows("application/openmetrics-text"),
    Route::get(Operation::OpenApi, Needs(Observe), "/openapi.json", "openapi", "This document")
        .face(Face::Reflection)
        .shows("application/json"),
    Route::get(
        Operation::Dashboard, Needs(Observe),
        "/",
        "dashboard",
        "A page that shows who leads what, live",
    )
    .face(Face::HttpOnly("it is a page for browsers"))
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

    /// What is open is listed here and nowhere else; everything else needs a right.
    #[test]
    fn only_health_and_public_keys_are_open() {
        let open = ROUTES.iter().filter(|route| route.gate == Open);
        let ids: Vec<_> = open.map(|route| route.id).collect();
        assert_eq!(ids, ["keys", "healthz", "livez", "readyz"]);
    }

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
