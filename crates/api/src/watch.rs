//! `GET /v1/groups/{group}/watch` and `GET /v1/watch`: who leads, told the moment it changes.
//!
//! With `Accept: text/event-stream` the answer is a stream of [`WatchEvent`]s whose `id` is the
//! cursor; otherwise it is a long poll ([`WatchResponse`]). After a cursor every change comes, in
//! order, exactly once, or a [`Gap`] says that some are forgotten and carries the present state.
//!
//! Without a cursor the first thing told is the present state, so that "nobody leads" is seen. It
//! is an event of its own (`STATE`), not a made-up change: every `LEADER_CHANGED` really happened.

use regent_election::{Cause, Cursor, Event, Group, Incarnation, Metadata, Node, Revision, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::leader::Office;
use crate::{schema, wire};

/// What may stand behind the `?` of a watch of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchQuery {
    /// Tell what happened after this; without it, the present state and what follows. A
    /// `Last-Event-ID` header means the same and wins, since it is the newer of both.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Cursor>")]
    pub cursor: Option<Cursor>,
    /// How long a long poll waits for a change: 25 s if not said, at most 30 s. A stream has no use
    /// for it.
    #[serde(default, with = "wire::millis_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Millis>")]
    pub wait_ms: Option<u64>,
}

/// What may stand behind the `?` of a watch of many groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchManyQuery {
    /// Every group whose name opens with this; empty means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// These groups, at most 128, with commas between; not together with `prefix`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<String>,
    /// As for one group.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Cursor>")]
    pub cursor: Option<Cursor>,
    /// As for one group.
    #[serde(default, with = "wire::millis_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Millis>")]
    pub wait_ms: Option<u64>,
}

/// The leader of a group changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaderChanged {
    /// The group's name.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::GroupName")]
    pub group: Group,
    /// The node id of the leader; null means that nobody leads.
    #[serde(with = "wire::text_option")]
    #[schemars(with = "Option<schema::NodeId>")]
    pub leader: Option<Node>,
    /// The leader's term, or the last one granted.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
    /// Why it changed.
    #[serde(with = "wire::cause")]
    #[schemars(with = "schema::CauseWord")]
    pub cause: Cause,
    /// What the leader tells about itself.
    #[serde(with = "wire::metadata")]
    #[schemars(with = "schema::Metadata")]
    pub metadata: Metadata,
    /// The change of the store that did it.
    #[serde(with = "wire::revision")]
    #[schemars(with = "schema::Revision")]
    pub revision: Revision,
    /// The place just after this event.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::Cursor")]
    pub cursor: Cursor,
}

impl LeaderChanged {
    /// `event` in this life of the store.
    #[must_use]
    pub fn new(event: Event, incarnation: Incarnation) -> Self {
        // The event's own place, not the watch's: every watcher gets the same id for it.
        let cursor = Cursor { incarnation, revision: event.revision, ordinal: event.ordinal };
        Self {
            group: event.group,
            leader: event.leader,
            term: event.term,
            cause: event.cause,
            metadata: event.metadata,
            revision: event.revision,
            cursor,
        }
    }
}

impl From<LeaderChanged> for Event {
    fn from(changed: LeaderChanged) -> Self {
        Self {
            group: changed.group,
            revision: changed.revision,
            ordinal: changed.cursor.ordinal,
            term: changed.term,
            leader: changed.leader,
            metadata: changed.metadata,
            cause: changed.cause,
        }
    }
}

/// The present state of what is watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Present {
    /// Who leads, group by group, in the order of their names. Groups watched by prefix that
    /// nobody ever named are not listed.
    pub offices: Vec<Office>,
    /// If set, these were only the first: read the rest with `GET /v1/groups?prefix=…&after=` this.
    #[serde(with = "wire::text_option")]
    #[schemars(with = "Option<schema::GroupName>")]
    pub next: Option<Group>,
    /// Where the watch goes on from; nothing falls between it and this state.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::Cursor")]
    pub cursor: Cursor,
}

/// Changes after the cursor asked for are no longer known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// The oldest place from which a watch could still be resumed.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::Cursor")]
    pub oldest: Cursor,
    /// The present state in place of what is forgotten.
    pub present: Present,
    /// Wait this long (it differs from watcher to watcher) before reading more pages, so that not
    /// all of them read at once.
    #[serde(with = "wire::millis")]
    #[schemars(with = "schema::Millis")]
    pub retry_after_ms: u64,
}

