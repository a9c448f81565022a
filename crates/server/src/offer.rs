//! `POST /v1/groups/{group}/offer`.

use regent_api::{Done, OfferRequest};

use crate::app::Call;
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let group = call.group()?;
    let OfferRequest { session_id, term, to, request_id } = call.body()?;
    call.change(call.store().offer(&group, session_id, term, &to, request_id)).await?;
    reply::json(&Done::YES)
}
