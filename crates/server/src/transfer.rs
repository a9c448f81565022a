//! `POST /v1/groups/{group}/transfer`.

use regent_api::{Done, Problem, TransferRequest};
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
    request: TransferRequest,
) -> Result<Done, Problem> {
    let TransferRequest { session_id, term, to, request_id } = request;
    ask.change(ask.store().transfer(group, session_id, term, &to, request_id)).await?;
    Ok(Done::YES)
}
