//! Telling watchers what changed: in order, none missing, none twice, or an explicit gap (S5).
//!
//! The [`EventRing`] remembers the last events of the store; the [`Hub`] hands them to watchers as
//! they happen. A watcher is *live* while its own short queue keeps up; one that falls behind reads
//! the ring at its own pace instead, and one that the ring has left behind is told so with a gap.
//! So a slow watcher costs a bounded queue and never holds up anybody.
//!
//! Places are [`Cursor`](crate::Cursor)s: incarnation, revision, and which of the revision's events.
//! One entry may cause 100,000 events; a watcher that stopped in their midst goes on in their midst.
//!
//! The road not taken is a broadcast channel: it drops silently what a slow reader missed, and it
//! makes an event of one group cost every watcher of every other group.
//!
//! Nothing here knows a runtime: a watcher is woken through [`std::task::Waker`] alone.

mod hub;
mod ring;
mod watcher;

pub use hub::{Hub, HubWatch};
pub use ring::EventRing;
pub use watcher::Replay;

use crate::limits::{EVENT_RING_BYTES_MAX, EVENT_RING_COUNT_MIN, WATCHER_QUEUE_MAX};

/// How much is remembered. The default is that of `limits.rs`; tests take less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most bytes of events in the ring, as long as it holds more than `ring_count_min`.
    pub ring_bytes_max: usize,
    /// Events the ring keeps whatever their size.
    pub ring_count_min: usize,
    /// Events queued for one watcher before it is sent to the ring; at least 1.
    pub queue_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            ring_bytes_max: EVENT_RING_BYTES_MAX,
            ring_count_min: EVENT_RING_COUNT_MIN,
            queue_max: WATCHER_QUEUE_MAX,
        }
    }
}
