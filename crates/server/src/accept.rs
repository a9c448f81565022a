//! `POST /v1/groups/{group}/accept`.

use regent_api::{AcceptRequest, Heard};

use crate::app::Call;
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let group = call.group()?;
    let AcceptRequest { session_id, term, request_id } = call.body()?;
    let heard = call.change(call.store().accept(&group, session_id, term, request_id)).await?;
    reply::json(&Heard::from(heard))
}
