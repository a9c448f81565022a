//! `POST /v1/groups/{group}/warm`.

use regent_api::{Done, WarmRequest};

use crate::app::Call;
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let group = call.group()?;
    let WarmRequest { session_id, term, request_id } = call.body()?;
    call.change(call.store().warm(&group, session_id, term, request_id)).await?;
    reply::json(&Done::YES)
}
