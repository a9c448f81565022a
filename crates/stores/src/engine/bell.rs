//! The bell: one listening connection rings it, everybody who waits for a key hears it.
//!
//! A ring is a hint. One that was lost costs a wait until the next look, never a wrong decision.

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::limits::RINGS_MAX;

/// What is rung, and heard by all who listen.
#[derive(Debug)]
pub(crate) struct Bell {
    /// A name, or none when anything may have happened.
    rings: broadcast::Sender<Option<String>>,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { rings: broadcast::Sender::new(RINGS_MAX) }
    }

    /// Tells that this one changed.
    pub(crate) fn ring(&self, name: &str) {
        // Nobody listens: then nobody waits.
        let _ = self.rings.send(Some(name.to_owned()));
    }

    /// Tells that anything may have changed, because for a while nobody would have told.
    pub(crate) fn ring_for_all(&self) {
        let _ = self.rings.send(None);
    }

    /// Hears everything from this call on.
    pub(crate) fn listen(&self) -> Listener {
        Listener { rings: self.rings.subscribe() }
    }
}

/// An ear at the bell.
#[derive(Debug)]
pub(crate) struct Listener {
    rings: broadcast::Receiver<Option<String>>,
}

impl Listener {
    /// Returns when the name was rung since [`Bell::listen`], or may have been.
    pub(crate) async fn heard(&mut self, name: &str) {
        loop {
            match self.rings.recv().await {
                Ok(Some(rung)) if rung != name => {}
                Ok(Some(_) | None) | Err(RecvError::Lagged(_)) => return,
                // Nobody will ring any more; the one who waits has a patience of its own.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_hears_its_own_name_and_what_rings_for_all() {
        let bell = Bell::new();
        let mut ear = bell.listen();
        bell.ring("other");
        assert!(tokio::time::timeout(std::time::Duration::ZERO, ear.heard("mine")).await.is_err());
        bell.ring("mine");
        ear.heard("mine").await;
        bell.ring_for_all();
        ear.heard("mine").await;
    }

    #[tokio::test]
    async fn a_listener_that_missed_rings_looks_for_itself() {
        let bell = Bell::new();
        let mut ear = bell.listen();
        for _ in 0..=RINGS_MAX {
            bell.ring("other");
        }
        ear.heard("mine").await;
    }
}
