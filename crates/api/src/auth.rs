//! `/v1/auth/…`: who may do what, and the bearer tokens.

use regent_election::access::{
    AccessTable, Binding, Bindings, NodeRule, Pattern, Principal, Role, TokenId, TokenRecord,
};
use regent_election::store::SharesView;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::{Code, Problem};
use crate::wire;

/// Gives the principals of a pattern one role in some groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BindingBody {
    /// A pattern for principals, in which `*` stands for any run of characters: `node:web-*`, `user:alice`.
    pub who: String,
    /// `observer`, `participant`, `operator` or `administrator`.
    pub role: String,
    /// Patterns for groups. Only `*` reaches what belongs to no group, like the members of the cluster.
    pub groups: Vec<String>,
    /// Under which node names they may stand: `self` is the principal's own, everything else a pattern.
    #[serde(default = "own_name")]
    pub nodes: Vec<String>,
}

fn own_name() -> Vec<String> {
    vec!["self".to_owned()]
}

impl From<&Binding> for BindingBody {
    fn from(binding: &Binding) -> Self {
        Self {
            who: binding.who.to_string(),
            role: binding.role.to_string(),
            groups: binding.groups.iter().map(Pattern::to_string).collect(),
            nodes: binding.nodes.iter().map(NodeRule::to_string).collect(),
        }
    }
}

impl TryFrom<BindingBody> for Binding {
    type Error = Problem;

    fn try_from(body: BindingBody) -> Result<Self, Problem> {
        let wrong = |field: &str, why: String| {
            Problem::new(Code::BadRequest, format!("{field}: {why}")).at(field)
        };
        Ok(Self {
            who: body.who.parse().map_err(|why| wrong("who", format!("{why}")))?,
            role: body.role.parse::<Role>().map_err(|why| wrong("role", format!("{why}")))?,
            groups: each(&body.groups).map_err(|why| wrong("groups", why))?,
            nodes: each(&body.nodes).map_err(|why| wrong("nodes", why))?,
        })
    }
}

fn each<T: std::str::FromStr<Err: std::fmt::Display>>(texts: &[String]) -> Result<Vec<T>, String> {
    texts.iter().map(|text| text.parse().map_err(|why: T::Err| why.to_string())).collect()
}

/// All bindings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BindingsResponse {
    /// Rises by one with every change; 0 if there never was one.
    pub version: u64,
    /// In the order in which they were put.
    pub bindings: Vec<BindingBody>,
}

impl From<&AccessTable> for BindingsResponse {
    fn from(table: &AccessTable) -> Self {
        let bindings = table.bindings();
        let list = bindings.list().iter().map(BindingBody::from).collect();
        Self { version: bindings.version(), bindings: list }
    }
}

impl TryFrom<BindingsResponse> for Bindings {
    type Error = Problem;

    fn try_from(response: BindingsResponse) -> Result<Self, Problem> {
        let list: Result<_, Problem> =
            response.bindings.into_iter().map(Binding::try_from).collect();
        Self::new(response.version, list?)
            .map_err(|why| Problem::new(Code::AccessRefused, why.to_string()))
    }
}

/// Replaces all bindings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PutBindingsRequest {
    /// The version that the change was made from; if there is a later one, nothing is changed.
    pub expected_version: u64,
    /// All of them: what is left out is taken away.
    #[serde(deserialize_with = "wire::object_list")]
    pub bindings: Vec<BindingBody>,
}

impl PutBindingsRequest {
    /// The bindings, checked one by one.
    pub fn bindings(self) -> Result<Vec<Binding>, Problem> {
        self.bindings.into_iter().map(Binding::try_from).collect()
    }
}

/// What one principal takes of the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageBody {
    /// The principal, like `node:web-1`.
    pub principal: String,
    /// What its sessions, and the groups, policies and fences that it made, weigh in memory.
    pub bytes: u64,
}

/// Who takes most of the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageResponse {
    /// The ten that take most, the largest first.
    pub largest: Vec<UsageBody>,
    /// How many principals take anything.
    pub principals: u64,
    /// The most that one of them may take; null means no bound.
    pub bytes_max_each: Option<u64>,
    /// What the whole state weighs, including what is charged to nobody.
    pub state_bytes: u64,
}

impl From<SharesView> for UsageResponse {
    fn from(view: SharesView) -> Self {
        let SharesView { largest, principals, share_bytes_max, state_bytes } = view;
        let body = |(who, bytes): (Principal, u64)| UsageBody { principal: who.to_string(), bytes };
        Self {
            largest: largest.into_iter().map(body).collect(),
            principals,
            bytes_max_each: share_bytes_max,
            state_bytes,
        }
    }
}

/// A bearer token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuthTokenBody {
    /// Its public name, 16 hexadecimal digits.
    pub id: String,
    /// Whom its bearer is.
    pub principal: String,
    /// What people note about it.
    pub label: String,
    /// When it was made, by a wall clock (RFC 3339).
    pub created_at: Option<String>,
    /// When servers begin to refuse it, by their wall clocks (RFC 3339); null means never.
    pub expires_at: Option<String>,
    /// Whether it was revoked.
    pub revoked: bool,
}

impl AuthTokenBody {
    /// What may be seen of a token.
    #[must_use]
    pub fn new(id: TokenId, record: &TokenRecord) -> Self {
        Self {
            id: id.to_string(),
            principal: record.principal.to_string(),
            label: record.label.as_str().to_owned(),
            created_at: time(record.created_ms),
            expires_at: record.expires_ms.and_then(time),
            revoked: record.revoked,
        }
    }
}

fn time(wall_ms: u64) -> Option<String> {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(wall_ms).ok()?).ok()?;
    Some(at.to_string())
}

/// All bearer tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuthTokensResponse {
    /// By their ids.
    pub tokens: Vec<AuthTokenBody>,
}

impl From<&AccessTable> for AuthTokensResponse {
    fn from(table: &AccessTable) -> Self {
        Self { tokens: table.tokens().map(|(id, record)| AuthTokenBody::new(id, record)).collect() }
    }
}

/// Makes a bearer token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAuthTokenRequest {
    /// Whom its bearer shall be: `node:NAME` or `user:NAME`.
    #[serde(with = "wire::text")]
    #[schemars(with = "String")]
    pub principal: Principal,
    /// What people note about it, at most 100 bytes.
    #[serde(default)]
    pub label: String,
    /// For how long servers take it; left out, until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

/// A bearer token with its secret. It can be seen here and nowhere else, ever.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreateAuthTokenResponse {
    /// The whole text, to be kept secret.
    pub bearer_token: String,
    /// What everybody with the right may see of it.
    pub token: AuthTokenBody,
}

impl std::fmt::Debug for CreateAuthTokenResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreateAuthTokenResponse")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

/// Makes a bearer token useless.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeAuthTokenRequest {
    /// Its public name.
    #[serde(with = "wire::text")]
    #[schemars(with = "String")]
    pub id: TokenId,
}
