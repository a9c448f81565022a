//! `GET /v1/groups/{group}/watch` and `GET /v1/watch`: long polls here, streams in `stream.rs`.
//!
//! Without a cursor the watch is opened first and the present state is read after, so that no
//! change falls between the two; changes that the state holds already are then not told again. All groups of the state
//! and its cursor come of one read: what has the revision of the cursor is in the state, and what is later follows.

use std::time::Duration;

use hyper::HeaderMap;
use regent_api::limits::{WAIT_MS_MAX, WATCH_EVENTS_MAX, WATCH_GROUPS_MAX, WATCH_WAIT_MS_DEFAULT};
use regent_api::{
    Code, Gap, LeaderChanged, Office, Present, Problem, WatchEvent, WatchManyQuery, WatchQuery,
    WatchResponse,
};
use regent_election::limits::GROUPS_PAGE_MAX;
use regent_election::store::{Consistency, Scope, Watch, WatchItem};
use regent_election::{Cursor, Group};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use crate::admission::Class;
use crate::app::{Ask, Call, Phase, dice};
use crate::groups::check_prefix;
use crate::reply::{self, Reply};
use crate::stream::{self, Patience};

/// Watchers that met a gap together read on within this time of each other.
const GAP_SPREAD_MS: u64 = 1000;

/// One group.
pub(crate) async fn one(call: Call) -> Reply {
    let WatchQuery { cursor, wait_ms } = call.query()?;
    let scope = Scope::Group(call.group()?);
    watch(call, scope, cursor, wait_ms).await
}

/// Many groups.
pub(crate) async fn many(call: Call) -> Reply {
    let WatchManyQuery { prefix, groups, cursor, wait_ms } = call.query()?;
    let scope = match (prefix, groups) {
        (Some(_), Some(_)) => {
            return Err(Problem::new(
                Code::BadRequest,
                "prefix and groups exclude each other; give one",
            )
            .at("groups"));
        }
        (prefix, None) => {
            let prefix = prefix.unwrap_or_default();
            check_prefix(&prefix)?;
            Scope::Prefix(prefix)
        }
        (None, Some(groups)) => Scope::Groups(parse_groups(&groups)?),
    };
    watch(call, scope, cursor, wait_ms).await
}

fn parse_groups(text: &str) -> Result<Vec<Group>, Problem> {
    let mut groups = Vec::new();
    for name in text.split(',') {
        if groups.len() == WATCH_GROUPS_MAX {
            return Err(Problem::new(
                Code::BadRequest,
                format!("a watch names at most {WATCH_GROUPS_MAX} groups; watch a prefix instead"),
            )
            .at("groups"));
        }
        groups.push(Group::new(name).map_err(|error| Problem::from(error).at("groups"))?);
    }
    groups.sort_unstable();
    groups.dedup();
    Ok(groups)
}

async fn watch(
    mut call: Call,
    scope: Scope,
    cursor: Option<Cursor>,
    wait_ms: Option<u64>,
) -> Reply {
    let cursor = last_event_id(&call.headers)?.or(cursor);
    if wants_stream(&call.headers) {
        return Ok(stream::response(events(call.ask, scope, cursor).await?));
    }
    call.step_aside(Class::Watch)?;
    let watch = call.read(call.store().watch(scope.clone(), cursor)).await?;
    let wait_ms = wait_ms.unwrap_or(WATCH_WAIT_MS_DEFAULT).min(WAIT_MS_MAX);
    let response = match cursor {
        None => state(&call, &scope, watch.cursor()).await?,
        Some(_) => poll(&call, &scope, watch, Duration::from_millis(wait_ms)).await?,
    };
    reply::json(&response)
}

/// The events of `scope` after `cursor`, as they happen; without a cursor the present state first.
pub(crate) async fn events(
    mut ask: Ask,
    scope: Scope,
    cursor: Option<Cursor>,
) -> Result<mpsc::Receiver<WatchEvent>, Problem> {
    ask.step_aside(Class::Watch)?;
    let watch = ask.read(ask.store().watch(scope.clone(), cursor)).await?;
    stream::open(ask, scope, watch, cursor.is_none(), Patience::USUAL).await
}

