//! The replica's disk: what the core says to keep, kept.
//!
//! A directory holds a log of entries, hard state and boots (`wal`), two snapshots ([`snapshot`]),
//! two segments made in advance (`reserve`), a mark of how far the log was durable (`acked`), and
//! which peers were met (`acquainted`). All of it is reached through [`files::Files`], so that a simulator can lose, tear,
//! flip and refuse what it likes.
//!
//! What holds, whatever happens:
//! - What [`Disk::write`] confirmed and was to be synced is found again, exactly, or the directory is
//!   refused. It is never found in part, and the Raft term and the vote never go back (S10).
//! - A batch is found whole or not at all.
//! - A failed sync is the end ([`WriteError::Fatal`]); a full disk is not ([`WriteError::NoRoom`]).
//! - Nothing is changed in a directory that is refused.
//!
//! The log's thread owns the [`Disk`]. Threads beside it make snapshots ([`Disk::snapshots`]) and
//! spare segments ([`Disk::reserve`]), both of which take long; the log's thread then drops what is
//! covered ([`Disk::purge`]). What is left to the driver: threads, when to do what, ending the
//! process.

pub mod error;
pub mod files;
pub mod limits;
pub mod snapshot;

mod acked;
mod acquainted;
pub(crate) mod arriving;
mod bytes;
mod founding;
mod identity;
mod leftover;
mod names;
mod open;
mod reserve;
mod wal;

use std::sync::Arc;

use self::error::{DataDirError, WriteError};
use self::files::{DirectoryLock, Files};
use self::limits::{SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use self::wal::Wal;
use crate::core::Recovered;
use crate::io::Batch;
use crate::member::ReplicaId;

pub use self::acquainted::Acquaintances;
pub use self::arriving::Arrivals;
pub use self::files::RealFiles;
pub use self::founding::Founding;
pub use self::identity::Identity;
pub use self::names::is_of_local;
pub use self::reserve::Reserve;
pub use self::snapshot::Snapshots;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use self::wal::fuzzing::log as fuzz_log;

/// How a directory is used, and whose it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
    /// The cluster it must belong to, if that is known.
    pub cluster: Option<u128>,
    /// The replica it must belong to, if that is known.
    pub replica: Option<ReplicaId>,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self { segment_bytes: SEGMENT_BYTES_DEFAULT, cluster: None, replica: None }
    }
}

impl DiskOptions {
    /// Whether a log can be kept like this.
    ///
    /// # Errors
    /// If segments are too small, too large or odd.
    pub fn check(&self) -> Result<(), DataDirError> {
        let Self { segment_bytes, .. } = *self;
        let is_good = (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes)
            && segment_bytes.is_multiple_of(8);
        if is_good {
            return Ok(());
        }
        Err(DataDirError::Options(format!(
            "segments of {segment_bytes} bytes are refused: from {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}, in steps of 8"
        )))
    }
}

/// A directory that was opened, and what it remembers.
#[derive(Debug)]
pub struct Opened {
    /// For writing.
    pub disk: Disk,
    /// Whose it is.
    pub identity: Identity,
    /// What the core starts with.
    pub recovered: Recovered,
    /// The number of this run, higher than any before, and durable.
    pub boot: u64,
    /// What was not as it should be and was set right, for people.
    pub repairs: Vec<String>,
}

/// A replica's disk, for the one thread that writes its log.
#[derive(Debug)]
pub struct Disk {
    wal: Wal,
    snapshots: Snapshots,
    reserve: Arc<Reserve>,
    acquaintances: Arc<Acquaintances>,
    has_failed: bool,
    files: Arc<dyn Files>,
    /// Released last.
    _held: Box<dyn DirectoryLock>,
}

impl Disk {
    /// Opens a directory in which a replica lives.
    pub fn open(files: Arc<dyn Files>, options: DiskOptions) -> Result<Opened, DataDirError> {
        open::open(files, options)
    }