/// Nothing at or before `cursor` comes any more. Also a sign of life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bookmark {
    /// The revision of that place.
    #[serde(with = "wire::revision")]
    #[schemars(with = "schema::Revision")]
    pub revision: Revision,
    /// The cursor to resume from.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::Cursor")]
    pub cursor: Cursor,
    /// How long ago a quorum last confirmed what this server tells; null where there is no quorum to ask.
    #[serde(default)]
    pub confirmed_ago_ms: Option<u64>,
}

/// No quorum has confirmed for a while what this server tells: leaders that it named may be over, and others elected. It is
/// told once; it is over when a bookmark says that a quorum has confirmed it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stale {
    /// Where to resume, elsewhere.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::Cursor")]
    pub cursor: Cursor,
    /// How long ago a quorum last confirmed it.
    #[serde(with = "wire::millis")]
    #[schemars(with = "schema::Millis")]
    pub confirmed_ago_ms: u64,
}

/// The last event of a stream: the server goes away, or the watcher was too slow. Resume elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Closing {
    /// Where to resume.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::Cursor")]
    pub cursor: Cursor,
    /// How long to wait before watching again.
    #[serde(with = "wire::millis")]
    #[schemars(with = "schema::Millis")]
    pub retry_after_ms: u64,
}

/// One event of a stream. On the wire its name is the `event:` line and its fields the `data:` line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", content = "data", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WatchEvent {
    /// The present state; first if no cursor was given.
    State(Present),
    /// The leader of a group changed.
    LeaderChanged(LeaderChanged),
    /// Changes are forgotten.
    Gap(Gap),
    /// Nothing older comes any more.
    Bookmark(Bookmark),
    /// What was told may be over.
    Stale(Stale),
    /// The stream ends.
    Closing(Closing),
}

impl WatchEvent {
    /// The name on the `event:` line.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::State(_) => "STATE",
            Self::LeaderChanged(_) => "LEADER_CHANGED",
            Self::Gap(_) => "GAP",
            Self::Bookmark(_) => "BOOKMARK",
            Self::Stale(_) => "STALE",
            Self::Closing(_) => "CLOSING",
        }
    }

    /// Where a watch that has seen this event resumes.
    #[must_use]
    pub const fn cursor(&self) -> Cursor {
        match self {
            Self::State(present) => present.cursor,
            Self::LeaderChanged(changed) => changed.cursor,
            Self::Gap(gap) => gap.present.cursor,
            Self::Bookmark(bookmark) => bookmark.cursor,
            Self::Stale(stale) => stale.cursor,
            Self::Closing(closing) => closing.cursor,
        }
    }

    /// The text on the `data:` line.
    pub fn data(&self) -> serde_json::Result<String> {
        match self {
            Self::State(present) => serde_json::to_string(present),
            Self::LeaderChanged(changed) => serde_json::to_string(changed),
            Self::Gap(gap) => serde_json::to_string(gap),
            Self::Bookmark(bookmark) => serde_json::to_string(bookmark),
            Self::Stale(stale) => serde_json::to_string(stale),
            Self::Closing(closing) => serde_json::to_string(closing),
        }
    }

    /// An event from its two lines. `None` for a name of a later version, which a watcher skips.
    pub fn parse(name: &str, data: &str) -> serde_json::Result<Option<Self>> {
        Ok(Some(match name {
            "STATE" => Self::State(serde_json::from_str(data)?),
            "LEADER_CHANGED" => Self::LeaderChanged(serde_json::from_str(data)?),
            "GAP" => Self::Gap(serde_json::from_str(data)?),
            "BOOKMARK" => Self::Bookmark(serde_json::from_str(data)?),
            "STALE" => Self::Stale(serde_json::from_str(data)?),
            "CLOSING" => Self::Closing(serde_json::from_str(data)?),
            _ => return Ok(None),
        }))
    }
}

/// The answer of a long poll.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WatchResponse {
    /// What happened after the cursor asked for, in order; at most 512, the rest follows.
    pub events: Vec<LeaderChanged>,
    /// The present state, if no cursor was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Present>,
    /// Changes after the cursor asked for are forgotten; the present state stands in their place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// Where to go on.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::Cursor")]
    pub cursor: Cursor,
    /// How long ago a quorum last confirmed what this server tells; null where there is no quorum to ask. Without events
    /// and with more than a ttl here, leaders that were named may be over.
    #[serde(default)]
    pub confirmed_ago_ms: Option<u64>,
}
