//! What the handles of a session know without asking: who leads, as the watch has seen it, the session's secret, and what
//! keeps it from standing.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use regent_election::participant::Reply;
use regent_election::store::{StoreError, StoreResult};
use regent_election::{Group, Moment, Refusal, Revision, SessionId};
use tokio::sync::mpsc;

use crate::backend::ObservedLeader;

/// The newest sight of every group that is watched.
#[derive(Debug, Default)]
pub(crate) struct Known {
    inside: Mutex<Inside>,
    /// What proves the session to whoever signs its terms.
    session: Mutex<Option<SessionId>>,
    obstacle: Mutex<Obstacle>,
}

/// Why this process may not be standing.
#[derive(Debug, Default)]
struct Obstacle {
    /// The last request had no answer, or one that says that the store cannot be asked.
    unavailable: Option<StoreError>,
    /// The last campaign, or the last opening of a session, was refused.
    refused: Option<Refusal>,
}

#[derive(Debug, Default)]
struct Inside {
    seen: BTreeMap<Group, (ObservedLeader, Moment)>,
    listeners: Vec<(Group, mpsc::UnboundedSender<ObservedLeader>)>,
}

impl Known {
    /// Notes the secret of the session that is opened next.
    pub(crate) fn note_session(&self, session: SessionId) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }

    /// The secret of the newest session. A term of an earlier one is not its own, and the store says so.
    pub(crate) fn session(&self) -> Option<SessionId> {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how a request ended; `stands` says that it opened a session or campaigned.
    pub(crate) fn note_answer(&self, stands: bool, answer: &StoreResult<Reply>) {
        let mut obstacle = self.obstacle.lock().unwrap_or_else(PoisonError::into_inner);
        obstacle.unavailable = match answer {
            Ok(_) | Err(StoreError::Refused(_)) => None,
            Err(error) => Some(error.clone()),
        };
        match answer {
            Ok(_) if stands => obstacle.refused = None,
            Err(StoreError::Refused(refusal)) if stands => {
                obstacle.refused = Some(refusal.clone());
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// What keeps this process from standing, as far as the last answers say.
    #[cfg_attr(not(feature = "tools"), allow(dead_code, reason = "asked by `tools` only"))]
    pub(crate) fn obstacle(&self) -> Option<StoreError> {
        let obstacle = self.obstacle.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = || obstacle.refused.clone().map(StoreError::Refused);
        obstacle.unavailable.clone().or_else(refused)
    }

    /// Notes a sight that was true no later than `at`. One that is older than what is known says
    /// nothing; the same again says that it still holds.
    pub(crate) fn note(&self, sight: ObservedLeader, at: Moment) {
        let mut inside = self.inside();
        let before = inside.seen.get(&sight.group);
        if before.is_some_and(|(known, _)| known.revision > sight.revision) {
            return;
        }
        let is_news = before
            .is_none_or(|(known, _)| (&known.leader, known.term) != (&sight.leader, sight.term));
        if is_news {
            inside.listeners.retain(|(group, sender)| {
                *group != sight.group || sender.send(sight.clone()).is_ok()
            });
        }
        let at = inside.seen.get(&sight.group).map_or(at, |(_, before)| at.max(*before));
        inside.seen.insert(sight.group.clone(), (sight, at));
    }

    /// The newest sight of a group and when it was known to be true.
    pub(crate) fn get(&self, group: &Group) -> Option<(ObservedLeader, Moment)> {
        self.inside().seen.get(group).cloned()
    }

    /// The revision of what is known of a group.
    pub(crate) fn revision(&self, group: &Group) -> Option<Revision> {
        self.inside().seen.get(group).map(|(sight, _)| sight.revision)
    }

    /// Hears of every change in a group from now on, beginning with what is known.
    pub(crate) fn listen(&self, group: &Group) -> mpsc::UnboundedReceiver<ObservedLeader> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.subscribe(group, &sender);
        receiver
    }

    /// Sends every change in a group from now on, beginning with what is known.
    pub(crate) fn subscribe(
        &self,
        group: &Group,
        listener: &mpsc::UnboundedSender<ObservedLeader>,
    ) {
        self.unsubscribe(listener);
        let mut inside = self.inside();
        if let Some((sight, _)) = inside.seen.get(group) {
            let _ = listener.send(sight.clone());
        }
        inside.listeners.push((group.clone(), listener.clone()));
    }

    /// Sends nothing more there.
    pub(crate) fn unsubscribe(&self, listener: &mpsc::UnboundedSender<ObservedLeader>) {
        self.inside()
            .listeners
            .retain(|(_, known)| !known.is_closed() && !known.same_channel(listener));
    }

    /// Forgets a group that nobody watches any more.
    pub(crate) fn forget(&self, group: &Group) {
        self.inside().seen.remove(group);
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // What is in there is replaced whole, so a panic elsewhere leaves nothing half done.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