    /// Founds a replica in an empty directory, and opens it. A bootstrap that was cut short is begun
    /// again if nothing but what it wrote is there; anything else is refused and stays as it is.
    pub fn found(
        files: Arc<dyn Files>,
        options: DiskOptions,
        identity: Identity,
        founding: &Founding,
    ) -> Result<Opened, DataDirError> {
        open::found(files, options, identity, founding)
    }

    /// Writes batches, in order, with one sync if any of them must be synced, and returns the number
    /// of the last: everything up to it is confirmed. None if there was nothing to write.
    ///
    /// # Errors
    /// [`WriteError::NoRoom`]: nothing of this was written; the same batches may be given again.
    /// [`WriteError::Fatal`]: nobody knows; the process must end.
    ///
    /// # Panics
    /// If entries leave a gap: the core never asks for that.
    pub fn write(&mut self, batches: &[Batch]) -> Result<Option<u64>, WriteError> {
        self.watched(|disk| disk.write_all(batches))
    }

    fn write_all(&mut self, batches: &[Batch]) -> Result<Option<u64>, WriteError> {
        // First everything that a full disk may refuse, so that a refusal leaves nothing behind.
        let mut prepared = Vec::new();
        for (place, bytes) in batches.iter().filter_map(|batch| batch.snapshot.as_ref()) {
            prepared.push(self.snapshots.prepare(place, bytes)?);
        }
        let mut prepared = prepared.into_iter();
        let filled: Vec<&Batch> = batches.iter().filter(|batch| holds_something(batch)).collect();
        let mut plan = self.wal.plan(&filled)?;
        for batch in filled {
            if batch.snapshot.is_some() {
                // Durable before the record that says so: a log that starts after a snapshot that is
                // not there would be worth nothing. The other way round, recovery writes the record.
                let snapshot = prepared.next().expect("one was prepared for every batch with one");
                self.snapshots.commit(snapshot)?;
            }
            self.wal.append(&mut plan, batch)?;
        }
        self.wal.flush()?;
        if batches.iter().any(|batch| batch.must_sync || batch.snapshot.is_some()) {
            self.wal.sync()?;
        }
        Ok(batches.last().map(|batch| batch.number))
    }

    /// The snapshots, for the thread that makes them and for peers that need one.
    #[must_use]
    pub const fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// The segments made in advance, for the thread that makes them. Says whether there is room.
    #[must_use]
    pub const fn reserve(&self) -> &Arc<Reserve> {
        &self.reserve
    }

    /// The peers that were met, for whoever lets peers in.
    #[must_use]
    pub const fn acquaintances(&self) -> &Arc<Acquaintances> {
        &self.acquaintances
    }

    /// Where snapshots that arrive are gathered.
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        Arrivals::new(Arc::clone(&self.files))
    }

    /// Removes the segments of the log that the oldest snapshot covers, and says how many. To be
    /// called when a snapshot was kept.
    ///
    /// # Errors
    /// [`WriteError::Fatal`] only.
    pub fn purge(&mut self) -> Result<usize, WriteError> {
        self.watched(|disk| disk.wal.purge(disk.snapshots.oldest_index()))
    }

    /// How many segments the log has.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.wal.segments()
    }

    /// Makes everything durable that was written. A process that just ends loses only what need not
    /// have been synced.
    pub fn close(mut self) -> Result<(), WriteError> {
        self.watched(|disk| disk.wal.close())
    }

    /// After a failure nothing is written any more.
    fn watched<T>(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        if self.has_failed {
            let source = std::io::Error::other("the disk has failed before");
            return Err(WriteError::Fatal { what: "use", path: self.files.path(""), source });
        }
        let result = act(self);
        self.has_failed = matches!(result, Err(WriteError::Fatal { .. }));
        result
    }
}

/// Raft also numbers batches in which there is nothing to keep.
const fn holds_something(batch: &Batch) -> bool {
    batch.snapshot.is_some() || batch.hard_state.is_some() || !batch.entries.is_empty()
}
