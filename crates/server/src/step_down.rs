//! `POST /v1/groups/{group}/step-down`.

use regent_api::{Problem, StepDownRequest, SteppedDown};
use regent_election::Group;

use crate::app::{Ask, Call};
use crate::quiet::{self, Quiet};
use crate::reply::{self, Reply};

static ASKED: Quiet = quiet::lines();

pub(crate) async fn answer(call: Call) -> Reply {
    let (group, request) = (call.group()?, call.body()?);
    reply::json(&act(&call, group, request).await?)
}

pub(crate) async fn act(
    ask: &Ask,
    group: Group,
    request: StepDownRequest,
) -> Result<SteppedDown, Problem> {
    let step_down = request.into_step_down(group)?;
    if let Some(untold) = ASKED.admit() {
        tracing::info!(
            group = %step_down.group,
            reason = step_down.reason.as_str(),
            immediate = step_down.immediate,
            untold,
            "a step-down was asked for"
        );
    }
    let stepped_down = ask.change(ask.store().step_down(step_down)).await?;
    Ok(SteppedDown::from(stepped_down))
}
