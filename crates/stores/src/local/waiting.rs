//! Campaigns that wait in line while their request is open.

use std::collections::HashMap;
use std::sync::Arc;

use regent_election::{SessionId, SessionNo};
use tokio::sync::Notify;

/// The waiting campaigns, by session.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    next_id: u64,
    by_session: HashMap<SessionNo, Vec<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    bell: Arc<Notify>,
    /// The session to be closed with the wait, if it was made for this campaign.
    passing: Option<SessionId>,
}

/// The entry of one waiting campaign in the list.
#[derive(Debug)]
pub(super) struct Place {
    session: SessionNo,
    id: u64,
    /// Rings when the campaign may have been decided.
    pub(super) bell: Arc<Notify>,
}

impl Waiting {
    pub(super) fn join(&mut self, session: SessionNo, passing: Option<SessionId>) -> Place {
        let (id, bell) = (self.next_id, Arc::new(Notify::new()));
        self.next_id += 1;
        let waiter = Waiter { id, bell: Arc::clone(&bell), passing };
        self.by_session.entry(session).or_default().push(waiter);
        Place { session, id, bell }
    }

    pub(super) fn leave(&mut self, place: &Place) {
        if let Some(waiters) = self.by_session.get_mut(&place.session) {
            waiters.retain(|waiter| waiter.id != place.id);
            if waiters.is_empty() {
                self.by_session.remove(&place.session);
            }
        }
    }

    pub(super) fn wake(&self, session: SessionNo) {
        for waiter in self.by_session.get(&session).into_iter().flatten() {
            waiter.bell.notify_one();
        }
    }

    pub(super) fn wake_all(&self) {
        for waiter in self.by_session.values().flatten() {
            waiter.bell.notify_one();
        }
    }

    /// The sessions that were made for a waiting campaign.
    pub(super) fn passing(&self) -> Vec<SessionId> {
        self.by_session.values().flatten().filter_map(|waiter| waiter.passing).collect()
    }
}
