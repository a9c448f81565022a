//! What of one peer may wait for the core: bytes, and not only messages.
//!
//! A member may be hostile, and a message has up to 8 MiB. What the core has not taken yet is counted by what it takes in
//! memory, for each peer by itself. Beyond the bound the link is not read, so that the network holds the peer up, and
//! nothing is lost: a long honest log still arrives, at the pace at which it is taken. Other links are not held up.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::io::PeerMessage;
use crate::limits::{PEER_INBOX_BYTES_MAX, PEER_MESSAGE_BYTES_MIN};

/// Places of one peer, each of [`PEER_MESSAGE_BYTES_MIN`]. They outlive its connections: who connects again has no more.
#[derive(Clone, Debug)]
pub(super) struct PeerInbox(Arc<Semaphore>);

/// The place of a message that waits; free when this is dropped, after the core has dealt with the message.
#[derive(Debug)]
pub struct InboxPlace {
    _permit: OwnedSemaphorePermit,
}

impl InboxPlace {
    pub(super) const fn new(permit: OwnedSemaphorePermit) -> Self {
        Self { _permit: permit }
    }
}

impl PeerInbox {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(PEER_INBOX_BYTES_MAX / PEER_MESSAGE_BYTES_MIN)))
    }

    /// Waits until there is room for a message of so many bytes on the wire; none if there never will be.
    pub(super) async fn enter(&self, message: &PeerMessage, bytes: usize) -> Option<InboxPlace> {
        let weight = (bytes + message.records_bytes()).min(PEER_INBOX_BYTES_MAX);
        let places = u32::try_from(weight.div_ceil(PEER_MESSAGE_BYTES_MIN).max(1)).ok()?;
        let permit = Arc::clone(&self.0).acquire_many_owned(places).await.ok()?;
        Some(InboxPlace::new(permit))
    }
}
