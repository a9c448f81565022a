//! Bounds of the service that are no settings, each with its reason. Bounds of a session stream are in
//! `grpc/session/limits.rs`, bounds of the wire in `regent_api::limits`.

use std::ops::Range;
use std::time::Duration;

/// What a caller may ask at once after it was quiet: so much time's worth of its budget. A program that starts opens its
/// sessions and campaigns in all its groups.
pub(crate) const BURST: Duration = Duration::from_secs(2);
/// Callers whose budgets are remembered. Others share one, until budgets that are full again are forgotten.
pub(crate) const CALLERS_MAX: usize = 1 << 16;
/// How often those are looked for, at most: it takes a walk over all of them.
pub(crate) const FORGET_EVERY: Duration = Duration::from_secs(1);
/// Wrong credentials that an address may show: one for so many requests that a caller may send. A fleet that starts before
/// its tokens are made stays below it; the signatures of that many tokens take a fortieth of a processor.
pub(crate) const FAILURES_PART: u32 = 10;
/// Tokens of other issuers that were found good lately, and are judged also for an address that failed too often.
#[cfg(feature = "jwt")]
pub(crate) const GOOD_TOKENS_MAX: usize = 1 << 14;
/// Within which time those who were refused together come back.
pub(crate) const RETRY_SPREAD_MS: u64 = 200;

/// How often the delay of the runtime's queue is measured. Each probe wakes two threads, about 20 µs.
pub(crate) const PROBE_EVERY: Duration = Duration::from_millis(50);
/// For how long a refusal for that delay is held back. All 4000 connections of one address then cost less than a fifth of
/// a core in refusals.
pub(crate) const REFUSAL_HELD_FOR_MS: Range<u64> = 200..400;
/// The longest that it is: a client that has many requests on one connection waits no longer for the last of them.
pub(crate) const REFUSAL_HELD_FOR_MAX: Duration = Duration::from_secs(1);

/// How long a stretch of time is by which the activity of groups is compared, for the choice of those that have series of
/// their own in metrics.
pub(crate) const GROUP_ACTIVITY_FOR: Duration = Duration::from_secs(600);
/// Groups without series whose changes are counted for that choice.
pub(crate) const GROUPS_KNOCKING_MAX: usize = 10_000;

/// Streams that anybody may open, of health and reflection: one for so many requests that may wait.
pub(crate) const OPEN_STREAMS_PART: usize = 4;
/// The store is asked at most so often whether it serves: anybody may want to know, and it must work for the answer.
pub(crate) const READY_EVERY: Duration = Duration::from_millis(10);

/// Bytes of bodies that have arrived on one connection and whose requests have not begun: sixteen of the longest kind, or
/// as many requests as HTTP/2 lets one connection have, of 8 KiB.
pub(crate) const CONNECTION_BODIES_BYTES_MAX: usize = 1 << 20;
/// The same of all connections. A body that is whole is served at once, so only slow senders hold any.
pub(crate) const BODIES_BYTES_MAX: usize = 64 << 20;
/// The part of that, one in so many, that only renewals and releases use.
pub(crate) const BODIES_RESERVED_PART: usize = 4;

/// Bytes of long answers that one connection has not read. An answer longer than this alone is refused, too: a page of
/// groups has 2 MiB with the longest metadata.
pub(crate) const CONNECTION_ANSWERS_BYTES_MAX: usize = 16 << 20;
/// The same of all connections.
pub(crate) const ANSWERS_BYTES_MAX: usize = 256 << 20;
/// An answer up to this length is not counted: connections and streams are bounded in number, and renewals are short.
pub(crate) const ANSWER_BYTES_SMALL: usize = 16 << 10;
/// What is handed over of a long answer at a time.
pub(crate) const ANSWER_PIECE_BYTES: usize = 16 << 10;
