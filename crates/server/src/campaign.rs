//! `POST /v1/groups/{group}/campaign`.
//!
//! A campaign that waits answers the moment its caller is elected. If the connection is dropped
//! before, so is the store's future, which then leaves no standby behind (semantics 18).

use regent_api::{CampaignRequest, CampaignResponse, Problem};
use regent_election::Group;

use crate::admission::Class;
use crate::app::{Ask, Call, fresh_session};
use crate::reply::{self, Reply};
use crate::sessions;

pub(crate) async fn answer(mut call: Call) -> Reply {
    let (group, request) = (call.group()?, call.body()?);
    reply::json(&act(&mut call, group, request).await?)
}

pub(crate) async fn act(
    ask: &mut Ask,
    group: Group,
    request: CampaignRequest,
) -> Result<CampaignResponse, Problem> {
    sessions::chosen(request.session_id)?;
    let campaign = request.into_campaign(group, fresh_session)?;
    if campaign.wait.is_some() {
        ask.step_aside(Class::Campaign)?;
    }
    let wait = campaign.wait.unwrap_or_default();
    let campaigned = ask.change_after(wait, Box::pin(ask.store().campaign(campaign))).await?;
    Ok(CampaignResponse::from(campaigned))
}
