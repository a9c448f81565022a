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
    let valid_for_unknown = (view.leader.is_some() && view.valid_for.is_none())
        .then(|| why_unknown(ask.store().describe().name).to_owned());
    Ok(LeaderResponse { office: Office::from(view), consistency, valid_for_unknown })
}

/// Why a store does not say how long a leader's session lives.
fn why_unknown(store: &str) -> &'static str {
    match store {
        "replica" => "only the replica that leads the log counts leases; ask that one",
        _ => "the engine keeps the leader's session and does not say how long it lasts",
    }
}
