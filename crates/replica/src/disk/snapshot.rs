//! Snapshots on disk: one file each, whole or not there.
//!
//! | byte | field |
//! |---|---|
//! | 0 | whose it is (see `identity`), kind `regntsnp`, version 1 |
//! | 48 | u64 bytes of the place |
//! | 56 | u64 bytes of the whole |
//! | 64 | u32 checksum of the 64 bytes above |
//! | 68 | the place: members, index, Raft term, as in `raft_codec` |
//! | … | the whole, as [`ReplicatedState::encode`] gives it |
//! | … | u32 checksum of place and whole, going on from the one above |
//!
//! A file is written beside its name, synced, renamed, and the directory synced, so a power cut never
//! leaves half of one under its name. The newest is used; the one before it stays until the next is
//! there, and with it the log from there on, so that damage to the newest can be repaired.
//!
//! A snapshot of one's own is made from the one before and the entries since, beside the loop: the
//! state in memory is never copied and the loop never waits (semantics 25).

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use raft::eraftpb::{EntryType, SnapshotMetadata};
use regent_election::codec::Input;

use super::bytes::{checksum, u32_at, u64_at};
use super::error::{DataDirError, SnapshotError, Trying, WriteError};
use super::files::Files;
use super::identity::{Identity, Kind};
use super::limits::{SNAPSHOT_BYTES_MAX, SNAPSHOTS_KEPT};
use super::names;
use super::reserve::no_room_or_fatal;
use crate::io::SnapshotTask;
use crate::raft_codec::{put_snapshot_metadata, take_snapshot_metadata};
use crate::replicated::ReplicatedState;

const KIND: Kind = Kind { magic: *b"regntsnp", version: 1 };
const HEADER_BYTES: usize = 68;

/// The snapshots of one directory. Cheap to clone; used by the log's thread and beside it.
#[derive(Clone, Debug)]
pub struct Snapshots {
    files: Arc<dyn Files>,
    identity: Identity,
    /// The indexes of those on disk, rising.
    kept: Arc<Mutex<Vec<u64>>>,
}

/// A snapshot that is durable beside its name. Dropped without [`Snapshots::commit`], it goes.
#[derive(Debug)]
pub(super) struct Prepared {
    files: Arc<dyn Files>,
    index: u64,
    is_named: bool,
}

/// What became of a snapshot that was to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotResult {
    /// It is durable.
    Durable,
    /// One at or beyond its index was there already; nothing was written.
    Overtaken,
}

/// The snapshot before, and the entries since, as the next snapshot's bytes. Takes as long as
/// applying those entries: not for the loop.
pub fn advance(
    (place, bytes): (&SnapshotMetadata, &[u8]),
    task: &SnapshotTask,
) -> Result<Vec<u8>, SnapshotError> {
    let first = task.entries.first().map_or(task.place.index + 1, |entry| entry.index);
    let last = task.entries.last().map_or(place.index, |entry| entry.index);
    if first != place.index + 1 || last != task.place.index {
        return Err(SnapshotError::Overtaken { first, newest: place.index });
    }
    let nonsense = |index| move |source| SnapshotError::Nonsense { index, source };
    let mut replicated = ReplicatedState::decode(bytes).map_err(nonsense(place.index))?;
    if task.has_no_state {
        replicated = replicated.without_state();
    }
    for entry in &task.entries {
        if task.has_no_state && entry.entry_type == EntryType::EntryNormal {
            continue;
        }
        replicated.replay(entry).map_err(nonsense(entry.index))?;
    }
    Ok(replicated.encode())
}

impl Snapshots {
    pub(super) fn new(files: Arc<dyn Files>, identity: Identity, kept: Vec<u64>) -> Self {
        Self { files, identity, kept: Arc::new(Mutex::new(kept)) }
    }

    /// Makes a snapshot from the newest one and the entries since, and keeps it. Beside the loop.
    pub fn make(&self, task: &SnapshotTask) -> Result<SnapshotResult, SnapshotError> {
        let (place, bytes) = self.newest()?;
        let bytes = advance((&place, &bytes), task)?;
        Ok(self.keep(&task.place, &bytes)?)
    }

