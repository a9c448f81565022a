//! Opening a directory, and founding one.
//!
//! Opening first reads and judges everything, and only then changes anything: what a lost write left
//! becomes zeros, half-made files go, and the run gets its number. Founding leaves a mark while it
//! lasts, so that a directory is either founded or may be founded again, and one whose files somebody
//! removed is never taken for an empty one. The mark alone allows nothing (`leftover`).

use std::io;
use std::sync::Arc;

use raft::eraftpb::SnapshotMetadata;

use super::acked::{self, Acked, Mark};
use super::acquainted::Acquaintances;
use super::error::{DataDirError, Trying};
use super::files::{DirectoryLock, Files};
use super::leftover;
use super::limits::SNAPSHOTS_KEPT;
use super::names::{self, FOUNDING, Listing};
use super::reserve::Reserve;
use super::snapshot::{self, Snapshots};
use super::wal::read::{self, Log};
use super::wal::replay::Suffix;
use super::wal::{self, Wal};
use super::{Disk, DiskOptions, Founding, Identity, Opened};
use crate::core::Recovered;
use crate::replicated::ReplicatedState;

/// What was found before anything is changed.
struct Findings {
    mark: Mark,
    acquaintances: Acquaintances,
    log: Log,
    choice: Choice,
    /// What was not as it should be.
    repairs: Vec<String>,
}

/// The snapshot that is used, and the log after it.
struct Choice {
    recovered: Recovered,
    /// The log must be told that it starts after the snapshot.
    must_restart: bool,
    /// The snapshots up to the one that is used, rising.
    snapshots: Vec<u64>,
    /// Those after it, which are damaged.
    damaged: Vec<u64>,
}

pub(super) fn open(files: Arc<dyn Files>, options: DiskOptions) -> Result<Opened, DataDirError> {
    options.check()?;
    let held = lock(&*files)?;
    open_held(files, options, held)
}

fn lock(files: &dyn Files) -> Result<Box<dyn DirectoryLock>, DataDirError> {
    files.lock().map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock => DataDirError::InUse { path: files.path("lock") },
        _ => DataDirError::Io { what: "lock", path: files.path("lock"), source },
    })
}

fn list(files: &dyn Files) -> Result<Listing, DataDirError> {
    let listing = Listing::new(files.list().opening("list", files, "")?);
    match &listing.of_local {
        None => Ok(listing),
        Some(name) => Err(DataDirError::Removed { path: files.path(name) }),
    }
}

pub(super) fn found(
    files: Arc<dyn Files>,
    options: DiskOptions,
    identity: Identity,
    founding: &Founding,
) -> Result<Opened, DataDirError> {
    options.check()?;
    let held = lock(&*files)?;
    let listing = list(&*files)?;
    let leftovers = leftover::of_founding(&*files, &listing, identity, founding)?;
    if !listing.is_founding {
        files.create(FOUNDING).opening("make", &*files, FOUNDING)?;
        files.sync_dir().opening("sync the directory of", &*files, FOUNDING)?;
    }
    for name in leftovers {
        files.remove(&name).opening("remove", &*files, &name)?;
    }
    Snapshots::new(Arc::clone(&files), identity, Vec::new())
        .keep(&founding.place, &founding.replicated.encode())?;
    Acked::create(&*files, identity)?;
    wal::found(&*files, identity, options.segment_bytes, &founding.summary())?;
    files.sync_dir().opening("sync the directory of", &*files, FOUNDING)?;
    files.remove(FOUNDING).opening("remove", &*files, FOUNDING)?;
    files.sync_dir().opening("sync the directory of", &*files, FOUNDING)?;
    open_held(files, options, held)
}

