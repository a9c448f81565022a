//! `POST /v1/groups/{group}/step-down`.

use regent_api::{StepDownRequest, SteppedDown};

use crate::app::Call;
use crate::reply::{self, Reply};

pub(crate) async fn answer(call: Call) -> Reply {
    let request: StepDownRequest = call.body()?;
    let step_down = request.into_step_down(call.group()?)?;
    tracing::info!(
        group = %step_down.group,
        reason = step_down.reason.as_str(),
        immediate = step_down.immediate,
        "a step-down was asked for"
    );
    let stepped_down = call.change(call.store().step_down(step_down)).await?;
    reply::json(&SteppedDown::from(stepped_down))
}