fn wants_stream(headers: &HeaderMap) -> bool {
    headers
        .get_all("accept")
        .iter()
        .filter_map(|accept| accept.to_str().ok())
        .any(|accept| accept.to_ascii_lowercase().contains("text/event-stream"))
}

/// The cursor that a browser repeats when it connects again. It wins over the one in the address,
/// which is as old as the page.
fn last_event_id(headers: &HeaderMap) -> Result<Option<Cursor>, Problem> {
    let Some(id) = headers.get("last-event-id") else { return Ok(None) };
    let cursor = id.to_str().ok().and_then(|id| id.parse().ok());
    cursor.map(Some).ok_or_else(|| {
        Problem::new(Code::BadRequest, "Last-Event-ID is no cursor: repeat the id of an event")
            .at("Last-Event-ID")
    })
}

/// A long poll without a cursor: the present state, at once.
async fn state(ask: &Ask, scope: &Scope, at: Cursor) -> Result<WatchResponse, Problem> {
    let present = present(ask, scope, at, GROUPS_PAGE_MAX).await?;
    let cursor = present.cursor;
    Ok(WatchResponse {
        events: Vec::new(),
        state: Some(present),
        gap: None,
        cursor,
        confirmed_ago_ms: confirmed_ago_ms(ask),
    })
}

/// A long poll: what happens after the cursor, as soon as something does.
async fn poll(
    ask: &Ask,
    scope: &Scope,
    mut watch: Box<dyn Watch>,
    wait: Duration,
) -> Result<WatchResponse, Problem> {
    let until = Instant::now() + wait;
    let mut events = Vec::new();
    let mut gap = None;
    let mut item = tokio::select! {
        item = timeout_at(until, watch.next()) => item.ok().flatten(),
        () = ask.app.reached(Phase::Closing) => None,
    };
    while let Some(told) = item {
        match told {
            WatchItem::Changed(event) => {
                events.push(LeaderChanged::new(event, watch.cursor().incarnation));
            }
            WatchItem::Gap { oldest, at } => {
                gap = Some(self::gap(ask, scope, oldest, at, GROUPS_PAGE_MAX).await?);
                break;
            }
        }
        if events.len() == WATCH_EVENTS_MAX {
            break;
        }
        // What is there already comes along; what is not is left to the next poll.
        item = timeout(Duration::ZERO, watch.next()).await.ok().flatten();
    }
    let cursor = gap.as_ref().map_or_else(|| watch.cursor(), |gap| gap.present.cursor);
    let confirmed_ago_ms = confirmed_ago_ms(ask);
    Ok(WatchResponse { events, state: None, gap, cursor, confirmed_ago_ms })
}

fn confirmed_ago_ms(ask: &Ask) -> Option<u64> {
    stream::confirmed_ago(ask).map(|ago| ago.as_millis() as u64)
}

/// What stands in the place of forgotten changes.
pub(crate) async fn gap(
    ask: &Ask,
    scope: &Scope,
    oldest: Cursor,
    at: Cursor,
    page_max: usize,
) -> Result<Gap, Problem> {
    let present = present(ask, scope, at, page_max).await?;
    Ok(Gap { oldest, present, retry_after_ms: dice() % GAP_SPREAD_MS })
}

/// The present state of what a watch that stands at `at` watches. Every change up to the cursor it
/// carries is in it, and none after that is missed by a watch from `at`.
pub(crate) async fn present(
    ask: &Ask,
    scope: &Scope,
    at: Cursor,
    page_max: usize,
) -> Result<Present, Problem> {
    let (offices, next) = match scope {
        Scope::Group(group) | Scope::Turn(group) => {
            let read = ask.store().leader(group, Consistency::Linearizable);
            (vec![ask.read(read).await?], None)
        }
        // In one read: groups read one after another would be newer than the cursor, and what happened in between would
        // be told once more.
        Scope::Groups(groups) => (ask.read(ask.store().leaders(groups.clone())).await?, None),
        Scope::Prefix(prefix) => {
            let page = ask.read(ask.store().groups(prefix, None, page_max)).await?;
            (page.groups, page.next)
        }
    };
    // They are all the same, but over a register, which cannot read several groups at once.
    let cursor = offices.iter().map(|office| office.cursor).min().map_or(at, |it| it.max(at));
    Ok(Present { offices: offices.into_iter().map(Office::from).collect(), next, cursor })
}
