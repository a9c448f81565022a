//! What comes from other replicas, and from processes of a storeless election.

use regent_replica::core::{LocalRaft, admit, admit_snapshot};
use regent_replica::io::PeerMessage;
use regent_replica::replicated::ReplicatedState;

/// A greeting and frames.
pub(crate) fn link(bytes: &[u8]) {
    regent_replica::peers::fuzzing::link(bytes);
}

/// A message, and what a replica's admission says to it. What Raft makes of what was admitted is fuzzed by the
/// tests of `regent-replica`, with whole clusters.
pub(crate) fn message(bytes: &[u8]) {
    let Ok(message) = PeerMessage::decode(bytes) else { return };
    let mut again = Vec::new();
    message.put(&mut again);
    let mut twice = Vec::new();
    PeerMessage::decode(&again).map(|message| message.put(&mut twice)).unwrap_or_default();
    assert_eq!(again, twice, "a message is not read as it was written");
    let _ = message.records_bytes();
    let PeerMessage::Raft(message) = message else { return };
    for (term, last, leader) in [(1, 0, 0), (5, 10, 2), (5, 10, 3)] {
        let term_of = |index: u64| if index <= last { term.min(index) } else { 0 };
        let local = LocalRaft {
            id: 1,
            term,
            is_leader: leader == 0 && last > 0,
            leader,
            has_voters: last > 0,
            knows_sender: true,
            last,
            committed: last / 2,
            is_durable: true,
            may_campaign: true,
            read_rounds: 0,
            term_of: &term_of,
        };
        let _ = admit(&local, 2, &message);
        if let Ok(replicated) = ReplicatedState::decode(&message.get_snapshot().data) {
            let revision = replicated.state.revision();
            let _ = admit_snapshot(&local, 2, &message, &replicated, revision);
        }
    }
}

/// A datagram.
pub(crate) fn datagram(bytes: &[u8]) {
    regent_peer::fuzz(bytes);
}
