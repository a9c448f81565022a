//! `POST /v1/groups/{group}/resign`.

use regent_api::{Done, Problem, ResignRequest};
use regent_election::Group;

use crate::app::{Ask, Call};
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let (group, request) = (call.group()?, call.body()?);
    reply::json(&act(&call, &group, request).await?)
}

pub(crate) async fn act(ask: &Ask, group: &Group, request: ResignRequest) -> Result<Done, Problem> {
    let ResignRequest { session_id, term, request_id } = request;
    ask.change(ask.store().resign(group, session_id, term, request_id)).await?;
    Ok(Done::YES)
}
