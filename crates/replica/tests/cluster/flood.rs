//! One member asks without end, with valid credentials: what the others ask for is answered as before.

use raft::eraftpb::{Message, MessageType};
use regent_election::state::Query;
use regent_replica::ReplicaId;
use regent_replica::io::{PeerMessage, Request, Response};

use crate::bench::{Cluster, heartbeat, id, open};
use crate::hostile::entry;

/// A question for a read round, with a context that its sender has not used before.
fn question(from: ReplicaId, to: ReplicaId, number: u64) -> PeerMessage {
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgReadIndex);
    (message.from, message.to) = (from.get(), to.get());
    let context = [from.get(), 1 << 20, number].map(u64::to_le_bytes).concat();
    message.set_entries(vec![entry(0, 0, &context)].into());
    PeerMessage::Raft(Box::new(message))
}

#[test]
fn a_member_that_begins_rounds_without_end_keeps_nobody_from_reading() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 60_000)).unwrap();
    cluster.run(100);
    cluster.is_attacked = true;
    let rest: Vec<_> = (1..=3).map(id).filter(|other| *other != leader).collect();
    let (hostile, honest) = (rest[0], rest[1]);
    let mut tokens = Vec::new();
    for replica in [honest, leader] {
        let read = Request::Read { query: Query::Census, linearizable: true };
        tokens.push(cluster.ask(replica, read));
        tokens.push(cluster.ask(replica, heartbeat(1)));
    }
    // Less than the time after which a replica begins its round again.
    for step in 0..50 {
        for number in 0..1100 {
            let asked = question(hostile, leader, step * 1100 + number);
            cluster.deliver(hostile, leader, asked);
        }
        cluster.step();
    }
    for token in tokens {
        let answer = cluster.answers.remove(&token);
        let is_answered =
            matches!(answer, Some(Response::View { .. } | Response::Heartbeat { .. }));
        assert!(is_answered, "{answer:?}");
    }
}
