//! Where a replica tells what it applies: the port of a flight recorder.
//!
//! It is told everything once it is applied, in order, on the core's thread. What it makes of that is its
//! own affair; the replica never waits for it and never asks it anything.

use std::fmt;

use regent_election::Revision;
use regent_election::deed::DeedRecord;

use crate::member::ReplicaId;

/// Who leads the log, as one replica knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLeader {
    /// When that was noticed, on the wall clock: a note for people.
    pub wall_ms: u64,
    /// Who; none while nobody is known to.
    pub leader: Option<ReplicaId>,
    /// In which of Raft's terms.
    pub raft_term: u64,
    pub voters: Vec<ReplicaId>,
}

/// A recorder. None of its functions may block: whoever cannot keep up drops, and says so.
pub trait Tape: Send + Sync + fmt::Debug {
    /// An entry was applied and changed something. After a restart the last ones come once more.
    fn record(&self, record: DeedRecord);

    /// A snapshot took the place of everything up to this revision: what led there is not known here.
    fn leap(&self, to: Revision);

    /// The leader of the log, or who votes, is another.
    fn log_leader(&self, leader: LogLeader);
}
