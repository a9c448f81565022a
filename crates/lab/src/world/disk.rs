//! One replica's disk: a list of writes of which a prefix is durable.
//!
//! A batch is durable when a sync that began after it was written has ended; one sync serves
//! everything that waited when it began. Beneath are two media. In a *directory* the real code writes
//! real records into simulated files, and recovers from what a crash leaves of them. An *image* is the
//! idea of it, many times faster: in a crash the durable prefix survives for certain and any further
//! prefix by chance, each batch whole or not at all, as a checksummed record does.

use std::collections::VecDeque;
use std::sync::Arc;

use raft::eraftpb::{ConfState, Entry, HardState, SnapshotMetadata};
use regent_election::Settings;
use regent_replica::io::{Batch, SnapshotTask};
use regent_replica::{Members, Recovered, ReplicaId, ReplicatedState};

use super::directory::{Directory, Fate};
use crate::dice::Dice;
use crate::plan::Medium as Model;

/// What survives, as an idea.
#[derive(Clone, Debug)]
struct Image {
    hard_state: HardState,
    place: SnapshotMetadata,
    snapshot: Arc<[u8]>,
    /// The print of all entries up to the snapshot's place; the lab's own, for S8.
    chain: u64,
    entries: Vec<Entry>,
    boot: u64,
}

#[derive(Debug)]
enum Medium {
    Image(Box<Image>),
    Directory(Box<Directory>),
}

/// Something to be written.
#[derive(Debug)]
pub(super) enum Write {
    Batch {
        batch: Batch,
        chain: u64,
    },
    /// A snapshot of one's own; it takes the place of entries.
    Snapshot {
        task: SnapshotTask,
        bytes: Arc<[u8]>,
        chain: u64,
    },
}

/// Why a replica does not start from its disk.
#[derive(Debug)]
pub(super) enum Refused {
    /// There is no room to begin; later there may be.
    NotNow(String),
    /// What is there cannot be relied on.
    ForGood(String),
}

/// A replica's disk.
#[derive(Debug)]
pub(super) struct Disk {
    medium: Medium,
    written: VecDeque<Write>,
    /// How many of the written a sync under way covers.
    syncing: Option<usize>,
    /// A planted mistake: every run has the number of the first.
    forgets_runs: bool,
}

/// What a sync came to.
#[derive(Debug, Default)]
pub(super) struct Synced {
    /// The last batch that is durable.
    pub(super) batch: Option<u64>,
    /// Own snapshots that are durable.
    pub(super) snapshots: Vec<SnapshotMetadata>,
    /// A snapshot was not made.
    pub(super) not_made: bool,
    /// What was found out about the room on the disk.
    pub(super) room: Option<bool>,
    /// Nothing more was written for want of room: the same sync is to be tried again.
    pub(super) is_refused: bool,
    /// The disk has failed: the process must end.
    pub(super) is_fatal: bool,
}

impl Disk {
    /// The disk of a founding member, which starts with this whole.
    pub(super) fn founding(
        model: Model,
        id: ReplicaId,
        replicated: &ReplicatedState,
        index: u64,
    ) -> Self {
        Self::with(match model {
            Model::Image => Medium::Image(Box::new(Image::founding(replicated, index))),
            Model::Directory { segment_bytes } => {
                Medium::Directory(Box::new(Directory::founding(replicated, id, segment_bytes)))
            }
        })
    }

    /// An empty disk: its replica knows nothing, not even who the members are.
    pub(super) fn empty(model: Model, id: ReplicaId, settings: &Settings) -> Self {
        Self::with(match model {
            Model::Image => Medium::Image(Box::new(Image::empty(settings))),
            Model::Directory { segment_bytes } => {
                Medium::Directory(Box::new(Directory::joining(id, segment_bytes)))
            }
        })
    }

    const fn with(medium: Medium) -> Self {
        Self { medium, written: VecDeque::new(), syncing: None, forgets_runs: false }
    }

