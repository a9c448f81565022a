//! `/v1/auth/…`: bindings and tokens.

use regent_api::{
    AuthTokenBody, AuthTokensResponse, BindingsResponse, Code, CreateAuthTokenRequest,
    CreateAuthTokenResponse, Done, Problem, PutBindingsRequest, RevokeAuthTokenRequest,
    UsageResponse,
};
use regent_election::access::{BearerToken, TokenId, TokenLabel};
use regent_election::store::NewToken;

use crate::app::{Ask, Call};
use crate::auth;
use crate::reply::{self, Reply};

pub(crate) async fn show(call: Call) -> Reply {
    reply::json(&act_show(&call).await?)
}

pub(crate) async fn act_show(ask: &Ask) -> Result<BindingsResponse, Problem> {
    Ok(BindingsResponse::from(&*ask.read(ask.store().access()).await?))
}

pub(crate) async fn put(call: Call) -> Reply {
    let request = call.body()?;
    reply::json(&act_put(&call, request).await?)
}

pub(crate) async fn act_put(
    ask: &Ask,
    request: PutBindingsRequest,
) -> Result<BindingsResponse, Problem> {
    let (expected, list) = (request.expected_version, request.bindings()?);
    let table = ask.change(ask.store().put_bindings(expected, list)).await?;
    tracing::info!(who = ask.who(), version = table.bindings().version(), "bindings were put");
    Ok(BindingsResponse::from(&*table))
}

pub(crate) async fn usage(call: Call) -> Reply {
    reply::json(&act_usage(&call).await?)
}

pub(crate) async fn act_usage(ask: &Ask) -> Result<UsageResponse, Problem> {
    Ok(ask.read(ask.store().shares()).await?.into())
}

pub(crate) async fn tokens(call: Call) -> Reply {
    reply::json(&act_tokens(&call).await?)
}

pub(crate) async fn act_tokens(ask: &Ask) -> Result<AuthTokensResponse, Problem> {
    Ok(AuthTokensResponse::from(&*ask.read(ask.store().access()).await?))
}

pub(crate) async fn create(call: Call) -> Reply {
    let request = call.body()?;
    reply::json(&act_create(&call, request).await?)
}

pub(crate) async fn act_create(
    ask: &Ask,
    request: CreateAuthTokenRequest,
) -> Result<CreateAuthTokenResponse, Problem> {
    let CreateAuthTokenRequest { principal, label, expires_in_ms } = request;
    let label = TokenLabel::new(&label)
        .map_err(|why| Problem::new(Code::BadRequest, format!("label: {why}")).at("label"))?;
    let token = fresh_token()?;
    let new = NewToken {
        token: token.id,
        digest: auth::digest(&token),
        principal,
        expires_ms: expires_in_ms.map(|ms| auth::wall_ms().saturating_add(ms)),
        label,
    };
    let table = ask.change(ask.store().create_token(new)).await?;
    let record = table.token(token.id).ok_or_else(|| {
        Problem::new(Code::Internal, "the token was made, and is not there; revoke it")
    })?;
    tracing::info!(who = ask.who(), token = %token.id, principal = %record.principal, "a token was made");
    let bearer_token = token.reveal();
    Ok(CreateAuthTokenResponse { bearer_token, token: AuthTokenBody::new(token.id, record) })
}

pub(crate) async fn revoke(call: Call) -> Reply {
    let request = call.body()?;
    reply::json(&act_revoke(&call, request).await?)
}

pub(crate) async fn act_revoke(
    ask: &Ask,
    request: RevokeAuthTokenRequest,
) -> Result<Done, Problem> {
    ask.change(ask.store().revoke_token(request.id)).await?;
    tracing::info!(who = ask.who(), token = %request.id, "a token was revoked");
    Ok(Done::YES)
}

/// A token nobody can guess. Without chance there are no secrets, so that is an error.
fn fresh_token() -> Result<BearerToken, Problem> {
    let (mut id, mut secret) = ([0; 8], [0; 32]);
    getrandom::fill(&mut id).and_then(|()| getrandom::fill(&mut secret)).map_err(|_| {
        Problem::new(Code::StoreUnavailable, "this machine gives no random numbers")
    })?;
    Ok(BearerToken::new(TokenId(u64::from_le_bytes(id)), secret))
}