    /// The newest snapshot, for a follower that needs it.
    pub fn newest(&self) -> Result<(SnapshotMetadata, Arc<[u8]>), SnapshotError> {
        loop {
            // The list is not held while reading, which takes long: the log's thread needs it.
            let index = self.newest_index();
            match read(&*self.files, &self.identity, index) {
                Ok((place, bytes)) => return Ok((place, bytes.into())),
                // Two later ones came meanwhile, and this one went.
                Err(_) if self.newest_index() != index => {}
                Err(error) => return Err(SnapshotError::Unusable(Box::new(error))),
            }
        }
    }

    /// Keeps a snapshot: when this returns it is durable, and only the one before it is still there.
    pub fn keep(
        &self,
        place: &SnapshotMetadata,
        bytes: &[u8],
    ) -> Result<SnapshotResult, WriteError> {
        if self.kept().last().is_some_and(|newest| *newest >= place.index) {
            return Ok(SnapshotResult::Overtaken);
        }
        let prepared = self.prepare(place, bytes)?;
        self.commit(prepared)
    }

    /// Writes a snapshot beside its name, durably. Whatever may be refused for want of room is
    /// refused here.
    pub(super) fn prepare(
        &self,
        place: &SnapshotMetadata,
        bytes: &[u8],
    ) -> Result<Prepared, WriteError> {
        let (files, name) = (&*self.files, names::beside(&names::snapshot(place.index)));
        let head = head(&self.identity, place, bytes.len());
        let sum = checksum(u32_at(&head, HEADER_BYTES - 4), &head[HEADER_BYTES..]);
        let sum = checksum(sum, bytes);
        let refuse = |what| {
            let name = &name;
            move |error| no_room_or_fatal(files, name, what, error)
        };
        let mut file = files.create(&name).map_err(refuse("make"))?;
        let mut at = 0;
        for part in [&*head, bytes, &sum.to_le_bytes()] {
            file.write_at(at, part).map_err(refuse("write"))?;
            at += part.len() as u64;
        }
        file.sync_data().writing("sync", files, &name)?;
        Ok(Prepared { files: Arc::clone(&self.files), index: place.index, is_named: false })
    }

    /// Gives a prepared snapshot its name, for good, and lets go of those no longer needed.
    pub(super) fn commit(&self, mut prepared: Prepared) -> Result<SnapshotResult, WriteError> {
        let files = &*self.files;
        let mut kept = self.kept();
        if kept.last().is_some_and(|newest| *newest >= prepared.index) {
            return Ok(SnapshotResult::Overtaken);
        }
        let name = names::snapshot(prepared.index);
        files.rename(&names::beside(&name), &name).writing("name", files, &name)?;
        prepared.is_named = true;
        files.sync_dir().writing("sync the directory of", files, &name)?;
        kept.push(prepared.index);
        while kept.len() > SNAPSHOTS_KEPT {
            // One that comes back after a power cut is removed again at the start.
            let name = names::snapshot(kept.remove(0));
            files.remove(&name).writing("remove", files, &name)?;
        }
        Ok(SnapshotResult::Durable)
    }

    /// The index of the oldest snapshot: the log up to it is not needed any more.
    #[must_use]
    pub fn oldest_index(&self) -> u64 {
        self.kept().first().copied().unwrap_or_default()
    }

    /// The index of the newest snapshot.
    #[must_use]
    pub fn newest_index(&self) -> u64 {
        self.kept().last().copied().unwrap_or_default()
    }

    fn kept(&self) -> MutexGuard<'_, Vec<u64>> {
        // No change of this list is ever half done, so one who panicked left it whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if !self.is_named {
            // What cannot be removed is removed at the next start.
            let _ = self.files.remove(&names::beside(&names::snapshot(self.index)));
        }
    }
}

