//! `GET /v1/groups/{group}/leader`.

use regent_api::{Consistency, LeaderQuery, LeaderResponse, Office, Problem};
use regent_election::Group;

use crate::app::{Ask, Call};
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let group = call.group()?;
    let LeaderQuery { consistency } = call.query()?;
    reply::json(&act(&call, &group, consistency).await?)
}

pub(crate) async fn act(
    ask: &Ask,
    group: &Group,
    consistency: Consistency,
) -> Result<LeaderResponse, Problem> {
    let view = ask.read(ask.store().leader(group, consistency.into())).await?;
    Ok(LeaderResponse { office: Office::from(view), consistency })
}
