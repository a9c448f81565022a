//! Which life of each peer's disk this replica has met: the first one counts for ever.
//!
//! A replica that lost its disk has forgotten for whom it voted and what it acknowledged. If it comes
//! back under its old number it is a voter like before, and with its vote somebody could win who
//! never heard of what it had helped to commit (S10). So every replica remembers, on its disk, the
//! incarnation under which it first met each number, before it listens to it, and never listens to
//! another one. Only members are written down: nobody else counts for anything. Remembering it in memory only would forget it with the next restart, which is when
//! operators replace disks.
//!
//! | byte | field |
//! |---|---|
//! | 0 | whose it is (see `identity`), kind `regntprs`, version 1 |
//! | 48 | u64 count |
//! | 56 | for each: u64 number of the replica, u64 its incarnation |
//! | … | u32 checksum of all bytes above |
//!
//! The file is written whole beside its name, synced, renamed and the directory synced: it changes
//! once for every peer. A directory without it has met nobody yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::bytes::{checksum, u32_at, u64_at};
use super::error::{DataDirError, Trying, WriteError};
use super::files::Files;
use super::identity::{Identity, Kind, PREFIX_BYTES};
use super::names::{self, PEERS};
use super::reserve::no_room_or_fatal;
use crate::member::ReplicaId;

const KIND: Kind = Kind { magic: *b"regntprs", version: 1 };
/// Most bytes of the file: more numbers than any cluster goes through.
const BYTES_MAX: u64 = 1 << 20;

/// The peers that were met, and the file that remembers them.
#[derive(Debug)]
pub struct Acquaintances {
    files: Arc<dyn Files>,
    identity: Identity,
    known: Mutex<BTreeMap<ReplicaId, u64>>,
}

impl Acquaintances {
    /// Those that a directory remembers.
    pub(super) fn open(
        files: Arc<dyn Files>,
        identity: Identity,
        is_there: bool,
    ) -> Result<Self, DataDirError> {
        let known = if is_there { read(&*files, &identity)? } else { BTreeMap::new() };
        Ok(Self { files, identity, known: Mutex::new(known) })
    }

    /// Whether this is the life in which that replica was met first. If it was never met, this is, and
    /// it is remembered for good before this returns. Waits for the disk: not for a loop.
    ///
    /// # Errors
    /// If it could not be remembered: the peer must not be listened to, and may be met again.
    pub fn is_the_same(&self, id: ReplicaId, incarnation: u64) -> Result<bool, WriteError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = known.get(&id) {
            return Ok(*first == incarnation);
        }
        let mut more = known.clone();
        more.insert(id, incarnation);
        self.write(&more)?;
        *known = more;
        Ok(true)
    }

    /// The life in which that replica was met first, if it was met.
    #[must_use]
    pub fn first_met(&self, id: ReplicaId) -> Option<u64> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&id).copied()
    }

    fn write(&self, known: &BTreeMap<ReplicaId, u64>) -> Result<(), WriteError> {
        let mut bytes = Vec::new();
        self.identity.put(KIND, &mut bytes);
        bytes.extend((known.len() as u64).to_le_bytes());
        for (id, incarnation) in known {
            bytes.extend(id.get().to_le_bytes());
            bytes.extend(incarnation.to_le_bytes());
        }
        let sum = checksum(0, &bytes);
        bytes.extend(sum.to_le_bytes());
        let (files, beside) = (&*self.files, names::beside(PEERS));
        let refuse = |what| {
            let beside = &beside;
            move |error| no_room_or_fatal(files, beside, what, error)
        };
        // What an attempt before this one left is nobody's.
        let _ = files.remove(&beside);
        let mut file = files.create(&beside).map_err(refuse("make"))?;
        file.write_at(0, &bytes).map_err(refuse("write"))?;
        file.sync_data().writing("sync", files, &beside)?;
        files.rename(&beside, PEERS).writing("name", files, PEERS)?;
        files.sync_dir().writing("sync the directory of", files, PEERS)
    }
}

fn read(files: &dyn Files, identity: &Identity) -> Result<BTreeMap<ReplicaId, u64>, DataDirError> {
    let bytes = files.read(PEERS, BYTES_MAX).opening("read", files, PEERS)?;
    let path = files.path(PEERS);
    let damaged = |at: usize, why: &str| DataDirError::damaged(&path, at, why);
    let body_end = bytes.len().checked_sub(4).filter(|end| *end >= PREFIX_BYTES + 8);
    let body_end = body_end.ok_or_else(|| damaged(bytes.len(), "it is shorter than its head"))?;
    if bytes[..8] != KIND.magic || checksum(0, &bytes[..body_end]) != u32_at(&bytes, body_end) {
        return Err(damaged(0, "it does not match its checksum"));
    }
    identity.check(Identity::take(KIND, &bytes, &path)?, &path)?;
    let entries = bytes[PREFIX_BYTES + 8..body_end].chunks_exact(16);
    let is_whole = entries.remainder().is_empty();
    if !is_whole || u64_at(&bytes, PREFIX_BYTES) != entries.len() as u64 {
        return Err(damaged(PREFIX_BYTES, "it is shorter or longer than it says"));
    }
    let known = entries.map(|entry| {
        let id = ReplicaId::new(u64_at(entry, 0));
        Ok((id.ok_or_else(|| damaged(PREFIX_BYTES, "replica 0 is nobody"))?, u64_at(entry, 8)))
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::super::files::RealFiles;
    use super::*;

    fn id(number: u64) -> ReplicaId {
        ReplicaId::new(number).unwrap()
    }

    fn identity() -> Identity {
        Identity { cluster: 3, replica: id(1), incarnation: 4 }
    }

    #[test]
    fn the_first_life_of_a_peer_counts_for_ever() {
        let place = tempfile::tempdir().unwrap();
        let files = Arc::new(RealFiles::new(place.path()).unwrap());
        let met = Acquaintances::open(files.clone(), identity(), false).unwrap();
        assert!(met.is_the_same(id(2), 20).unwrap() && met.is_the_same(id(3), 30).unwrap());
        assert!(met.is_the_same(id(2), 20).unwrap() && !met.is_the_same(id(2), 21).unwrap());
        let met = Acquaintances::open(files.clone(), identity(), true).unwrap();
        assert!(!met.is_the_same(id(2), 21).unwrap(), "after a restart, too");
        assert!(met.is_the_same(id(3), 30).unwrap());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
        let stranger = Identity { replica: id(9), ..identity() };
        assert!(Acquaintances::open(files, stranger, true).is_err());
    }

    #[test]
    fn no_cut_and_no_flipped_bit_goes_unnoticed() {
        let place = tempfile::tempdir().unwrap();
        let files = Arc::new(RealFiles::new(place.path()).unwrap());
        let met = Acquaintances::open(files.clone(), identity(), false).unwrap();
        met.is_the_same(id(2), 20).unwrap();
        let path = place.path().join(PEERS);
        let good = std::fs::read(&path).unwrap();
        let is_refused = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Acquaintances::open(files.clone(), identity(), true).is_err()
        };
        assert!((0..good.len()).all(|cut| is_refused(&good[..cut])));
        for bit in 0..good.len() * 8 {
            let mut flipped = good.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(is_refused(&flipped), "bit {bit}");
        }
        assert!(!is_refused(&good));
    }
}
