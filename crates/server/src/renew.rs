//! `POST /v1/groups/{group}/renew`.

use regent_api::{Heard, Problem, RenewRequest};
use regent_election::Group;

use crate::app::{Ask, Call};
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let (group, request) = (call.group()?, call.body()?);
    reply::json(&act(&call, &group, request).await?)
}

pub(crate) async fn act(ask: &Ask, group: &Group, request: RenewRequest) -> Result<Heard, Problem> {
    let RenewRequest { session_id, term, extend_by_ms } = request;
    let heard = ask.change(ask.store().renew(group, session_id, term, extend_by_ms)).await?;
    Ok(Heard::from(heard))
}
