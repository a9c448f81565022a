//! Who leads a group, as the session's own watch has seen it: no request and no second watch.

use std::time::Duration;

use regent_election::{Group, Metadata, NameError, Node, Term};
use tokio::sync::mpsc;

use crate::backend::ObservedLeader;
use crate::regent::{Regent, ToGroup};
use crate::session::Command;

/// Who leads a group, and how old that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Current {
    /// Who leads; none is an answer, too.
    pub leader: Option<Node>,
    /// The leader's term, or the last one granted.
    pub term: Term,
    /// What the leader tells about itself.
    pub metadata: Metadata,
    /// How long ago this was known to be true.
    pub age: Duration,
}

impl Current {
    pub(crate) fn of(sight: ObservedLeader, age: Duration) -> Self {
        let ObservedLeader { leader, term, metadata, .. } = sight;
        Self { leader, term, metadata, age }
    }
}

/// Tells who leads one group: first what is known, then every change. It follows the group to another
/// store. The session watches the group while this lives, once for all that watch it or stand in it.
///
/// A watch is a hint and late by its nature: it is for people and for what must be quick, not for deciding
/// who may act.
#[derive(Debug)]
pub struct LeaderWatch {
    regent: Regent,
    group: Group,
    sights: mpsc::UnboundedReceiver<ObservedLeader>,
}

impl Regent {
    /// Watches who leads `group`. Whether this process stands there makes no difference.
    pub fn watch_leader(&self, group: impl ToGroup) -> Result<LeaderWatch, NameError> {
        let group = group.to_group()?;
        let (sender, sights) = mpsc::unbounded_channel();
        // In this order: a group that moves in between is heard of from its new home.
        self.followed().watch(&group, &sender);
        self.home_of(&group).known.subscribe(&group, &sender);
        self.session().command(Command::Observe(group.clone()));
        Ok(LeaderWatch { regent: self.clone(), group, sights })
    }

    pub(crate) fn known_leader(&self, group: &Group) -> Option<Current> {
        let session = self.home_of(group);
        let (sight, at) = session.known.get(group)?;
        Some(Current::of(sight, session.now().since(at)))
    }
}

impl LeaderWatch {
    /// Who leads, as far as the watch has told; none before it has told anything.
    #[must_use]
    pub fn known(&self) -> Option<Current> {
        self.regent.known_leader(&self.group)
    }

    /// The next change, or at first what is known. Waits for ever once the session is closed. Safe to drop
    /// and to call again.
    pub async fn next(&mut self) -> Current {
        match self.sights.recv().await {
            Some(sight) => Current::of(sight, Duration::ZERO),
            None => std::future::pending().await,
        }
    }
}

impl Drop for LeaderWatch {
    fn drop(&mut self) {
        self.regent.session().command(Command::Unobserve(self.group.clone()));
    }
}
