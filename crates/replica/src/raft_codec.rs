//! Raft's own types on our wire and disk.
//!
//! The library brings protobuf types; nothing here ever parses protobuf. Bytes from a peer or a disk
//! go through this codec only, which bounds every length, and [`crate::core::admit`] keeps from the
//! library what would make it panic. A change of members travels in the entry's `context`, written by
//! [`crate::member`], so that its protobuf form in `data` is only ever read by the process that
//! wrote it.

use raft::eraftpb::{
    ConfState, Entry, EntryType, HardState, Message, MessageType, Snapshot, SnapshotMetadata,
};
use regent_election::codec::{CodecError, Input, Wire, put_block};

fn entry_tag(kind: EntryType) -> u8 {
    match kind {
        EntryType::EntryNormal => 1,
        EntryType::EntryConfChange => 2,
        EntryType::EntryConfChangeV2 => 3,
    }
}

fn entry_kind(tag: u8) -> Result<EntryType, CodecError> {
    match tag {
        1 => Ok(EntryType::EntryNormal),
        2 => Ok(EntryType::EntryConfChange),
        3 => Ok(EntryType::EntryConfChangeV2),
        tag => Err(CodecError::Unknown { what: "a kind of log entry", tag: tag.into() }),
    }
}

/// Appends a log entry: kind, Raft term, index, data, context.
pub fn put_entry(entry: &Entry, out: &mut Vec<u8>) {
    out.push(entry_tag(entry.entry_type));
    entry.term.put(out);
    entry.index.put(out);
    put_block(&entry.data, out);
    put_block(&entry.context, out);
}

/// Reads what [`put_entry`] wrote.
pub fn take_entry(input: &mut Input<'_>) -> Result<Entry, CodecError> {
    let mut entry = Entry::default();
    entry.set_entry_type(entry_kind(u8::take(input)?)?);
    entry.term = u64::take(input)?;
    entry.index = u64::take(input)?;
    entry.data = input.block("an entry's data")?.to_vec().into();
    entry.context = input.block("an entry's context")?.to_vec().into();
    Ok(entry)
}

/// Appends term, vote and commit.
pub fn put_hard_state(hard_state: &HardState, out: &mut Vec<u8>) {
    hard_state.term.put(out);
    hard_state.vote.put(out);
    hard_state.commit.put(out);
}

/// Reads what [`put_hard_state`] wrote.
pub fn take_hard_state(input: &mut Input<'_>) -> Result<HardState, CodecError> {
    let mut hard_state = HardState::default();
    hard_state.term = u64::take(input)?;
    hard_state.vote = u64::take(input)?;
    hard_state.commit = u64::take(input)?;
    Ok(hard_state)
}

/// Appends the members.
pub fn put_conf_state(members: &ConfState, out: &mut Vec<u8>) {
    members.voters.put(out);
    members.learners.put(out);
    members.voters_outgoing.put(out);
    members.learners_next.put(out);
    members.auto_leave.put(out);
}

/// Reads what [`put_conf_state`] wrote.
pub fn take_conf_state(input: &mut Input<'_>) -> Result<ConfState, CodecError> {
    let mut members = ConfState::default();
    members.voters = Wire::take(input)?;
    members.learners = Wire::take(input)?;
    members.voters_outgoing = Wire::take(input)?;
    members.learners_next = Wire::take(input)?;
    members.auto_leave = Wire::take(input)?;
    Ok(members)
}

/// Appends where a snapshot stands.
pub fn put_snapshot_metadata(metadata: &SnapshotMetadata, out: &mut Vec<u8>) {
    put_conf_state(metadata.get_conf_state(), out);
    metadata.index.put(out);
    metadata.term.put(out);
}

/// Reads what [`put_snapshot_metadata`] wrote.
pub fn take_snapshot_metadata(input: &mut Input<'_>) -> Result<SnapshotMetadata, CodecError> {
    let mut metadata = SnapshotMetadata::default();
    metadata.set_conf_state(take_conf_state(input)?);
    metadata.index = u64::take(input)?;
    metadata.term = u64::take(input)?;
    Ok(metadata)
}

