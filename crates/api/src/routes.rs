//! The one table of routes.
//!
//! The server builds its router from it, so that what is documented is served and what is served is
//! documented; a client takes its addresses from it.

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::problem::Code;
use crate::route::{Face, Method, Route};
use crate::{
    AddMemberRequest, CampaignRequest, CampaignResponse, ClaimsQuery, ClaimsResponse,
    CloseSessionRequest, ClusterResponse, DeleteFenceQuery, DeleteGroupQuery, Done, FencesQuery,
    FencesResponse, GroupResponse, GroupsQuery, GroupsResponse, HandOverRequest, HealthResponse,
    HeartbeatRequest, HeartbeatResponse, HistoryResponse, LeaderQuery, LeaderResponse,
    MoveGroupRequest, OpenSessionRequest, PromoteMemberRequest, PutGroupRequest, ReadyResponse,
    RemoveMemberRequest, RenewRequest, SessionResponse, ShowSessionRequest, StepDownRequest,
    SteppedDown, TenureRequest, TokenResponse, TransferClusterRequest, ValidateTokenRequest,
    ValidateTokenResponse, WatchManyQuery, WatchQuery, WatchResponse, WithdrawRequest,
};

/// What a route does. Matching on it in full is how the server knows that it forgot none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Wins a vacant office or says who holds it.
    Campaign,
    /// Keeps a session alive and proves a tenure.
    Renew,
    /// Gives an office up.
    Resign,
    /// Leaves the line or the office.
    Withdraw,
    /// A promoted standby accepts.
    Accept,
    /// A leader asks a standby to get warm.
    Offer,
    /// A standby says that it is warm.
    Warm,
    /// Hands an office over.
    Transfer,
    /// Says who leads.
    Leader,
    /// Watches one group.
    Watch,
    /// Watches many groups.
    WatchMany,
    /// An administrator ends a tenure.
    StepDown,
    /// One step of a group's move between two stores.
    MoveGroup,
    /// The last changes of a group.
    History,
    /// The current fencing token.
    Token,
    /// Judges a token, and raises a fence.
    ValidateToken,
    ListFences,
    /// Forgets a fence.
    DeleteFence,
    /// Who acts, as far as this server has heard.
    Claims,
    /// Creates a group or replaces its policy.
    PutGroup,
    /// Shows a group.
    ShowGroup,
    /// Deletes a group.
    DeleteGroup,
    ListGroups,
    /// Opens a session.
    OpenSession,
    /// Keeps a session alive.
    Heartbeat,
    /// Shows a session to its owner.
    ShowSession,
    /// Ends a session.
    CloseSession,
    /// Shows the replicas of our own store.
    ShowCluster,
    /// Takes a replica in as a learner.
    AddMember,
    /// Makes a learner a voter.
    PromoteMember,
    /// Removes a replica.
    RemoveMember,
    /// Hands the lead of the log over.
    TransferCluster,
    /// Everything that must outlive the machines, in one file.
    Backup,
    /// The public keys that sign terms.
    Keys,
    /// Whether the process turns.
    Healthz,
    /// Whether the store serves.
    Readyz,
    /// Numbers for Prometheus.
    Metrics,
    /// This table as an OpenAPI document.
    OpenApi,
    /// A page for people.
    Dashboard,
}

