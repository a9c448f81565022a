//! `POST /v1/groups/{group}/withdraw`.

use regent_api::{Done, Problem, WithdrawRequest};
use regent_election::Group;

use crate::app::{Ask, Call};
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let (group, request) = (call.group()?, call.body()?);
    reply::json(&act(&call, &group, request).await?)
}

pub(crate) async fn act(
    ask: &Ask,
    group: &Group,
    request: WithdrawRequest,
) -> Result<Done, Problem> {
    let WithdrawRequest { session_id, request_id } = request;
    ask.change(ask.store().withdraw(group, session_id, request_id)).await?;
    Ok(Done::YES)
}
