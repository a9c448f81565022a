//! A hostile member that says what only a leader, a candidate or a large cluster could say.
//!
//! Who wins an election decides what is in the log, and Raft cannot help it. These are the shapes in which a member gets
//! there, or stops a replica, without an election.

use raft::eraftpb::MessageType;
use regent_replica::Role;

use crate::hostile::{Scene, entry};

/// An entry of before comes back while the disk still writes it for the first time. What the disk then confirms is
/// the first writing, and not the log of now.
#[test]
fn a_log_that_changed_twice_while_its_disk_wrote_is_not_durable() {
    let mut scene = Scene::new();
    for link in [(scene.other, scene.victim), (scene.victim, scene.other)] {
        scene.cluster.cut.insert(link);
    }
    scene.cluster.stall(scene.victim);
    let (last, term) = (scene.status().last, scene.status().raft_term);
    for (sent_in, made_in) in [(1, 1), (2, 2), (3, 1)] {
        scene.send(MessageType::MsgAppend, |message| {
            message.term = term + sent_in;
            (message.index, message.log_term) = (last, term);
            message.set_entries(vec![entry(last + 1, term + made_in, b"")].into());
        });
    }
    scene.cluster.write_first(scene.victim);
    scene.send(MessageType::MsgTimeoutNow, |_| {});
    scene.send(MessageType::MsgRequestVoteResponse, |message| message.term = term + 4);
    assert_ne!(scene.status().role, Role::Leader, "its disk may forget its log");
    scene.cluster.unstall(scene.victim);
    scene.cluster.cut.clear();
    scene.others_serve();
}
