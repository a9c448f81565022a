//! The bounds of engines that speak to a server, each with its reason.

use std::time::Duration;

/// How long a request may take unless told otherwise: a third of the shortest ttl worth having on a
/// store across a network, so that two may fail before a lease does.
pub const REQUEST_FOR: Duration = Duration::from_secs(2);

/// How often an entry is looked at where nothing tells of its change.
pub const POLL_EVERY: Duration = Duration::from_millis(250);

/// How often it is looked at although something does: a notification is a hint and may be lost.
pub const RECHECK_EVERY: Duration = Duration::from_secs(1);

/// How long a lost listening connection rests before it is made again.
pub const RECONNECT_AFTER: Duration = Duration::from_millis(200);

/// How long a server remembers the name of an ended session, so that a late request to begin it is
/// refused. A request that waited for a week in a network or in a stopped process is not ours to fear.
pub const ENDED_REMEMBERED_FOR: Duration = Duration::from_hours(7 * 24);

/// Rings that may wait to be heard by one listener; more, and it looks for itself.
pub const RINGS_MAX: usize = 1024;

/// Entries asked for at once when listing: a server is not to be blocked by one listing.
pub const LISTED_AT_ONCE_MAX: usize = 256;

/// Servers that one URL may name; nobody runs more voters than this.
pub const SERVERS_MAX: usize = 31;

/// Most bytes of one answer over HTTP. A listing of names is the largest: some hundred thousand of them.
pub const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Connections over HTTP that are kept open for the next request; more are made when needed, and closed.
pub const IDLE_CONNECTIONS_MAX: usize = 16;

/// Requests that may wait at one server at the same time, each on a connection of its own. Consul allows
/// an address 200 connections; who waits beyond this bound looks by itself.
pub const WAITING_REQUESTS_MAX: usize = 64;

/// Most bytes of a file of certificates. The bundle of all public CAs has a quarter of it.
pub const TLS_FILE_BYTES_MAX: u64 = 1 << 20;
