//! What the records of the log hold.
//!
//! **Opening** (the first record of a segment; everything a reader needs from the segments before
//! it, so that those can go), six u64, little-endian: Raft term, vote, commit, boot, index of the
//! last entry, Raft term of the last entry.
//!
//! **Boot**: one u64, the number of a run of this replica.
//!
//! **Batch** (what the core asked to keep in one piece; numbers as in `regent_election::codec`): a
//! snapshot's place that the log starts after (option of index, Raft term), the hard state (option of
//! Raft term, vote, commit), the entries (count, then each as in `raft_codec`). Entries at and behind
//! the first one's index give way; a snapshot's place makes all of them give way. A batch is one
//! record, so it is there whole or not at all.

use raft::eraftpb::{Entry, HardState};
use regent_election::codec::{CodecError, Input, Wire};

use super::super::bytes::u64_at;
use crate::io::Batch;
use crate::raft_codec::{put_entry, put_hard_state, take_entry, take_hard_state};

/// Bytes of an opening.
pub(crate) const OPENING_BYTES: usize = 48;

/// What the log amounts to at some place, but for the entries themselves.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Summary {
    pub(crate) hard_state: HardState,
    pub(crate) boot: u64,
    /// Index and Raft term of the last entry.
    pub(crate) last: (u64, u64),
}

/// A batch as it was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Kept {
    /// The log starts after this index and Raft term.
    pub(crate) restored: Option<(u64, u64)>,
    pub(crate) hard_state: Option<HardState>,
    pub(crate) entries: Vec<Entry>,
}

impl Summary {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let HardState { term, vote, commit, .. } = self.hard_state;
        for number in [term, vote, commit, self.boot, self.last.0, self.last.1] {
            out.extend(number.to_le_bytes());
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        if bytes.len() != OPENING_BYTES {
            return Err(CodecError::Short("an opening"));
        }
        let mut hard_state = HardState::default();
        hard_state.term = u64_at(bytes, 0);
        hard_state.vote = u64_at(bytes, 8);
        hard_state.commit = u64_at(bytes, 16);
        let last = (u64_at(bytes, 32), u64_at(bytes, 40));
        Ok(Self { hard_state, boot: u64_at(bytes, 24), last })
    }
}

/// Appends a batch; its snapshot stands only by its place, the bytes are a file of their own.
pub(crate) fn put_batch(batch: &Batch, out: &mut Vec<u8>) {
    let restored = batch.snapshot.as_ref().map(|(place, _)| (place.index, place.term));
    put_parts(restored, batch.hard_state.as_ref(), &batch.entries, out);
}

/// Appends a batch in parts.
pub(crate) fn put_parts(
    restored: Option<(u64, u64)>,
    hard_state: Option<&HardState>,
    entries: &[Entry],
    out: &mut Vec<u8>,
) {
    restored.put(out);
    hard_state.is_some().put(out);
    if let Some(hard_state) = hard_state {
        put_hard_state(hard_state, out);
    }
    (entries.len() as u64).put(out);
    for entry in entries {
        put_entry(entry, out);
    }
}

impl Kept {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut input = Input::new(bytes);
        let restored = Wire::take(&mut input)?;
        let hard_state =
            if bool::take(&mut input)? { Some(take_hard_state(&mut input)?) } else { None };
        let mut entries = Vec::new();
        for _ in 0..input.count("a batch's entries")? {
            entries.push(take_entry(&mut input)?);
        }
        input.end()?;
        Ok(Self { restored, hard_state, entries })
    }
}

/// The payload of a boot.
pub(crate) fn decode_boot(bytes: &[u8]) -> Result<u64, CodecError> {
    if bytes.len() == 8 { Ok(u64_at(bytes, 0)) } else { Err(CodecError::Short("a boot")) }
}
