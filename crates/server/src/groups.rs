//! `PUT`, `GET`, `DELETE /v1/groups/{group}`, `POST /v1/groups/{group}/move` and `GET /v1/groups`.

use regent_api::limits::GROUPS_PAGE_DEFAULT;
use regent_api::{
    Code, DeleteGroupQuery, GroupResponse, GroupsQuery, GroupsResponse, MoveGroupRequest, Problem,
    PutGroupRequest, SteppedDown,
};
use regent_election::limits::{GROUP_BYTES_MAX, GROUPS_PAGE_MAX};
use regent_election::{Group, Policy, RequestId};

use crate::app::{Ask, Call};
use crate::quiet::{self, Quiet};
use crate::reply::{self, Reply};

static MOVES: Quiet = quiet::lines();

pub(crate) async fn put(call: Call) -> Reply {
    let (group, request) = (call.group()?, call.body()?);
    reply::json(&act_put(&call, &group, request).await?)
}

pub(crate) async fn act_put(
    ask: &Ask,
    group: &Group,
    request: PutGroupRequest,
) -> Result<GroupResponse, Problem> {
    let PutGroupRequest { policy, request_id } = request;
    let policy = policy.map(Policy::try_from).transpose()?;
    let view = ask.change(ask.store().put_policy(group, policy, request_id)).await?;
    Ok(GroupResponse::from(view))
}

pub(crate) async fn take_step(call: Call) -> Reply {
    let (group, request) = (call.group()?, call.body()?);
    reply::json(&act_step(&call, &group, request).await?)
}

pub(crate) async fn act_step(
    ask: &Ask,
    group: &Group,
    request: MoveGroupRequest,
) -> Result<GroupResponse, Problem> {
    let request_id = request.request_id.clone();
    let step = request.into_step()?;
    if let Some(untold) = MOVES.admit() {
        tracing::info!(%group, step = step.word(), untold, "a group moves");
    }
    let view = ask.change(ask.store().move_group(group, step, request_id)).await?;
    Ok(GroupResponse::from(view))
}

pub(crate) async fn show(call: Call) -> Reply {
    let group = call.group()?;
    reply::json(&act_show(&call, &group).await?)
}

pub(crate) async fn act_show(ask: &Ask, group: &Group) -> Result<GroupResponse, Problem> {
    let view = ask.read(ask.store().group(group)).await?;
    Ok(GroupResponse::from(view))
}

pub(crate) async fn delete(call: Call) -> Reply {
    let group = call.group()?;
    let DeleteGroupQuery { request_id } = call.query()?;
    reply::json(&act_delete(&call, &group, request_id).await?)
}

pub(crate) async fn act_delete(
    ask: &Ask,
    group: &Group,
    request_id: Option<RequestId>,
) -> Result<SteppedDown, Problem> {
    let deleted = ask.change(ask.store().delete(group, request_id)).await?;
    Ok(SteppedDown::from(deleted))
}

pub(crate) async fn list(call: Call) -> Reply {
    let query = call.query()?;
    reply::json(&act_list(&call, query).await?)
}

pub(crate) async fn act_list(ask: &Ask, query: GroupsQuery) -> Result<GroupsResponse, Problem> {
    let GroupsQuery { prefix, after, count } = query;
    check_prefix(&prefix)?;
    let count = count.map_or(GROUPS_PAGE_DEFAULT, |count| count as usize);
    if !(1..=GROUPS_PAGE_MAX).contains(&count) {
        return Err(Problem::new(
            Code::BadRequest,
            format!("a page has 1 to {GROUPS_PAGE_MAX} groups, not {count}"),
        )
        .at("count"));
    }
    let page = ask.read(ask.store().groups(&prefix, after.as_ref(), count)).await?;
    Ok(GroupsResponse::from(page))
}

/// Refuses a prefix that no group can have for its length.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), Problem> {
    if prefix.len() <= GROUP_BYTES_MAX {
        return Ok(());
    }
    Err(Problem::new(
        Code::BadRequest,
        format!("a prefix has at most {GROUP_BYTES_MAX} bytes; this one has {}", prefix.len()),
    )
    .at("prefix"))
}
