//! The wire: HTTP/JSON types of every verb, version 1, and nothing else.
//!
//! One file per verb, named like the verb everywhere else (`campaign.rs` here, in the server, in
//! the client and in the command); verbs that ask alike share one (`tenure.rs`). Fields hold the checked types of `regent-election`, so a value
//! that was decoded is well-formed and a value that is not cannot be sent.
//!
//! - [`routes`] is the one table of routes: the server builds its router from it, [`openapi`] its
//!   document, and a client its addresses.
//! - [`problem`] is every error there is (RFC 9457), each with a stable [`Code`].
//! - [`decode`] turns bytes and query strings into requests, and says what is wrong with them.
//!
//! Requests refuse unknown fields, so that a misspelt `ttl` is not silently ignored. Answers accept
//! them, so that an older client can read a newer server.
//!
//! Only durations travel, as `*_ms` integers: clocks of two machines are never compared. The one
//! absolute time is `at` in a history, a note for people that no program should act on.

pub mod auth;
pub mod campaign;
pub mod claims;
pub mod cluster;
pub mod code;
pub mod decode;
pub mod groups;
#[cfg(feature = "grpc")]
pub mod grpc;
pub mod history;
pub mod leader;
pub mod limits;
pub mod move_group;
pub mod openapi;
mod operation;
pub mod problem;
pub mod process;
mod refusal;
pub mod renew;
mod route;
pub mod routes;
mod schema;
pub mod sessions;
pub mod step_down;
pub mod tenure;
pub mod token;
pub mod watch;
mod wire;
pub mod withdraw;

pub use auth::{
    AuthTokenBody, AuthTokensResponse, BindingBody, BindingsResponse, CreateAuthTokenRequest,
    CreateAuthTokenResponse, PutBindingsRequest, RevokeAuthTokenRequest, UsageBody, UsageResponse,
};
pub use campaign::{CampaignRequest, CampaignResponse};
pub use claims::{BeliefsBody, BelieverBody, ClaimBody, ClaimedBody, ClaimsQuery, ClaimsResponse};
pub use cluster::{
    AddMemberRequest, CallerBody, ClusterMember, ClusterResponse, ClusterTuning, MemberKind,
    PromoteMemberRequest, RemoveMemberRequest, ReplicaRole, ReplicaTimers, TransferClusterRequest,
    TuneMode,
};
pub use groups::{
    DeleteGroupQuery, GroupResponse, GroupsQuery, GroupsResponse, PolicyBody, PriorityRule,
    PutGroupRequest, Standby,
};
pub use history::{Change, HistoryResponse};
pub use leader::{Consistency, LeaderQuery, LeaderResponse, Office};
pub use move_group::{DoorBody, MoveGroupRequest, StepWord};
pub use problem::{Code, Facts, Problem};
pub use process::{HealthResponse, ReadyResponse};
pub use renew::{HeartbeatResponse, RenewRequest};
pub use route::{Face, Gate, Method, Reply, Route, SchemaOf};
pub use routes::{Operation, ROUTES};
pub use sessions::{
    CloseSessionRequest, Disowned, HeartbeatRequest, Offer, OpenSessionRequest, SessionResponse,
    ShowSessionRequest, Tenure,
};
pub use step_down::{StepDownRequest, SteppedDown};
pub use tenure::{Done, HandOverRequest, TenureRequest};
pub use token::{
    DeleteFenceQuery, FenceBody, FencesQuery, FencesResponse, TokenResponse, ValidateTokenRequest,
    ValidateTokenResponse,
};
pub use watch::{
    Bookmark, Closing, Gap, LeaderChanged, Present, Stale, WatchEvent, WatchManyQuery, WatchQuery,
    WatchResponse,
};
pub use withdraw::WithdrawRequest;
