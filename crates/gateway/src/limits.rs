//! Every bound of the gateway, each with its reason.

use std::time::Duration;

/// Most bytes of a request's or an answer's head: what other proxies take, and no more.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Most headers of a request.
pub const HEADERS_MAX: usize = 100;
/// Frames of an answer that lie between the upstream and a client that reads slowly.
pub const FRAMES_AHEAD_MAX: usize = 4;
/// Connections to the upstream that are kept for the next request.
pub const IDLE_CONNECTIONS_MAX: usize = 64;
/// How long such a connection is kept: shorter than servers usually keep theirs.
pub const IDLE_CONNECTION_FOR: Duration = Duration::from_secs(10);
/// How long a connection to the upstream may take.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Requests that wait for those of lower terms.
pub const WAITING_MAX: usize = 1024;
pub use regent_election::limits::TERM_STEP_MAX;

/// Most bytes of the reason for which an operator sets a mark: a sentence or two.
pub const REASON_BYTES_MAX: usize = 512;
/// Connections of those who read metrics.
pub const METRICS_CONNECTIONS_MAX: usize = 16;
/// How long a handshake of TLS may take: some round trips.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// How long to wait when the system has no more file descriptors or memory to give.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
