//! How far the log was durable, told apart from it.
//!
//! A record says how far the log was durable when it was written, so only the last ones have nobody
//! to speak for them. This file speaks for them: after every sync the number of the last durable
//! record is written here, and *not* synced. When only the process dies, the mark is exact; after a
//! power cut it may be some seconds old, which is safe, since a lower mark claims less. A log that
//! ends before the mark has lost something it had promised, be it a zeroed block, a file that
//! somebody removed, or a restored copy of an older day: it is refused.
//!
//! The road not taken: one more sync per batch would make the mark exact always, and every commit
//! twice as slow.
//!
//! Three slots of one sector each, at bytes 0, 512 and 1024:
//!
//! | byte | field |
//! |---|---|
//! | 0 | whose it is (see `identity`), kind `regntack`, version 1 |
//! | 48 | u64 number of a record that was durable |
//! | 56 | u32 checksum of the 56 bytes above |
//!
//! The highest number counts. Every start writes and syncs one slot, never the one that counts, and
//! from then on the other two take turns: a power cut in the middle of a write always leaves a good one.

use std::sync::Arc;

use super::bytes::{checksum, u32_at, u64_at};
use super::error::{DataDirError, Trying, WriteError};
use super::files::{Files, OpenFile, SECTOR_BYTES};
use super::identity::{Identity, Kind, PREFIX_BYTES};
use super::names::ACKED;

const KIND: Kind = Kind { magic: *b"regntack", version: 1 };
const SLOT_BYTES: usize = 60;
const SLOTS: usize = 3;

/// The file, open for marks.
#[derive(Debug)]
pub(super) struct Acked {
    files: Arc<dyn Files>,
    file: Box<dyn OpenFile>,
    identity: Identity,
    /// The slot that was synced at the start, and the one to be written next.
    home: usize,
    turn: usize,
}

/// The highest mark, whose it is, and its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) identity: Identity,
    pub(super) number: u64,
    slot: usize,
}

/// Whether this is a file that was made and never written again, in whole or in part: every start
/// writes a second slot.
pub(super) fn is_unstarted(bytes: &[u8]) -> bool {
    bytes.len() <= SLOT_BYTES && bytes.iter().skip(PREFIX_BYTES).take(8).all(|byte| *byte == 0)
}

/// Reads the highest mark.
pub(super) fn read(files: &dyn Files) -> Result<Mark, DataDirError> {
    let bytes = files.read(ACKED, 1 << 20).opening("read", files, ACKED)?;
    let path = files.path(ACKED);
    let mut best: Option<Mark> = None;
    for slot in 0..SLOTS {
        let at = slot * SECTOR_BYTES;
        let Some(bytes) = bytes.get(at..at + SLOT_BYTES) else { continue };
        if bytes[..8] != KIND.magic || checksum(0, &bytes[..56]) != u32_at(bytes, 56) {
            continue;
        }
        let (identity, number) = (Identity::take(KIND, bytes, &path)?, u64_at(bytes, 48));
        if best.is_none_or(|best| best.number < number) {
            best = Some(Mark { identity, number, slot });
        }
    }
    best.ok_or_else(|| DataDirError::damaged(&path, 0, "none of its marks matches its checksum"))
}

impl Acked {
    /// Makes the file for good; its name is the caller's to sync.
    pub(super) fn create(files: &dyn Files, identity: Identity) -> Result<(), WriteError> {
        let mut file = files.create(ACKED).writing("make", files, ACKED)?;
        file.write_at(0, &slot(&identity, 0)).writing("write", files, ACKED)?;
        file.sync_data().writing("sync", files, ACKED)
    }

    /// Opens the file and makes a mark durable at this record.
    pub(super) fn open(
        files: Arc<dyn Files>,
        found: Mark,
        number: u64,
    ) -> Result<Self, WriteError> {
        let mut file = files.open(ACKED).writing("open", &*files, ACKED)?;
        // The mark that counts must be durable before another one is written over.
        file.sync_data().writing("sync", &*files, ACKED)?;
        let home = (found.slot + 1) % SLOTS;
        let mut acked = Self { files, file, identity: found.identity, home, turn: home };
        acked.mark(number)?;
        acked.sync()?;
        Ok(acked)
    }

    /// Everything up to this record is durable.
    pub(super) fn mark(&mut self, number: u64) -> Result<(), WriteError> {
        let at = (self.turn * SECTOR_BYTES) as u64;
        self.turn = (self.turn + 1) % SLOTS;
        if self.turn == self.home {
            self.turn = (self.turn + 1) % SLOTS;
        }
        let slot = slot(&self.identity, number);
        self.file.write_at(at, &slot).writing("write", &*self.files, ACKED)
    }

    /// Makes the last mark durable, for a clean end.
    pub(super) fn sync(&mut self) -> Result<(), WriteError> {
        self.file.sync_data().writing("sync", &*self.files, ACKED)
    }
}

fn slot(identity: &Identity, number: u64) -> Vec<u8> {
    let mut slot = Vec::with_capacity(SLOT_BYTES);
    identity.put(KIND, &mut slot);
    slot.extend(number.to_le_bytes());
    let sum = checksum(0, &slot);
    slot.extend(sum.to_le_bytes());
    slot
}
