//! One replica's disk at the level of batches: a list of writes of which a prefix is durable.
//!
//! A batch is durable when a sync that began after it was written has ended; one sync serves
//! everything that waited when it began. In a crash the durable prefix survives for certain and any
//! further prefix by chance: the system may have written back more than it was asked to. A batch
//! survives whole or not at all, as a checksummed record does.

use std::collections::VecDeque;
use std::sync::Arc;

use raft::eraftpb::{ConfState, Entry, HardState, SnapshotMetadata};
use regent_election::Settings;
use regent_replica::io::Batch;
use regent_replica::{Members, Recovered, Replicated};

use crate::dice::Dice;

/// What survives.
#[derive(Clone, Debug)]
struct Image {
    hard_state: HardState,
    place: SnapshotMetadata,
    snapshot: Arc<[u8]>,
    /// The print of all entries up to the snapshot's place; the lab's own, for S8.
    chain: u64,
    entries: Vec<Entry>,
}

/// Something to be written.
#[derive(Debug)]
enum Write {
    Batch {
        batch: Batch,
        chain: u64,
    },
    /// A snapshot of one's own; it takes the place of entries.
    Snapshot {
        place: SnapshotMetadata,
        bytes: Arc<[u8]>,
        chain: u64,
    },
}

/// A replica's disk.
#[derive(Debug)]
pub(super) struct Disk {
    image: Image,
    boot: u64,
    written: VecDeque<Write>,
    /// How many of the written a sync under way covers.
    syncing: Option<usize>,
}

/// What a sync confirmed.
#[derive(Debug, Default)]
pub(super) struct Synced {
    /// The last batch that is durable.
    pub(super) batch: Option<u64>,
    /// Own snapshots that are durable.
    pub(super) snapshots: Vec<SnapshotMetadata>,
}

impl Disk {
    /// The disk of a founding member.
    pub(super) fn founding(members: &Members, settings: &Settings, index: u64) -> Self {
        let mut place = SnapshotMetadata::default();
        (place.index, place.term) = (index, 1);
        let mut conf = ConfState::default();
        conf.voters = members.keys().map(|id| id.get()).collect();
        place.set_conf_state(conf);
        let mut hard_state = HardState::default();
        (hard_state.term, hard_state.commit) = (1, index);
        let whole = Replicated::found(settings.clone(), members.clone());
        Self::with(Image {
            hard_state,
            place,
            snapshot: whole.encode().into(),
            chain: 0,
            entries: Vec::new(),
        })
    }

    /// An empty disk: its replica knows nothing, not even who the members are.
    pub(super) fn empty(settings: &Settings) -> Self {
        let whole = Replicated::found(settings.clone(), Members::new());
        Self::with(Image {
            hard_state: HardState::default(),
            place: SnapshotMetadata::default(),
            snapshot: whole.encode().into(),
            chain: 0,
            entries: Vec::new(),
        })
    }

    const fn with(image: Image) -> Self {
        Self { image, boot: 0, written: VecDeque::new(), syncing: None }
    }

    /// What a replica that starts finds, with the print up to its snapshot and the run's number.
    pub(super) fn recover(&mut self) -> (Recovered, u64, u64) {
        self.boot += 1;
        let Image { hard_state, place, snapshot, chain, entries } = self.image.clone();
        let whole =
            Replicated::decode(&snapshot).expect("the lab's own disk keeps what it is given");
        (Recovered { hard_state, place, whole, entries }, self.boot, chain)
    }

    /// Forgets that it was ever started: a planted mistake.
    pub(super) const fn forget_last_run(&mut self) {
        self.boot = 0;
    }

    /// The snapshot that can be sent to others, if it stands at this very place.
    pub(super) fn snapshot_at(&self, index: u64) -> Option<(Arc<[u8]>, u64)> {
        let image = &self.image;
        (image.place.index == index).then(|| (Arc::clone(&image.snapshot), image.chain))
    }

    /// Takes a batch, with the print of all entries up to the snapshot it may carry.
    pub(super) fn write(&mut self, batch: Batch, chain: u64) {
        self.written.push_back(Write::Batch { batch, chain });
    }

    /// Takes a snapshot of one's own.
    pub(super) fn write_snapshot(&mut self, place: SnapshotMetadata, bytes: Arc<[u8]>, chain: u64) {
        self.written.push_back(Write::Snapshot { place, bytes, chain });
    }

    /// Begins to sync everything written; false if there is nothing, or a sync is under way.
    pub(super) fn begin_sync(&mut self) -> bool {
        if self.syncing.is_some() || self.written.is_empty() {
            return false;
        }
        self.syncing = Some(self.written.len());
        true
    }

    /// The sync has ended.
    pub(super) fn end_sync(&mut self) -> Synced {
        let mut synced = Synced::default();
        for _ in 0..self.syncing.take().unwrap_or(0) {
            let Some(write) = self.written.pop_front() else { break };
            match &write {
                Write::Batch { batch, .. } => synced.batch = Some(batch.number),
                Write::Snapshot { place, .. } => synced.snapshots.push(place.clone()),
            }
            self.image.keep(write);
        }
        synced
    }

    /// Whether nothing that was written must be durable before it is confirmed.
    pub(super) fn may_confirm_early(&self) -> bool {
        self.written.iter().all(|write| match write {
            Write::Batch { batch, .. } => !batch.must_sync,
            Write::Snapshot { .. } => false,
        })
    }

    /// The last batch written, durable or not.
    pub(super) fn last_written(&self) -> Option<u64> {
        self.written.iter().rev().find_map(|write| match write {
            Write::Batch { batch, .. } => Some(batch.number),
            Write::Snapshot { .. } => None,
        })
    }

    /// The replica dies, with or without its machine: what was not synced may not have been handed to
    /// the system yet, or be lost with it.
    pub(super) fn crash(&mut self, dice: &mut Dice) {
        self.syncing = None;
        for _ in 0..dice.below(self.written.len() as u64 + 1) {
            if let Some(write) = self.written.pop_front() {
                self.image.keep(write);
            }
        }
        self.written.clear();
    }
}

impl Image {
    fn keep(&mut self, write: Write) {
        match write {
            Write::Batch { batch, chain } => {
                if let Some((place, bytes)) = batch.snapshot {
                    (self.place, self.snapshot, self.chain) = (place, bytes, chain);
                    self.entries.clear();
                }
                if let Some(first) = batch.entries.first() {
                    self.entries.retain(|entry| entry.index < first.index);
                    self.entries.extend(batch.entries);
                }
                if let Some(hard_state) = batch.hard_state {
                    self.hard_state = hard_state;
                }
            }
            Write::Snapshot { place, bytes, chain } => {
                if place.index > self.place.index {
                    self.entries.retain(|entry| entry.index > place.index);
                    (self.place, self.snapshot, self.chain) = (place, bytes, chain);
                }
            }
        }
    }
}
