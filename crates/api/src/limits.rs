//! Bounds of the wire, each with its reason. Bounds of the rules live in `regent_election::limits`.

/// Largest request body. The largest honest one is a policy with full tables, about 50 KiB.
pub const BODY_BYTES_MAX: usize = 64 << 10;
/// Longest a campaign or a long poll waits in one request: below the idle time-out of common
/// proxies, so that an answer comes before somebody in between gives up.
pub const WAIT_MS_MAX: u64 = 30_000;
/// How long a long poll waits if it does not say.
pub const WATCH_WAIT_MS_DEFAULT: u64 = 25_000;
/// Most groups named one by one in a watch; more are watched by prefix.
pub const WATCH_GROUPS_MAX: usize = 128;
/// Most events in one answer of a long poll; the rest follows with the next.
pub const WATCH_EVENTS_MAX: usize = 512;
/// Groups in one page of a listing, if it does not say.
pub const GROUPS_PAGE_DEFAULT: usize = 100;
/// Most bytes of a client's own text repeated in a message about it.
pub const ECHO_BYTES_MAX: usize = 80;
