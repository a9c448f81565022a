//! The learner: finds out what was chosen.

use std::collections::{BTreeMap, BTreeSet};

use super::Ballot;
use crate::NodeId;

/// A learner.
#[derive(Clone, Debug)]
pub(super) struct Learner {
    majority: usize,
    /// The last epoch that is known to be decided, and its leader.
    decided: Option<(u64, NodeId)>,
    /// Of later epochs: who has accepted in which ballot.
    heard: BTreeMap<(u64, Ballot), BTreeSet<NodeId>>,
}

impl Learner {
    pub(super) const fn new(majority: usize) -> Self {
        Self { majority, decided: None, heard: BTreeMap::new() }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.decided.map_or(0, |(epoch, _)| epoch)
    }

    pub(super) fn leader(&self) -> Option<NodeId> {
        self.decided.map(|(_, leader)| leader)
    }

    /// An acceptor has accepted; the name, if it is thereby chosen. One ballot has one name only.
    pub(super) fn accepted(
        &mut self,
        epoch: u64,
        ballot: Ballot,
        name: NodeId,
        from: NodeId,
    ) -> Option<NodeId> {
        if epoch <= self.epoch() {
            return None;
        }
        let heard = self.heard.entry((epoch, ballot)).or_default();
        heard.insert(from);
        (heard.len() >= self.majority).then_some(name)
    }

    /// Takes an epoch for decided; whether that was news.
    pub(super) fn decide(&mut self, epoch: u64, leader: NodeId) -> bool {
        if epoch <= self.epoch() {
            return false;
        }
        self.decided = Some((epoch, leader));
        self.heard.retain(|(of, _), _| *of > epoch);
        true
    }
}
