//! `POST /v1/groups/{group}/warm`.

use regent_api::{Done, Problem, WarmRequest};
use regent_election::Group;

use crate::app::{Ask, Call};
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let (group, request) = (call.group()?, call.body()?);
    reply::json(&act(&call, &group, request).await?)
}

pub(crate) async fn act(ask: &Ask, group: &Group, request: WarmRequest) -> Result<Done, Problem> {
    let WarmRequest { session_id, term, request_id } = request;
    ask.change(ask.store().warm(group, session_id, term, request_id)).await?;
    Ok(Done::YES)
}