/// Every kind of message that may travel, with its tag. Local ones have none.
const MESSAGES: [(u8, MessageType); 13] = [
    (1, MessageType::MsgAppend),
    (2, MessageType::MsgAppendResponse),
    (3, MessageType::MsgRequestVote),
    (4, MessageType::MsgRequestVoteResponse),
    (5, MessageType::MsgSnapshot),
    (6, MessageType::MsgHeartbeat),
    (7, MessageType::MsgHeartbeatResponse),
    (8, MessageType::MsgTransferLeader),
    (9, MessageType::MsgTimeoutNow),
    (10, MessageType::MsgReadIndex),
    (11, MessageType::MsgReadIndexResp),
    (12, MessageType::MsgRequestPreVote),
    (13, MessageType::MsgRequestPreVoteResponse),
];

/// Whether a message of this kind may travel at all.
#[must_use]
pub fn travels(kind: MessageType) -> bool {
    MESSAGES.iter().any(|(_, known)| *known == kind)
}

/// Appends a message; one of a kind that may not travel is a broken invariant.
pub fn put_message(message: &Message, out: &mut Vec<u8>) {
    let tag = MESSAGES
        .iter()
        .find(|(_, kind)| *kind == message.msg_type)
        .map(|(tag, _)| *tag)
        .expect("the core sends no local messages");
    out.push(tag);
    for number in [
        message.to,
        message.from,
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.request_snapshot,
        message.reject_hint,
    ] {
        number.put(out);
    }
    message.reject.put(out);
    put_block(&message.context, out);
    (message.entries.len() as u64).put(out);
    for entry in message.entries.iter() {
        put_entry(entry, out);
    }
    message.has_snapshot().put(out);
    if message.has_snapshot() {
        put_snapshot_metadata(message.get_snapshot().get_metadata(), out);
        put_block(&message.get_snapshot().data, out);
    }
}

/// Reads what [`put_message`] wrote.
pub fn take_message(input: &mut Input<'_>) -> Result<Message, CodecError> {
    let tag = u8::take(input)?;
    let kind = MESSAGES.iter().find(|(known, _)| *known == tag).map(|(_, kind)| *kind);
    let mut message = Message::default();
    message.set_msg_type(kind.ok_or(CodecError::Unknown { what: "a message", tag: tag.into() })?);
    for field in [
        &mut message.to,
        &mut message.from,
        &mut message.term,
        &mut message.log_term,
        &mut message.index,
        &mut message.commit,
        &mut message.commit_term,
        &mut message.request_snapshot,
        &mut message.reject_hint,
    ] {
        *field = u64::take(input)?;
    }
    message.reject = bool::take(input)?;
    message.context = input.block("a message's context")?.to_vec().into();
    let mut entries = Vec::new();
    for _ in 0..input.count("a message's entries")? {
        entries.push(take_entry(input)?);
    }
    message.set_entries(entries.into());
    if bool::take(input)? {
        let mut snapshot = Snapshot::default();
        snapshot.set_metadata(take_snapshot_metadata(input)?);
        snapshot.data = input.block("a snapshot's handle")?.to_vec().into();
        message.set_snapshot(snapshot);
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append() -> Message {
        let mut entry = Entry::default();
        entry.term = 3;
        entry.index = 8;
        entry.data = vec![1, 2, 3].into();
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgAppend);
        (message.from, message.to, message.term, message.index) = (1, 2, 3, 7);
        message.set_entries(vec![entry].into());
        message
    }

    #[test]
    fn messages_survive_the_wire_and_every_cut_is_an_error() {
        let mut out = Vec::new();
        put_message(&append(), &mut out);
        let mut input = Input::new(&out);
        assert_eq!(take_message(&mut input), Ok(append()));
        assert_eq!(input.end(), Ok(()));
        for cut in 0..out.len() {
            assert!(take_message(&mut Input::new(&out[..cut])).is_err());
        }
    }
}
