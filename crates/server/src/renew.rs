//! `POST /v1/groups/{group}/renew`.

use regent_api::{Heard, RenewRequest};

use crate::app::Call;
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let group = call.group()?;
    let RenewRequest { session_id, term, extend_by_ms } = call.body()?;
    let heard = call.change(call.store().renew(&group, session_id, term, extend_by_ms)).await?;
    reply::json(&Heard::from(heard))
}