    /// What a replica that starts finds, with the run's number and the print up to its snapshot; or why
    /// the disk is refused.
    pub(super) fn recover(&mut self) -> Result<(Recovered, u64, u64), Refused> {
        let (recovered, boot, chain) = match &mut self.medium {
            Medium::Image(image) => image.recover(),
            Medium::Directory(directory) => directory.open()?,
        };
        Ok((recovered, if self.forgets_runs { 1 } else { boot }, chain))
    }

    /// Forgets from here on that it was ever started: a planted mistake.
    pub(super) const fn forget_runs(&mut self) {
        self.forgets_runs = true;
    }

    /// The snapshot that can be sent to others, if it stands at this very place.
    pub(super) fn snapshot_at(&self, index: u64) -> Option<(Arc<[u8]>, u64)> {
        match &self.medium {
            Medium::Image(image) => {
                (image.place.index == index).then(|| (Arc::clone(&image.snapshot), image.chain))
            }
            Medium::Directory(directory) => directory.snapshot_at(index),
        }
    }

    /// Takes a batch, with the print of all entries up to the snapshot it may carry.
    pub(super) fn write(&mut self, batch: Batch, chain: u64) {
        if let (Medium::Directory(directory), Some((place, _))) =
            (&mut self.medium, &batch.snapshot)
        {
            directory.expect_snapshot(place, chain);
        }
        self.written.push_back(Write::Batch { batch, chain });
    }

