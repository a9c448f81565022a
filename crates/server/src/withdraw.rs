//! `POST /v1/groups/{group}/withdraw`.

use regent_api::{Done, WithdrawRequest};

use crate::app::Call;
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let group = call.group()?;
    let WithdrawRequest { session_id, request_id } = call.body()?;
    call.change(call.store().withdraw(&group, session_id, request_id)).await?;
    reply::json(&Done::YES)
}
