//! What a data directory starts with.

use raft::eraftpb::{ConfState, HardState, SnapshotMetadata};
use regent_election::Settings;

use super::wal::payload::Summary;
use crate::member::Members;
use crate::replicated::ReplicatedState;

/// The first snapshot and the first hard state.
#[derive(Clone, Debug)]
pub struct Founding {
    /// Where the snapshot stands.
    pub place: SnapshotMetadata,
    /// What it holds.
    pub replicated: ReplicatedState,
    /// Raft term, vote and commit.
    pub hard_state: HardState,
}

impl Founding {
    /// A cluster with these members, all of them voters. The same for each of them: index 1 of Raft
    /// term 1 is what they all agree on without having talked.
    #[must_use]
    pub fn cluster(settings: Settings, members: Members) -> Self {
        Self::restored(ReplicatedState::found(settings, members))
    }

    /// A cluster that starts with this whole, whose members are all voters: one that was restored.
    #[must_use]
    pub fn restored(replicated: ReplicatedState) -> Self {
        let mut voters = ConfState::default();
        voters.voters = replicated.members.keys().map(|id| id.get()).collect();
        let mut place = SnapshotMetadata::default();
        (place.index, place.term) = (1, 1);
        place.set_conf_state(voters);
        let mut hard_state = HardState::default();
        (hard_state.term, hard_state.commit) = (1, 1);
        Self { place, replicated, hard_state }
    }

    /// What the log opens with.
    pub(super) fn summary(&self) -> Summary {
        let last = (self.place.index, self.place.term);
        Summary { hard_state: self.hard_state.clone(), boot: 0, last }
    }

    /// A replica that joins: it knows of no members, counts for nothing, and is told everything.
    #[must_use]
    pub fn joining() -> Self {
        Self {
            place: SnapshotMetadata::default(),
            replicated: ReplicatedState::found(Settings::default(), Members::new()),
            hard_state: HardState::default(),
        }
    }
}