    /// Takes a snapshot of one's own: what is to be made of, and what should come of it.
    pub(super) fn write_snapshot(&mut self, task: SnapshotTask, bytes: Arc<[u8]>, chain: u64) {
        if let Medium::Directory(directory) = &mut self.medium {
            directory.expect_snapshot(&task.place, chain);
        }
        self.written.push_back(Write::Snapshot { task, bytes, chain });
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
        let count = self.syncing.take().unwrap_or(0).min(self.written.len());
        let writes: VecDeque<Write> = self.written.drain(..count).collect();
        match &mut self.medium {
            Medium::Image(image) => image.sync(writes),
            Medium::Directory(directory) => {
                let (synced, rest) = sync(directory, writes);
                if !rest.is_empty() {
                    self.syncing = Some(rest.len());
                    for write in rest.into_iter().rev() {
                        self.written.push_front(write);
                    }
                }
                synced
            }
        }
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

    /// There is hardly any room left, or again all that is wanted. Says what the replica is told at once;
    /// in a directory it finds a full disk out by itself.
    pub(super) fn set_room(&mut self, is_there: bool, dice: &mut Dice) -> Option<bool> {
        match &mut self.medium {
            Medium::Image(_) => Some(is_there),
            Medium::Directory(directory) => {
                directory.leave_room(is_there, dice);
                directory.fill()
            }
        }
    }

    /// The next sync fails, if there is a real disk to fail.
    pub(super) fn fail_next_sync(&mut self) -> bool {
        match &mut self.medium {
            Medium::Image(_) => false,
            Medium::Directory(directory) => {
                directory.fail_next_sync();
                true
            }
        }
    }

    /// Whatever was about to go wrong does not.
    pub(super) fn calm(&mut self) {
        match &mut self.medium {
            Medium::Image(_) => {}
            Medium::Directory(directory) => directory.calm(),
        }
    }

    /// One bit of one file turns round while nobody runs there; says where, if there are files.
    pub(super) fn flip(&mut self, dice: &mut Dice) -> Option<String> {
        match &mut self.medium {
            Medium::Image(_) => None,
            Medium::Directory(directory) => directory.flip(dice),
        }
    }

    /// The replica dies, with or without its machine: what was not synced may not have been handed to
    /// the system yet, or be lost with it.
    pub(super) fn crash(&mut self, dice: &mut Dice) {
        self.syncing = None;
        let writes: Vec<Write> = self.written.drain(..).collect();
        match &mut self.medium {
            Medium::Image(image) => {
                let come_to = dice.below(writes.len() as u64 + 1) as usize;
                for write in writes.into_iter().take(come_to) {
                    image.keep(write);
                }
            }
            Medium::Directory(directory) => directory.crash(writes, dice),
        }
    }

    /// The replica's process dies alone, between two writes.
    pub(super) fn drop_dead(&mut self) {
        self.syncing = None;
        self.written.clear();
        if let Medium::Directory(directory) = &mut self.medium {
            directory.drop_dead();
        }
    }
}

/// Writes all of it into a directory, in order, neighbouring batches with one sync; what is left was
/// refused for want of room.
fn sync(directory: &mut Directory, mut writes: VecDeque<Write>) -> (Synced, VecDeque<Write>) {
    let mut synced = Synced::default();
    while let Some(first) = writes.front() {
        let fate = match first {
            Write::Batch { .. } => {
                let batches: Vec<Batch> = writes
                    .iter()
                    .map_while(|write| match write {
                        Write::Batch { batch, .. } => Some(batch.clone()),
                        Write::Snapshot { .. } => None,
                    })
                    .collect();
                let fate = directory.write(&batches);
                if matches!(fate, Fate::Durable(_)) {
                    writes.drain(..batches.len());
                }
                fate
            }
            Write::Snapshot { task, .. } => {
                let fate = directory.make_snapshot(task);
                writes.pop_front();
                fate
            }
        };
        match fate {
            Fate::Durable(number) => synced.batch = number.or(synced.batch),
            Fate::Kept(place) => synced.snapshots.push(place),
            Fate::NotMade => synced.not_made = true,
            Fate::NoRoom => {
                (synced.room, synced.is_refused) = (Some(false), true);
                return (synced, writes);
            }
            Fate::Fatal => {
                synced.is_fatal = true;
                return (synced, VecDeque::new());
            }
        }
    }
    match directory.fill() {
        Some(room) => synced.room = Some(room),
        None => synced.is_fatal = true,
    }
    (synced, writes)
}

impl Image {
    fn founding(replicated: &ReplicatedState, index: u64) -> Self {
        let mut place = SnapshotMetadata::default();
        (place.index, place.term) = (index, 1);
        let mut conf = ConfState::default();
        conf.voters = replicated.members.keys().map(|id| id.get()).collect();
        place.set_conf_state(conf);
        let mut hard_state = HardState::default();
        (hard_state.term, hard_state.commit) = (1, index);
        let snapshot = replicated.encode().into();
        Self { hard_state, place, snapshot, chain: 0, entries: Vec::new(), boot: 0 }
    }

    fn empty(settings: &Settings) -> Self {
        let snapshot = ReplicatedState::found(settings.clone(), Members::new()).encode().into();
        let (hard_state, place) = (HardState::default(), SnapshotMetadata::default());
        Self { hard_state, place, snapshot, chain: 0, entries: Vec::new(), boot: 0 }
    }

    fn recover(&mut self) -> (Recovered, u64, u64) {
        self.boot += 1;
        let Self { hard_state, place, snapshot, chain, entries, boot } = self.clone();
        let replicated =
            ReplicatedState::decode(&snapshot).expect("the lab's own disk keeps what it is given");
        (Recovered { hard_state, place, replicated, entries }, boot, chain)
    }

    fn sync(&mut self, writes: VecDeque<Write>) -> Synced {
        let mut synced = Synced::default();
        for write in writes {
            match &write {
                Write::Batch { batch, .. } => synced.batch = Some(batch.number),
                Write::Snapshot { task, .. } => synced.snapshots.push(task.place.clone()),
            }
            self.keep(write);
        }
        synced
    }

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
            Write::Snapshot { task, bytes, chain } => {
                let place = task.place;
                if place.index > self.place.index {
                    self.entries.retain(|entry| entry.index > place.index);
                    (self.place, self.snapshot, self.chain) = (place, bytes, chain);
                }
            }
        }
    }
}
