//! `POST /v1/groups/{group}/campaign`.
//!
//! A campaign that waits answers the moment its caller is elected. If the connection is dropped
//! before, so is the store's future, which then leaves no standby behind (semantics 18).

use std::time::Instant;

use regent_api::{CampaignRequest, CampaignResponse};

use crate::admission::Class;
use crate::app::{Call, fresh_session};
use crate::reply::{self, Reply};

pub(crate) async fn answer(mut call: Call) -> Reply {
    let request: CampaignRequest = call.body()?;
    let campaign = request.into_campaign(call.group()?, fresh_session()?)?;
    if campaign.wait.is_some() {
        call.step_aside(Class::Campaign)?;
    }
    let began_at = Instant::now();
    let wait = campaign.wait.unwrap_or_default();
    let campaigned = call.change_after(wait, call.store().campaign(campaign)).await;
    let is_elected = campaigned.as_ref().is_ok_and(|campaigned| campaigned.elected.is_some());
    call.app.metrics.campaigned(is_elected, began_at.elapsed());
    reply::json(&CampaignResponse::from(campaigned?))
}
