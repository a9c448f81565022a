//! What a replica says about itself.

use super::Core;
use crate::member::{Members, ReplicaId, failures_survived};

/// What a replica is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It follows, or waits for somebody to follow.
    Follower,
    /// It asks for votes.
    Candidate,
    /// It leads the log.
    Leader,
}

/// A replica's condition, for operators and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Which one it is.
    pub id: ReplicaId,
    /// What it is.
    pub role: Role,
    /// Raft's own term; nothing to do with any group's.
    pub raft_term: u64,
    /// Who leads the log, if that is known.
    pub leader: Option<ReplicaId>,
    /// Whether it leads and may judge sessions.
    pub is_serving: bool,
    /// Whether it votes and keeps the log but no state.
    pub is_witness: bool,
    /// The last entry, the last committed one, the last applied one.
    pub last: u64,
    /// See [`Status::last`].
    pub committed: u64,
    /// See [`Status::last`].
    pub applied: u64,
    /// Where the newest snapshot stands.
    pub snapshot: u64,
    /// Bytes of log in memory.
    pub log_bytes: usize,
    pub members: Members,
    /// The highest number that any member has ever had; zero if it knows of none.
    pub highest: u64,
    pub voters: Vec<ReplicaId>,
    pub learners: Vec<ReplicaId>,
    /// Whether a change of members is half done.
    pub is_joint: bool,
    /// Sessions whose time is over and whose expiry is proposed but not applied; only the leader
    /// knows any.
    pub due_expiries: usize,
    /// As the leader sees it: up to where each replica's log agrees, and whether it was heard lately.
    pub progress: Vec<(ReplicaId, u64, bool)>,
}

impl Status {
    /// How many voters may fail before the rest can no longer decide.
    #[must_use]
    pub const fn failures_survived(&self) -> usize {
        failures_survived(self.voters.len())
    }
}

impl Core {
    /// This replica's condition.
    #[must_use]
    pub fn status(&self) -> Status {
        let raft = &self.node.raft;
        let log = self.node.store();
        let ids = |numbers: &[u64]| numbers.iter().filter_map(|id| ReplicaId::new(*id)).collect();
        let progress = raft.prs().iter().filter_map(|(id, progress)| {
            Some((ReplicaId::new(*id)?, progress.matched, progress.recent_active))
        });
        let mut progress: Vec<_> = progress.collect();
        progress.sort_unstable();
        Status {
            id: self.config.id,
            role: self.role,
            raft_term: raft.term,
            leader: self.leader(),
            is_serving: self.ledger.is_serving(),
            is_witness: self.config.is_witness,
            last: raft.raft_log.last_index(),
            committed: raft.raft_log.committed,
            applied: self.applied,
            snapshot: log.snapshot_place().index,
            log_bytes: log.bytes(),
            members: self.ledger.kept().members.clone(),
            highest: self.ledger.kept().highest,
            voters: ids(&log.members().voters),
            learners: ids(&log.members().learners),
            is_joint: !log.members().voters_outgoing.is_empty(),
            due_expiries: self.ledger.expiring(),
            progress,
        }
    }

    /// What it is at the moment.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Whether it leads and may judge sessions.
    #[must_use]
    pub const fn is_serving(&self) -> bool {
        self.ledger.is_serving()
    }

    /// Raft's own term.
    #[must_use]
    pub fn raft_term(&self) -> u64 {
        self.node.raft.term
    }

    /// The last entry applied.
    #[must_use]
    pub const fn applied(&self) -> u64 {
        self.applied
    }

    /// Whether an entry is half applied: [`Core::replicated`] is then between two revisions.
    #[must_use]
    pub const fn is_between(&self) -> bool {
        self.applying.is_some()
    }

    /// What the replica has applied, for checks and stale reads.
    #[must_use]
    pub const fn replicated(&self) -> &crate::ReplicatedState {
        self.ledger.kept()
    }
}
