//! `POST /v1/groups/{group}/resign`.

use regent_api::{Done, ResignRequest};

use crate::app::Call;
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let group = call.group()?;
    let ResignRequest { session_id, term, request_id } = call.body()?;
    call.change(call.store().resign(&group, session_id, term, request_id)).await?;
    reply::json(&Done::YES)
}
