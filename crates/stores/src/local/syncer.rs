//! The syncer: the one thread that writes, syncs, and only then lets things be known.
//!
//! While it waits for the disk, entries collect; the next write takes all of them. When the journal
//! has grown long it begins another and leaves the old one to the compactor, which makes a snapshot
//! of it from the files alone: no caller ever waits for a snapshot.

use std::sync::Arc;
use std::thread::JoinHandle;

use regent_election::watch::Bounds;

use super::core::Phase;
use super::files::{Directory, LocalResult};
use super::frame::FileKind;
use super::journal::Journal;
use super::log::Batch;
use super::recovery::recover_through;
use super::shared::{Shared, end_the_process};
use super::snapshot;

/// What the syncer owns.
pub(super) struct Syncer {
    pub(super) shared: Arc<Shared>,
    pub(super) directory: Arc<Directory>,
    pub(super) journal: Journal,
    /// A journal longer than this is compacted.
    pub(super) rotate_at: u64,
    /// What `rotate_at` is for a fresh journal.
    pub(super) journal_bytes_max: u64,
    /// At a clean end, a journal longer than this is.
    pub(super) leftover_bytes_max: u64,
    pub(super) compactor: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Runs until the store stops and everything is written.
    pub(super) fn run(mut self) {
        while let Some(batch) = self.next_batch() {
            self.write(batch);
            if self.journal.len() > self.rotate_at {
                self.rotate();
            }
        }
        if let Some(compactor) = self.compactor.take() {
            // A compactor that panicked has made no snapshot; the journals are all there.
            let _ = compactor.join();
        }
        let phase = self.shared.lock().phase;
        if phase == (Phase::Stopped { is_clean: true })
            && self.journal.len() > self.leftover_bytes_max
        {
            self.finish();
        }
    }

    /// What waits, as soon as something does; none when the store has stopped and nothing does.
    fn next_batch(&self) -> Option<Batch> {
        let mut core = self.shared.lock();
        loop {
            if core.log.has_pending() {
                return Some(core.log.take());
            }
            if matches!(core.phase, Phase::Stopped { .. }) {
                return None;
            }
            core = self.shared.rest_syncer(core);
        }
    }

    /// Makes a batch durable, then known: first to watchers, then to those whose answer waits.
    fn write(&mut self, batch: Batch) {
        let Some((first, last)) = batch.span() else { return };
        if let Err(error) = self.journal.append(first, &batch.bytes) {
            give_up("write the journal", &error);
        }
        for (revision, events) in &batch.caused {
            self.shared.hub.publish(*revision, events);
        }
        self.shared.lock().log.settle(last);
        match self.journal.take_space() {
            Ok(has_space) => {
                let mut core = self.shared.lock();
                if !has_space && !core.log.is_disk_full() {
                    tracing::error!("the disk is full: only ends are taken until there is space");
                }
                core.log.note_space(self.journal.room(), !has_space);
            }
            Err(error) => give_up("take space for the journal", &error),
        }
    }

    /// Begins another journal; the old one is the compactor's. All that was written is synced, so
    /// the state at this place is what the files up to here say.
    fn rotate(&mut self) {
        if self.compactor.as_ref().is_some_and(|compactor| !compactor.is_finished()) {
            return;
        }
        let revision = self.shared.hub.newest().revision;
        let number = self.journal.number() + 1;
        let incarnation = self.journal.incarnation();
        let next = match Journal::create(&self.directory, number, incarnation, revision) {
            Ok(next) => next,
            Err(error) => {
                // What is appended here from now on would contradict a next journal that is there.
                if self.directory.path_of(FileKind::Journal, number).exists() {
                    end_the_process(&format!("the next journal may be there or not: {error}"));
                }
                tracing::error!(%error, "no other journal could be begun; this one goes on");
                self.rotate_at = self.journal.len() + self.journal_bytes_max / 4;
                return;
            }
        };
        if let Err(error) = self.journal.seal() {
            give_up("seal the journal", &error);
        }
        self.journal = next;
        self.rotate_at = self.journal_bytes_max;
        let directory = Arc::clone(&self.directory);
        let compact = move || {
            if let Err(error) = compact(&directory, number) {
                tracing::error!(%error, "no snapshot was made; the journals stay as they are");
            }
        };
        match std::thread::Builder::new().name("regent-compactor".into()).spawn(compact) {
            Ok(compactor) => self.compactor = Some(compactor),
            Err(error) => tracing::error!(%error, "no compactor; the journals stay as they are"),
        }
    }

    /// Leaves a snapshot and an empty journal behind, so that the next opening is quick.
    fn finish(&mut self) {
        let number = self.journal.number() + 1;
        let incarnation = self.journal.incarnation();
        let (revision, body) = {
            let core = self.shared.lock();
            (core.state.revision(), core.state.encode())
        };
        let finished = Journal::create(&self.directory, number, incarnation, revision)
            .and_then(|_| snapshot::write(&self.directory, number, incarnation, revision, &body))
            .and_then(|()| remove_older(&self.directory, number));
        if let Err(error) = finished {
            tracing::error!(%error, "no snapshot was made; the next opening reads the journal");
        }
    }
}

/// Makes the snapshot from which journal `number` goes on, out of the files before it.
fn compact(directory: &Directory, number: u64) -> LocalResult<()> {
    let nothing_kept = Bounds { ring_bytes_max: 0, ring_count_min: 0, queue_max: 1 };
    let recovered = recover_through(directory, number - 1, nothing_kept)?;
    let (revision, body) = (recovered.state.revision(), recovered.state.encode());
    snapshot::write(directory, number, recovered.incarnation, revision, &body)?;
    remove_older(directory, number)
}

fn remove_older(directory: &Directory, number: u64) -> LocalResult<()> {
    directory.remove_below(FileKind::Snapshot, number)?;
    directory.remove_below(FileKind::Journal, number)
}

/// A write that failed cannot be repeated, and what was applied cannot be taken back: the truth is
/// on the disk, and the next opening reads it.
fn give_up(what: &str, error: &std::io::Error) -> ! {
    end_the_process(&format!("cannot {what}: {error}; a failed write cannot be repeated"))
}