impl Operation {
    /// Its row of the table.
    #[must_use]
    pub fn route(self) -> &'static Route {
        // The table has one row per operation in the same order; the compiler checked it.
        &ROUTES[self as usize]
    }
}

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
    Route::post(
        Operation::Renew,
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
        Operation::Resign,
        "/v1/groups/{group}/resign",
        "resign",
        "Gives the office up; the caller has stopped before it asks",
    )
    .takes(of::<TenureRequest>)
    .answers(of::<Done>)
    .may(HOLDING),
    Route::post(
        Operation::Withdraw,
        "/v1/groups/{group}/withdraw",
        "withdraw",
        "Leaves the line, or the office",
    )
    .takes(of::<WithdrawRequest>)
    .answers(of::<Done>)
    .may(HOLDING),
    Route::post(
        Operation::Accept,
        "/v1/groups/{group}/accept",
        "accept",
        "A promoted standby accepts its office, and may act once answered",
    )
    .takes(of::<TenureRequest>)
    .answers(of::<HeartbeatResponse>)
    .may(HOLDING),
    Route::post(
        Operation::Offer,
        "/v1/groups/{group}/offer",
        "offer",
        "First step of a hand-over: asks a standby to get warm",
    )
    .takes(of::<HandOverRequest>)
    .answers(of::<Done>)
    .may(HANDING_OVER),
    Route::post(
        Operation::Warm,
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
        Operation::Transfer,
        "/v1/groups/{group}/transfer",
        "transfer",
        "Hands the office to a named standby; the caller has stopped before it asks",
    )
    .takes(of::<HandOverRequest>)
    .answers(of::<Done>)
    .may(HANDING_OVER),
    Route::get(
        Operation::Leader,
        "/v1/groups/{group}/leader",
        "leader",
        "Says who leads; nobody is an answer too",
    )
    .query(of::<LeaderQuery>)
    .answers(of::<LeaderResponse>)
    .may(&[Code::GroupUnknown]),
    Route::get(
        Operation::Watch,
        "/v1/groups/{group}/watch",
        "watch",
        "Tells every change of one group after a cursor",
    )
    .query(of::<WatchQuery>)
    .streams(of::<WatchResponse>)
    .may(&[Code::GroupUnknown]),
    Route::get(
        Operation::WatchMany,
        "/v1/watch",
        "watchMany",
        "Tells every change of many groups after a cursor",
    )
    .query(of::<WatchManyQuery>)
    .streams(of::<WatchResponse>)
    .may(&[Code::GroupUnknown]),
    Route::post(
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
    Route::post(
        Operation::MoveGroup,
        "/v1/groups/{group}/move",
        "moveGroup",
        "One step of a group's move between two stores (expect, depart, arrive) or of its recovery (stop, resume)",
    )
    .takes(of::<MoveGroupRequest>)
    .answers(of::<GroupResponse>)
    .may(&[
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
        Operation::History,
        "/v1/groups/{group}/history",
        "history",
        "The last changes of a group and their causes, oldest first",
    )
    .answers(of::<HistoryResponse>)
    .may(&[Code::GroupUnknown]),
    Route::get(
        Operation::Token,
        "/v1/groups/{group}/token",
        "token",
        "The current fencing token; signed for its holder, who proves its session by a header",
    )
    .answers(of::<TokenResponse>)
    .may(&[Code::Moved, Code::SessionExpired]),
    Route::post(
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
    Route::get(
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
    Route::get(
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
    Route::get(
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
        Code::GroupStopped,
        Code::RequestTooOld,
        Code::RequestAhead,
        Code::RequestReused,
    ]),
    Route::get(
        Operation::ListGroups,
        "/v1/groups",
        "listGroups",
        "Groups in the order of their names, page by page",
    )
    .query(of::<GroupsQuery>)
    .answers(of::<GroupsResponse>),
    Route::post(
        Operation::OpenSession,
        "/v1/sessions/open",
        "openSession",
        "Opens a session",
    )
    .takes(of::<OpenSessionRequest>)
    .answers(of::<SessionResponse>)
    .may(&[Code::SessionExpired, Code::SessionMismatch, Code::TtlOutOfBounds, Code::Full]),
    Route::post(
        Operation::Heartbeat,
        "/v1/sessions/heartbeat",
        "heartbeat",
        "Keeps a session and all its tenures alive",
    )
    .takes(of::<HeartbeatRequest>)
    .answers(of::<HeartbeatResponse>)
    .may(&[Code::SessionExpired, Code::HeartbeatNotNewer]),
    Route::post(
        Operation::ShowSession,
        "/v1/sessions/show",
        "showSession",
        "Everything a session holds, for its owner",
    )
    .takes(of::<ShowSessionRequest>)
    .answers(of::<SessionResponse>)
    .only_reads()
    .may(&[Code::SessionExpired]),
    Route::post(
        Operation::CloseSession,
        "/v1/sessions/close",
        "closeSession",
        "Ends a session: its tenures end as resigned",
    )
    .takes(of::<CloseSessionRequest>)
    .answers(of::<Done>),
    Route::get(
        Operation::ShowCluster,
        "/v1/cluster",
        "showCluster",
        "The replicas of our own store: who is there, who leads the log, how far everybody is",
    )
    .answers(of::<ClusterResponse>),
    Route::post(
        Operation::AddMember,
        "/v1/cluster/members/add",
        "addMember",
        "Takes a replica in as a learner: it receives everything and counts for nothing",
    )
    .takes(of::<AddMemberRequest>)
    .answers(of::<Done>)
    .may(CHANGING_MEMBERS),
    Route::post(
        Operation::PromoteMember,
        "/v1/cluster/members/promote",
        "promoteMember",
        "Makes a learner that has caught up a voter",
    )
    .takes(of::<PromoteMemberRequest>)
    .answers(of::<Done>)
    .may(CHANGING_MEMBERS),
    Route::post(
        Operation::RemoveMember,
        "/v1/cluster/members/remove",
        "removeMember",
        "Removes a replica; its number is never used again",
    )
    .takes(of::<RemoveMemberRequest>)
    .answers(of::<Done>)
    .may(CHANGING_MEMBERS),
    Route::post(
        Operation::TransferCluster,
        "/v1/cluster/transfer",
        "transferCluster",
        "Hands the lead of the log to another replica; no leader of any group changes",
    )
    .takes(of::<TransferClusterRequest>)
    .answers(of::<Done>)
    .may(CHANGING_MEMBERS),
    Route::get(
        Operation::Backup,
        "/v1/cluster/backup",
        "backup",
        "Groups, policies, terms and settings in one checksummed file; sessions are not in it",
    )
    .shows("application/octet-stream"),
    Route::get(
        Operation::Keys,
        "/.well-known/regent-keys",
        "keys",
        "The public keys that sign terms, as a JWK set; empty if this service signs nothing",
    )
    .face(Face::HttpOnly("JOSE libraries fetch keys by HTTP"))
    .shows("application/jwk-set+json"),
    Route::get(Operation::Healthz, "/healthz", "healthz", "Whether the process turns")
        .face(Face::HealthOfAll)
        .answers(of::<HealthResponse>),
    Route::get(Operation::Readyz, "/readyz", "readyz", "Whether the store serves")
        .face(Face::HealthOfService)
        .answers(of::<ReadyResponse>)
        .may(&[Code::StoreUnavailable, Code::ShuttingDown]),
    Route::get(Operation::Metrics, "/metrics", "metrics", "Numbers for Prometheus")
        .face(Face::HttpOnly("its readers scrape text over HTTP"))
        .shows("application/openmetrics-text"),
    Route::get(Operation::OpenApi, "/openapi.json", "openapi", "This document")
        .face(Face::Reflection)
        .shows("application/json"),
    Route::get(
        Operation::Dashboard,
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
