//! `GET /v1/groups/{group}/leader`.

use regent_api::{LeaderQuery, LeaderResponse, Office};

use crate::app::Call;
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let group = call.group()?;
    let LeaderQuery { consistency } = call.query()?;
    let view = call.read(call.store().leader(&group, consistency.into())).await?;
    reply::json(&LeaderResponse { office: Office::from(view), consistency })
}
