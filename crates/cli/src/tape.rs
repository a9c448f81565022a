//! The flight recorder, connected to the port through which a replica reports what it applies.

use regent_election::Revision;
use regent_election::deed::DeedRecord;
use regent_recording::{RaftRow, Recorder};
use regent_replica::{LogLeader, ReplicaId, Tape};

/// The flight recorder behind the replica's port.
#[derive(Debug)]
pub(crate) struct FlightTape(pub(crate) Recorder);

impl Tape for FlightTape {
    fn record(&self, record: DeedRecord) {
        self.0.record(record);
    }

    fn leap(&self, to: Revision) {
        self.0.leap(to);
    }

    fn log_leader(&self, leader: LogLeader) {
        let LogLeader { wall_ms, leader, raft_term, voters } = leader;
        self.0.log_leader(RaftRow {
            at_ms: wall_ms,
            leader: leader.map(ReplicaId::get),
            raft_term,
            voters: voters.into_iter().map(ReplicaId::get).collect(),
        });
    }
}
