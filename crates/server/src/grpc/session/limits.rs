//! Bounds of a session stream, each with its reason.

/// Heartbeats of one stream that are under way or whose answers nobody took. A participant sends one
/// at a time and retries a few times; more is a peer that asks and never reads.
pub(super) const HEARTBEATS_MAX: usize = 8;
/// Requests of one stream that are under way or whose answers nobody took. More are refused.
pub(super) const ASKS_MAX: usize = 64;
/// Refusals of requests beyond [`ASKS_MAX`] that nobody took. Beyond it the stream ends.
pub(super) const REFUSALS_MAX: usize = 64;
/// Events that wait for the connection; what comes after them waits in the store.
pub(super) const EVENTS_MAX: usize = 32;
/// Groups followed by name.
pub(super) const FOLLOW_MAX: usize = 128;
/// Groups in one state that is told on a stream: an answer to a heartbeat may have to follow it.
pub(super) const STATE_PAGE_MAX: usize = 64;
/// Tenures, candidacies and offers of a session that are told on its stream; whoever holds more asks
/// `ShowSession`, whose answer has a stream of its own.
pub(super) const HOLDS_MAX: usize = 512;
/// How often streams look who leads the log, all together.
pub(super) const LOG_LEADER_EVERY: std::time::Duration = std::time::Duration::from_secs(1);
/// How long a stream waits before it watches again what it could not.
pub(super) const WATCH_AGAIN_AFTER: std::time::Duration = std::time::Duration::from_millis(500);
