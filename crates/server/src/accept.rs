//! `POST /v1/groups/{group}/accept`.

use regent_api::{AcceptRequest, Heard, Problem};
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
    request: AcceptRequest,
) -> Result<Heard, Problem> {
    let AcceptRequest { session_id, term, request_id } = request;
    let heard = ask.change(ask.store().accept(group, session_id, term, request_id)).await?;
    Ok(Heard::from(heard))
}
