//! The two threads that touch a replica's disk: one writes the log, one does beside it what takes long.
//!
//! They tell the core what is durable and nothing else; an error of the disk that leaves its state
//! unknown ends the process.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::Duration;

use crate::disk::error::{SnapshotError, WriteError};
use crate::disk::{Disk, Reserve, Snapshots};
use crate::io::{Batch, Input, SnapshotTask};
use crate::measure::Tally;
use crate::node::CoreMessage;

/// How soon a full disk is written to again.
const NO_ROOM_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// How often a full disk is looked at.
const NO_ROOM_LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the disk's thread is given.
pub(crate) enum Job {
    Batches(Vec<Batch>),
    /// A snapshot was kept: what it covers may go.
    Purge,
    /// Nothing comes after this.
    End,
}

/// What the snapshot worker is given: everything of the disk that takes long.
pub(crate) enum SnapshotJob {
    Snapshot(SnapshotTask),
    /// Segments were used: make others.
    Fill,
}

/// The disk's thread: writes everything that waits with one sync.
pub(crate) fn keep(
    mut disk: Disk,
    jobs: &Receiver<Job>,
    to_side: &Sender<SnapshotJob>,
    inbox: &SyncSender<CoreMessage>,
    syncs: &Tally,
) {
    let mut full = FullDisk::default();
    'jobs: while let Ok(job) = jobs.recv() {
        let mut batches = Vec::new();
        let mut purge = false;
        let mut is_over = false;
        for job in std::iter::once(job).chain(std::iter::from_fn(|| jobs.try_recv().ok())) {
            match job {
                Job::Batches(more) => batches.extend(more),
                Job::Purge => purge = true,
                Job::End => is_over = true,
            }
        }
        if let Some(last) = batches.last().map(|batch| batch.number) {
            let segments = disk.segments();
            let mut was_refused = false;
            let must_sync = batches.iter().any(|batch| batch.must_sync);
            let began_at = regent_clock::now();
            while let Err(error) = disk.write(&batches) {
                survive(&error, &mut full);
                was_refused = true;
                // Nothing was written: it is tried again until there is room, in the same order, or
                // until the replica ends; nothing of it was promised.
                if inbox.send(CoreMessage::Input(Input::Room { is_there: false })).is_err() {
                    break 'jobs;
                }
                let _ = to_side.send(SnapshotJob::Fill);
                std::thread::sleep(NO_ROOM_AGAIN_AFTER);
            }
            if must_sync && !was_refused {
                syncs.note(regent_clock::now().since(began_at));
            }
            // Whoever said that there is no room says when there is; the reserve may never have
            // been short.
            if was_refused && disk.reserve().has_room() {
                full.has_room("the log is written again");
                let _ = inbox.send(CoreMessage::Input(Input::Room { is_there: true }));
            }
            if inbox.send(CoreMessage::Input(Input::Persisted { batch: last })).is_err() {
                break;
            }
            if disk.segments() != segments {
                let _ = to_side.send(SnapshotJob::Fill);
            }
        }
        if purge && let Err(error) = disk.purge() {
            survive(&error, &mut full);
        }
        if is_over {
            break;
        }
    }
    if let Err(error) = disk.close() {
        survive(&error, &mut full);
    }
}

/// The thread beside the disk's: snapshots and spare segments, which take long.
pub(crate) fn snapshot_worker(
    snapshots: &Snapshots,
    reserve: &Reserve,
    snapshot_jobs: &Receiver<SnapshotJob>,
    to_disk: &Sender<Job>,
    inbox: &SyncSender<CoreMessage>,
) {
    let mut has_room = true;
    let (mut no_snapshot, mut no_reserve) = (FullDisk::default(), FullDisk::default());
    loop {
        let snapshot_job = match snapshot_jobs.recv_timeout(NO_ROOM_LOOK_EVERY) {
            Ok(snapshot_job) => Some(snapshot_job),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let looks = matches!(snapshot_job, Some(SnapshotJob::Fill))
            || (snapshot_job.is_none() && !has_room);
        if let Some(SnapshotJob::Snapshot(task)) = snapshot_job {
            let place = task.place.clone();
            let input = match snapshots.make(&task) {
                Ok(_) => {
                    no_snapshot.has_room("a snapshot was made again");
                    let _ = to_disk.send(Job::Purge);
                    Input::SnapshotKept { place }
                }
                Err(SnapshotError::Write(error)) => {
                    survive(&error, &mut no_snapshot);
                    Input::SnapshotNotMade
                }
                Err(error) => {
                    tracing::warn!(%error, "a snapshot was not made");
                    Input::SnapshotNotMade
                }
            };
            if inbox.send(CoreMessage::Input(input)).is_err() {
                return;
            }
        }
        if looks {
            let found = reserve.fill().unwrap_or_else(|error| {
                survive(&error, &mut no_reserve);
                false
            });
            if found != has_room {
                has_room = found;
                tracing::warn!(has_room, "the disk's room changed");
            }
            // Also if nothing changed here: the other thread may have said that there is no room, and
            // nobody else would ever say that there is.
            let _ = inbox.send(CoreMessage::Input(Input::Room { is_there: has_room }));
        }
    }
}

/// What the log was told of a disk without room: one line when it fills up and one when there is room again, however
/// often is tried in between.
#[derive(Debug, Default)]
struct FullDisk {
    is_told: bool,
}

impl FullDisk {
    /// Whether the log is to be told that there is no room.
    const fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.is_told, true)
    }

    /// There is room again.
    fn has_room(&mut self, what: &str) {
        if std::mem::take(&mut self.is_told) {
            tracing::warn!("the disk has room: {what}");
        }
    }
}

/// A full disk is survived. After any other failure nobody knows what is on the disk: a replica that
/// went on could acknowledge what is not there. Whoever starts it again reads what is.
fn survive(error: &WriteError, full: &mut FullDisk) {
    match error {
        WriteError::NoRoom { .. } => {
            if full.is_news() {
                tracing::warn!(%error, "the disk is full; it is tried again, and this is not repeated");
            }
        }
        WriteError::Fatal { .. } => {
            tracing::error!(%error, "the disk failed");
            eprintln!("regent: {error}");
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_stays_full_is_told_of_once() {
        let mut full = FullDisk::default();
        let told = (0..1000).filter(|_| full.is_news()).count();
        assert_eq!(told, 1);
        full.has_room("");
        assert!(full.is_news(), "it filled up again");
    }
}
