//! `POST /v1/groups/{group}/VERB` of those who lead, stand or take over: each is one call of the store.

use regent_api::{
    Done, HandOverRequest, HeartbeatResponse, Problem, RenewRequest, TenureRequest, WithdrawRequest,
};
use regent_election::Group;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::app::{Ask, Call};
use crate::reply::{self, Reply};

/// Reads a request over HTTP, serves it by `verb` and writes its answer.
pub(crate) async fn answer<R, A, V>(call: Call, verb: V) -> Reply
where
    R: DeserializeOwned,
    A: Serialize,
    V: AsyncFnOnce(&Ask, &Group, R) -> Result<A, Problem>,
{
    let (group, request) = (call.group()?, call.body()?);
    reply::json(&verb(&call, &group, request).await?)
}

pub(crate) async fn renew(
    ask: &Ask,
    group: &Group,
    request: RenewRequest,
) -> Result<HeartbeatResponse, Problem> {
    let RenewRequest { session_id, term, extend_by_ms } = request;
    let heard = ask.change(ask.store().renew(group, session_id, term, extend_by_ms)).await?;
    ask.carries(session_id, heard.ttl_ms);
    Ok(HeartbeatResponse::from(heard))
}

pub(crate) async fn resign(
    ask: &Ask,
    group: &Group,
    request: TenureRequest,
) -> Result<Done, Problem> {
    let TenureRequest { session_id, term, request_id } = request;
    ask.change(ask.store().resign(group, session_id, term, request_id)).await?;
    Ok(Done::YES)
}

pub(crate) async fn withdraw(
    ask: &Ask,
    group: &Group,
    request: WithdrawRequest,
) -> Result<Done, Problem> {
    let WithdrawRequest { session_id, request_id } = request;
    ask.change(ask.store().withdraw(group, session_id, request_id)).await?;
    Ok(Done::YES)
}

pub(crate) async fn accept(
    ask: &Ask,
    group: &Group,
    request: TenureRequest,
) -> Result<HeartbeatResponse, Problem> {
    let TenureRequest { session_id, term, request_id } = request;
    let heard = ask.change(ask.store().accept(group, session_id, term, request_id)).await?;
    ask.carries(session_id, heard.ttl_ms);
    Ok(HeartbeatResponse::from(heard))
}

pub(crate) async fn offer(
    ask: &Ask,
    group: &Group,
    request: HandOverRequest,
) -> Result<Done, Problem> {
    let HandOverRequest { session_id, term, to, request_id } = request;
    ask.change(ask.store().offer(group, session_id, term, &to, request_id)).await?;
    Ok(Done::YES)
}

pub(crate) async fn warm(
    ask: &Ask,
    group: &Group,
    request: TenureRequest,
) -> Result<Done, Problem> {
    let TenureRequest { session_id, term, request_id } = request;
    ask.change(ask.store().warm(group, session_id, term, request_id)).await?;
    Ok(Done::YES)
}

pub(crate) async fn transfer(
    ask: &Ask,
    group: &Group,
    request: HandOverRequest,
) -> Result<Done, Problem> {
    let HandOverRequest { session_id, term, to, request_id } = request;
    ask.change(ask.store().transfer(group, session_id, term, &to, request_id)).await?;
    Ok(Done::YES)
}
