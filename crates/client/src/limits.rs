//! Bounds of the client, each with its reason.

use std::time::Duration;

/// Largest answer read into memory. The largest honest one is a session with 131,072 tenures of
/// long names, about 40 MiB.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Largest backup read into memory: a million groups take about 200 MiB.
pub(crate) const BACKUP_BYTES_MAX: usize = 4 << 30;
/// How long a server may take to make a backup.
pub(crate) const BACKUP_WITHIN: Duration = Duration::from_secs(300);
/// Largest event of a stream. The largest honest one is a gap with 512 groups and full metadata,
/// about 4 MiB.
pub(crate) const EVENT_BYTES_MAX: usize = 16 << 20;
/// Most addresses of one remote: a replica set has at most nine servers.
pub(crate) const ADDRESSES_MAX: usize = 16;
/// Most bytes of a foreign answer repeated in a message about it.
pub(crate) const ECHO_BYTES_MAX: usize = 120;

/// Largest file of contexts: some hundred of them with long paths.
pub(crate) const CONTEXTS_BYTES_MAX: u64 = 256 << 10;
/// Longest name of a context: it is also the name of a file.
pub(crate) const CONTEXT_NAME_BYTES_MAX: usize = 64;

/// How long to wait for a connection. A second covers one lost packet on the way.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for an answer, beside the time that the request itself asks to wait.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// A stream that says nothing for this long is dead: servers send a sign of life more often.
pub(crate) const STREAM_SILENCE_MAX: Duration = Duration::from_secs(45);
/// How long an unused connection is kept: shorter than servers and proxies keep theirs, so that a
/// request seldom meets a connection that is just being closed.
pub(crate) const CONNECTION_IDLE_MAX: Duration = Duration::from_secs(15);

/// Shortest pause before a broken stream is opened again.
pub(crate) const RECONNECT_MIN: Duration = Duration::from_millis(100);
/// Longest pause before a broken stream is opened again.
pub(crate) const RECONNECT_MAX: Duration = Duration::from_secs(10);

/// Timers stand still while a machine sleeps, and the lease clock does not: whoever waits for it
/// reads it at least this often.
pub(crate) const CLOCK_LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the store may take to be told that a session is left.
pub(crate) const FAREWELL: Duration = Duration::from_secs(5);
/// How long a standby may take to get warm for an office that is handed to it, if nothing else is
/// said. The leader leads on meanwhile.
pub(crate) const WARM_WITHIN: Duration = Duration::from_secs(30);
/// Random hexadecimal digits behind the host name of a node that was given no name.
pub(crate) const NODE_SUFFIX_DIGITS: usize = 8;

/// How long a lock outlives a holder that is not heard any more.
pub(crate) const LOCK_TTL: Duration = Duration::from_secs(30);
/// How long a lock is waited for, if nothing else is said.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(10);
/// Most holders of one semaphore: each is a group of its own, and a waiter stands in all of them.
pub(crate) const SEMAPHORE_HOLDERS_MAX: u32 = 1024;
