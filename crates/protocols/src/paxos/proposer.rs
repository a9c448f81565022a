//! The proposer: one ballot of one node for one epoch.

use std::collections::BTreeSet;

use super::Ballot;
use crate::NodeId;

/// A ballot on its way.
#[derive(Clone, Debug)]
pub(super) struct Proposer {
    epoch: u64,
    ballot: Ballot,
    majority: usize,
    promises: BTreeSet<NodeId>,
    /// The name of the highest ballot that a promise told of: it may have been chosen.
    bound: Option<(Ballot, NodeId)>,
    has_asked: bool,
    highest_round: u64,
}

impl Proposer {
    pub(super) const fn new(epoch: u64, ballot: Ballot, majority: usize) -> Self {
        let highest_round = ballot.round;
        let promises = BTreeSet::new();
        Self { epoch, ballot, majority, promises, bound: None, has_asked: false, highest_round }
    }

    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The highest round that it has heard of: the next try must be above it.
    pub(super) const fn highest_round(&self) -> u64 {
        self.highest_round
    }

    /// A promise has come; the name to be accepted, when they are a majority.
    pub(super) fn promised(
        &mut self,
        epoch: u64,
        ballot: Ballot,
        from: NodeId,
        accepted: Option<(Ballot, NodeId)>,
        own: NodeId,
    ) -> Option<NodeId> {
        if (epoch, ballot) != (self.epoch, self.ballot) || self.has_asked {
            return None;
        }
        self.promises.insert(from);
        self.bound = self.bound.max(accepted);
        if self.promises.len() < self.majority {
            return None;
        }
        self.has_asked = true;
        Some(self.bound.map_or(own, |(_, name)| name))
    }

    /// Somebody has promised a higher ballot; whether this one is thereby lost.
    pub(super) fn refused(&mut self, epoch: u64, promised: Ballot) -> bool {
        let is_lost = epoch == self.epoch && promised > self.ballot;
        if is_lost {
            self.highest_round = self.highest_round.max(promised.round);
        }
        is_lost
    }
}
