//! `POST /v1/groups/{group}/offer`.

use regent_api::{Done, OfferRequest, Problem};
use regent_election::Group;

use crate::app::{Ask, Call};
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let (group, request) = (call.group()?, call.body()?);
    reply::json(&act(&call, &group, request).await?)
}

pub(crate) async fn act(ask: &Ask, group: &Group, request: OfferRequest) -> Result<Done, Problem> {
    let OfferRequest { session_id, term, to, request_id } = request;
    ask.change(ask.store().offer(group, session_id, term, &to, request_id)).await?;
    Ok(Done::YES)
}