/// Everything before the whole.
fn head(identity: &Identity, place: &SnapshotMetadata, whole_bytes: usize) -> Vec<u8> {
    let mut place_bytes = Vec::new();
    put_snapshot_metadata(place, &mut place_bytes);
    let mut out = Vec::with_capacity(HEADER_BYTES + place_bytes.len());
    identity.put(KIND, &mut out);
    out.extend((place_bytes.len() as u64).to_le_bytes());
    out.extend((whole_bytes as u64).to_le_bytes());
    let sum = checksum(0, &out);
    out.extend(sum.to_le_bytes());
    out.extend(place_bytes);
    out
}

/// Whether a file holds nothing but bytes of the snapshot of this place and whole, or zeros where some
/// are missing; whose it is and its checksums are not compared.
pub(super) fn is_part(
    file: &[u8],
    identity: &Identity,
    place: &SnapshotMetadata,
    replicated: &[u8],
) -> bool {
    let head = head(identity, place, replicated.len());
    let body = head[HEADER_BYTES..].iter().chain(replicated);
    let body_end = head.len() + replicated.len();
    file.len() <= body_end + 4
        && file.iter().skip(HEADER_BYTES).zip(body).all(|(is, wanted)| *is == 0 || is == wanted)
}

/// Reads and checks the snapshot of this index.
pub(super) fn read(
    files: &dyn Files,
    identity: &Identity,
    index: u64,
) -> Result<(SnapshotMetadata, Vec<u8>), DataDirError> {
    let name = names::snapshot(index);
    let path = files.path(&name);
    let mut bytes = match files.read(&name, SNAPSHOT_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            return Err(DataDirError::damaged(&path, 0, error.to_string()));
        }
        Err(error) => return Err(error).opening("read", files, &name),
    };
    let (place, whole_at) = check(&bytes, identity, index, &path)?;
    bytes.truncate(bytes.len() - 4);
    bytes.drain(..whole_at);
    Ok((place, bytes))
}

/// Where a snapshot stands and where its whole begins, if every byte of it is as it was written.
fn check(
    bytes: &[u8],
    identity: &Identity,
    index: u64,
    path: &Path,
) -> Result<(SnapshotMetadata, usize), DataDirError> {
    let damaged = |at, why: &str| Err(DataDirError::damaged(path, at, why));
    let Some(header) = bytes.get(..HEADER_BYTES) else {
        return damaged(bytes.len(), "it is shorter than its header");
    };
    if header[..8] != KIND.magic {
        return damaged(0, "it does not open like a snapshot");
    }
    let sum = u32_at(header, 64);
    if checksum(0, &header[..64]) != sum {
        return damaged(64, "its header does not match its checksum");
    }
    identity.check(Identity::take(KIND, header, path)?, path)?;
    let (place_bytes, whole_bytes) = (u64_at(header, 48), u64_at(header, 56));
    let body_bytes = (bytes.len() - HEADER_BYTES) as u64;
    let told = place_bytes.checked_add(whole_bytes).and_then(|sum| sum.checked_add(4));
    if told != Some(body_bytes) {
        return damaged(bytes.len(), "it is shorter or longer than its header says");
    }
    let body_end = bytes.len() - 4;
    if checksum(sum, &bytes[HEADER_BYTES..body_end]) != u32_at(bytes, body_end) {
        return damaged(HEADER_BYTES, "it does not match its checksum");
    }
    // In bounds: the sum of both was compared with the bytes that are there.
    let whole_at = HEADER_BYTES + place_bytes as usize;
    let mut input = Input::new(&bytes[HEADER_BYTES..whole_at]);
    let place = take_snapshot_metadata(&mut input).and_then(|place| input.end().map(|()| place));
    match place {
        Ok(place) if place.index == index => Ok((place, whole_at)),
        Ok(place) => {
            let why = format!("it stands at index {} and its name says {index}", place.index);
            damaged(HEADER_BYTES, &why)
        }
        Err(why) => damaged(HEADER_BYTES, &format!("its place: {why}")),
    }
}