fn open_held(
    files: Arc<dyn Files>,
    options: DiskOptions,
    held: Box<dyn DirectoryLock>,
) -> Result<Opened, DataDirError> {
    let listing = list(&*files)?;
    let Findings { mark, acquaintances, log, mut choice, repairs } =
        look(&files, &options, &listing)?;

    let useless = choice.snapshots.len().saturating_sub(SNAPSHOTS_KEPT);
    let useless: Vec<u64> = choice.snapshots.drain(..useless).chain(choice.damaged).collect();
    let useless = useless.into_iter().map(names::snapshot);
    for name in listing.half_made.iter().cloned().chain(useless) {
        files.remove(&name).opening("remove", &*files, &name)?;
    }
    let reserve = Reserve::open(Arc::clone(&files), options.segment_bytes, &listing.spares)?;
    let reserve = Arc::new(reserve);
    // Names that only the page cache knows must not carry what is about to be confirmed.
    files.sync_dir().opening("sync the directory of", &*files, "")?;
    let mut wal = Wal::open(Arc::clone(&files), Arc::clone(&reserve), &log, mark)?;
    let Choice { recovered, must_restart, snapshots, .. } = choice;
    let restarted = must_restart.then_some((recovered.place.index, recovered.place.term));
    let boot = wal.boot(restarted, &recovered.hard_state)?;
    let snapshots = Snapshots::new(Arc::clone(&files), mark.identity, snapshots);
    let acquaintances = Arc::new(acquaintances);
    let has_failed = false;
    let disk = Disk { wal, snapshots, reserve, acquaintances, has_failed, files, _held: held };
    Ok(Opened { disk, identity: mark.identity, recovered, boot, repairs })
}

/// Reads and judges everything; changes nothing.
fn look(
    shared: &Arc<dyn Files>,
    options: &DiskOptions,
    listing: &Listing,
) -> Result<Findings, DataDirError> {
    let files = &**shared;
    if listing.is_founding {
        return Err(DataDirError::HalfFounded { path: files.path(FOUNDING) });
    }
    if !listing.is_inhabited() {
        return Err(DataDirError::Empty { path: files.path("") });
    }
    if !listing.has_acked {
        return Err(DataDirError::damaged(&files.path(names::ACKED), 0, "it is missing"));
    }
    let mark = acked::read(files)?;
    let identity = mark.identity;
    let expected = Identity {
        cluster: options.cluster.unwrap_or(identity.cluster),
        replica: options.replica.unwrap_or(identity.replica),
        ..identity
    };
    expected.check(identity, &files.path(names::ACKED))?;
    let acquaintances = Acquaintances::open(Arc::clone(shared), identity, listing.has_peers)?;
    let log = read::read(files, &identity, &listing.segments, mark.number)?;
    let mut repairs = Vec::new();
    if let Some(until) = log.tail.leftover_until {
        let bytes = until - log.tail.at;
        repairs.push(format!(
            "the log's last write was lost before it was durable; its remains, {bytes} bytes after byte {}, are cut off",
            log.tail.at
        ));
    }
    let choice = choose_snapshot(files, &identity, &log, &listing.snapshots, &mut repairs)?;
    Ok(Findings { mark, acquaintances, log, choice, repairs })
}

/// Takes the newest snapshot that is whole, if the log goes on from it.
fn choose_snapshot(
    files: &dyn Files,
    identity: &Identity,
    log: &Log,
    indexes: &[u64],
    repairs: &mut Vec<String>,
) -> Result<Choice, DataDirError> {
    let mut faults: Vec<(u64, DataDirError)> = Vec::new();
    for (at, index) in indexes.iter().enumerate().rev() {
        let (place, replicated) = match read_whole(files, identity, *index) {
            Ok(found) => found,
            Err(fault @ DataDirError::Damaged { .. }) => {
                faults.push((*index, fault));
                continue;
            }
            Err(other) => return Err(other),
        };
        let Suffix { hard_state, entries, must_restart } = match log.replay.after(&place) {
            Ok(suffix) => suffix,
            Err(why) => {
                let path = files.path(&names::snapshot(*index));
                faults.push((*index, DataDirError::damaged(&path, 0, why)));
                break;
            }
        };
        for (_, fault) in &faults {
            repairs.push(format!("{}; it is given up for the one before it", fault.fault()));
        }
        let recovered = Recovered { hard_state, place, replicated, entries };
        let damaged = faults.into_iter().map(|(index, _)| index).collect();
        return Ok(Choice { recovered, must_restart, snapshots: indexes[..=at].to_vec(), damaged });
    }
    let faults: Vec<String> = faults.iter().map(|(_, fault)| fault.fault()).collect();
    let why = if faults.is_empty() { "there is no snapshot".into() } else { faults.join("; and ") };
    Err(DataDirError::damaged(&files.path(""), 0, why))
}

fn read_whole(
    files: &dyn Files,
    identity: &Identity,
    index: u64,
) -> Result<(SnapshotMetadata, ReplicatedState), DataDirError> {
    let (place, bytes) = snapshot::read(files, identity, index)?;
    let replicated = ReplicatedState::decode(&bytes).map_err(|why| {
        DataDirError::damaged(&files.path(&names::snapshot(index)), 0, why.to_string())
    })?;
    Ok((place, replicated))
}
