//! `POST /v1/groups/{group}/transfer`.

use regent_api::{Done, TransferRequest};

use crate::app::Call;
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let group = call.group()?;
    let TransferRequest { session_id, term, to, request_id } = call.body()?;
    call.change(call.store().transfer(&group, session_id, term, &to, request_id)).await?;
    reply::json(&Done::YES)
}
