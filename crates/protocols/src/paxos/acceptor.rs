//! The acceptor: keeps its word. What it promises and accepts is durable before it is said.

use std::collections::BTreeMap;

use super::{Ballot, Paxon, Paxos};
use crate::{NodeId, Out};

/// What an acceptor has promised and accepted in one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    promised: Option<Ballot>,
    accepted: Option<(Ballot, NodeId)>,
}

/// The same for every epoch that is not known to be decided.
pub type Slots = BTreeMap<u64, Slot>;

/// An acceptor.
#[derive(Clone, Debug)]
pub(super) struct Acceptor {
    slots: Slots,
}

impl Acceptor {
    pub(super) const fn new(slots: Slots) -> Self {
        Self { slots }
    }

    pub(super) fn prepare(
        &mut self,
        epoch: u64,
        ballot: Ballot,
        from: NodeId,
        out: &mut Out<Paxos>,
    ) {
        let slot = self.slots.entry(epoch).or_default();
        if let Some(promised) = slot.promised.filter(|promised| *promised > ballot) {
            return out.send(from, Paxon::Nack(epoch, promised));
        }
        slot.promised = Some(ballot);
        out.send(from, Paxon::Promise(epoch, ballot, slot.accepted));
        out.keep(self.slots.clone());
    }

    pub(super) fn accept(
        &mut self,
        epoch: u64,
        ballot: Ballot,
        name: NodeId,
        from: NodeId,
        learners: impl IntoIterator<Item = NodeId>,
        out: &mut Out<Paxos>,
    ) {
        let slot = self.slots.entry(epoch).or_default();
        if let Some(promised) = slot.promised.filter(|promised| *promised > ballot) {
            return out.send(from, Paxon::Nack(epoch, promised));
        }
        *slot = Slot { promised: Some(ballot), accepted: Some((ballot, name)) };
        out.send_all(learners, &Paxon::Accepted(epoch, ballot, name));
        out.keep(self.slots.clone());
    }

    /// Epochs below a decided one are never asked about again: whoever does is told of the later one.
    pub(super) fn forget_before(&mut self, epoch: u64) {
        self.slots = self.slots.split_off(&epoch);
    }
}
