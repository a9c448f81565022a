//! `GET /v1/groups/{group}/history`.

use regent_api::{Change, HistoryResponse, Problem};
use regent_election::Group;

use crate::app::{Ask, Call};
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let group = call.group()?;
    reply::json(&act(&call, group).await?)
}

pub(crate) async fn act(ask: &Ask, group: Group) -> Result<HistoryResponse, Problem> {
    let changes = ask.read(ask.store().history(&group)).await?;
    let changes = changes.into_iter().map(Change::from).collect();
    Ok(HistoryResponse { group, changes })
}
