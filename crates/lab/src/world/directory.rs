//! A replica's disk by the real code: [`regent_replica::disk`] over a simulated directory.
//!
//! What the disk's threads do is done here in one go when a sync ends: everything that waited goes into
//! the log with one sync, snapshots are made, segments filled and dropped. A crash may fall into the
//! middle of any of it. What is found afterwards is for the real recovery to say.

use std::collections::BTreeMap;
use std::sync::Arc;

use raft::eraftpb::SnapshotMetadata;
use regent_replica::disk::error::{DataDirError, SnapshotError, WriteError};
use regent_replica::disk::{Disk, DiskOptions, Founding, Identity};
use regent_replica::io::{Batch, SnapshotTask};
use regent_replica::{Recovered, ReplicaId, ReplicatedState};

use super::disk::{Refused, Write};
use super::files::SimFiles;
use crate::dice::Dice;

/// A crash comes within so many changes of the directory.
const CHANGES_MAX: u64 = 24;
/// Bytes that a full disk still takes, at most.
const FREE_BYTES_MAX: u64 = 8 << 10;

/// A data directory and, while its replica runs, the disk that was opened there.
#[derive(Debug)]
pub(super) struct Directory {
    files: SimFiles,
    options: DiskOptions,
    opened: Option<Disk>,
    /// The lab's own prints of all entries up to the snapshots that were handed over, for S8.
    chains: BTreeMap<(u64, u64), u64>,
}

/// What became of writes.
#[derive(Debug)]
pub(super) enum Fate {
    /// Everything up to this batch is durable.
    Durable(Option<u64>),
    /// A snapshot is durable.
    Kept(SnapshotMetadata),
    /// A snapshot was not made.
    NotMade,
    /// There is no room: nothing was written.
    NoRoom,
    /// Nobody knows: the process must end.
    Fatal,
}

impl Directory {
    /// One in which a cluster was founded with this whole.
    pub(super) fn founding(
        replicated: &ReplicatedState,
        id: ReplicaId,
        segment_bytes: u64,
    ) -> Self {
        Self::new(&Founding::restored(replicated.clone()), id, segment_bytes)
    }

    /// One of a replica that joins.
    pub(super) fn joining(id: ReplicaId, segment_bytes: u64) -> Self {
        Self::new(&Founding::joining(), id, segment_bytes)
    }

    fn new(founding: &Founding, id: ReplicaId, segment_bytes: u64) -> Self {
        let files = SimFiles::default();
        let options = DiskOptions { segment_bytes, ..DiskOptions::default() };
        let identity = Identity { cluster: 1, replica: id, incarnation: 1 };
        let shared = Arc::new(files.clone());
        Disk::found(shared, options, identity, founding).expect("an empty directory is founded");
        let chains = [((founding.place.index, founding.place.term), 0)].into();
        Self { files, options, opened: None, chains }
    }

    /// Opens it for another run: what it remembers, the run's number, and the print of all entries up to
    /// its snapshot.
    pub(super) fn open(&mut self) -> Result<(Recovered, u64, u64), Refused> {
        let shared = Arc::new(self.files.clone());
        let opened = Disk::open(shared, self.options).map_err(|why| match why {
            DataDirError::Io { .. } | DataDirError::Write(_) => Refused::NotNow(why.to_string()),
            DataDirError::InUse { .. }
            | DataDirError::Empty { .. }
            | DataDirError::Founded { .. }
            | DataDirError::HalfFounded { .. }
            | DataDirError::Occupied { .. }
            | DataDirError::Stranger { .. }
            | DataDirError::Removed { .. }
            | DataDirError::Newer { .. }
            | DataDirError::Damaged { .. }
            | DataDirError::Options(_) => Refused::ForGood(why.to_string()),
        })?;
        let place = (opened.recovered.place.index, opened.recovered.place.term);
        let chain = self.chains.get(&place).copied().unwrap_or(0);
        self.opened = Some(opened.disk);
        Ok((opened.recovered, opened.boot, chain))
    }

    /// The newest snapshot, if it stands at this very place.
    pub(super) fn snapshot_at(&self, index: u64) -> Option<(Arc<[u8]>, u64)> {
        let (place, bytes) = self.opened.as_ref()?.snapshots().newest().ok()?;
        let chain = self.chains.get(&(place.index, place.term)).copied()?;
        (place.index == index).then_some((bytes, chain))
    }

    /// Remembers the print of all entries up to a snapshot that is about to be written.
    pub(super) fn expect_snapshot(&mut self, place: &SnapshotMetadata, chain: u64) {
        self.chains.insert((place.index, place.term), chain);
    }

    /// Writes batches with one sync, as the log's thread does.
    pub(super) fn write(&mut self, batches: &[Batch]) -> Fate {
        let Some(disk) = &mut self.opened else { return Fate::Fatal };
        match disk.write(batches) {
            Ok(number) => Fate::Durable(number),
            Err(WriteError::NoRoom { .. }) => Fate::NoRoom,
            Err(WriteError::Fatal { .. }) => Fate::Fatal,
        }
    }

    /// Makes a snapshot and drops what it covers, as the thread beside the log's does.
    pub(super) fn make_snapshot(&mut self, task: &SnapshotTask) -> Fate {
        let Some(disk) = &mut self.opened else { return Fate::Fatal };
        match disk.snapshots().make(task) {
            Ok(_) => match disk.purge() {
                Ok(_) => Fate::Kept(task.place.clone()),
                Err(_) => Fate::Fatal,
            },
            Err(SnapshotError::Write(WriteError::Fatal { .. })) => Fate::Fatal,
            Err(_) => Fate::NotMade,
        }
    }

    /// Makes the spare segments that are missing, and says whether there is room; none if that failed.
    pub(super) fn fill(&mut self) -> Option<bool> {
        self.opened.as_ref()?.reserve().fill().ok()
    }

    /// Leaves hardly any room, or all that is wanted.
    pub(super) fn leave_room(&mut self, is_there: bool, dice: &mut Dice) {
        self.files.leave_room((!is_there).then(|| dice.below(FREE_BYTES_MAX) as usize));
    }

    /// The next sync fails.
    pub(super) fn fail_next_sync(&mut self) {
        self.files.fail_next_sync();
    }

    /// Damages it for good, and says where. Only while nobody runs there.
    pub(super) fn flip(&mut self, dice: &mut Dice) -> Option<String> {
        self.files.flip(dice)
    }

    /// The replica dies in the middle of writing these, with its machine or alone.
    pub(super) fn crash(&mut self, writes: Vec<Write>, dice: &mut Dice) {
        let is_power_cut = dice.once_in(2);
        let come_to = dice.below(writes.len() as u64 + 1) as usize;
        if is_power_cut {
            self.files.power_for(dice.within(1..=CHANGES_MAX), dice);
        }
        for write in writes.into_iter().take(come_to) {
            let fate = match write {
                Write::Batch { batch, .. } => self.write(&[batch]),
                Write::Snapshot { task, .. } => self.make_snapshot(&task),
            };
            if matches!(fate, Fate::Fatal | Fate::NoRoom) {
                break;
            }
        }
        self.opened = None;
        if is_power_cut {
            self.files.power_cut(dice);
        } else {
            self.files.rest();
        }
    }

    /// Whatever was about to go wrong does not.
    pub(super) fn calm(&mut self) {
        self.files.rest();
    }

    /// The replica dies alone, and everything it wrote stays.
    pub(super) fn drop_dead(&mut self) {
        self.opened = None;
        self.files.rest();
    }
}
