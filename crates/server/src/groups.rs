//! `PUT`, `GET`, `DELETE /v1/groups/{group}` and `GET /v1/groups`.

use regent_api::limits::GROUPS_PAGE_DEFAULT;
use regent_api::{
    Code, DeleteGroupQuery, GroupResponse, GroupsQuery, GroupsResponse, Problem, PutGroupRequest,
    SteppedDown,
};
use regent_election::Policy;
use regent_election::limits::{GROUP_BYTES_MAX, GROUPS_PAGE_MAX};

use crate::app::Call;
use crate::reply::{self, Reply};

pub(crate) async fn put(call: Call) -> Reply {
    let group = call.group()?;
    let PutGroupRequest { policy, request_id } = call.body()?;
    let policy = policy.map(Policy::try_from).transpose()?;
    let view = call.change(call.store().put_policy(&group, policy, request_id)).await?;
    reply::json(&GroupResponse::from(view))
}

pub(crate) async fn show(call: Call) -> Reply {
    let group = call.group()?;
    let view = call.read(call.store().group(&group)).await?;
    reply::json(&GroupResponse::from(view))
}

pub(crate) async fn delete(call: Call) -> Reply {
    let group = call.group()?;
    let DeleteGroupQuery { request_id } = call.query()?;
    let deleted = call.change(call.store().delete(&group, request_id)).await?;
    reply::json(&SteppedDown::from(deleted))
}

pub(crate) async fn list(call: Call) -> Reply {
    let GroupsQuery { prefix, after, count } = call.query()?;
    check_prefix(&prefix)?;
    let count = count.map_or(GROUPS_PAGE_DEFAULT, |count| count as usize);
    if !(1..=GROUPS_PAGE_MAX).contains(&count) {
        return Err(Problem::new(
            Code::BadRequest,
            format!("a page has 1 to {GROUPS_PAGE_MAX} groups, not {count}"),
        )
        .at("count"));
    }
    let page = call.read(call.store().groups(&prefix, after.as_ref(), count)).await?;
    reply::json(&GroupsResponse::from(page))
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
