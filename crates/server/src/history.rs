//! `GET /v1/groups/{group}/history`.

use regent_api::{Change, HistoryResponse};

use crate::app::Call;
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let group = call.group()?;
    let changes = call.read(call.store().history(&group)).await?;
    let changes = changes.into_iter().map(Change::from).collect();
    reply::json(&HistoryResponse { group, changes })
}
