//! Segments made in advance.
//!
//! A segment is zeros, written and synced, before it is used. That makes commits cheaper than in a
//! growing file (the length does not change, so a sync writes data only), lets a lost write be
//! recognised as zeros, and takes the room while there is some: two segments are kept for what must
//! always fit (semantics 29). A full disk is noticed when the next one is to be made, while those two
//! are still there; client writes stop then, and what ends things goes on.
//!
//! Making one takes a while, so [`Reserve::fill`] is for a thread beside the loop. If nobody calls it,
//! or it is too slow, the writer makes its own segment and is slow itself.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bytes::is_zero;
use super::error::{DataDirError, Trying, WriteError};
use super::files::{Files, OpenFile};
use super::limits::{SPARE_SEGMENTS, ZEROS_BYTES};
use super::names;

/// The segments made in advance, and whether there is room for more.
#[derive(Debug)]
pub struct Reserve {
    files: Arc<dyn Files>,
    segment_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The numbers of those that are ready.
    ready: Vec<u64>,
    next: u64,
    has_room: bool,
}

/// A segment's worth of zeros, durable, to be given a segment's name.
#[derive(Debug)]
pub(super) struct Spare {
    number: u64,
    pub(super) file_bytes: u64,
}

impl Spare {
    pub(super) fn name(&self) -> String {
        names::spare(self.number)
    }
}

impl Reserve {
    /// The reserve as it is found; what is not whole and zero is removed.
    pub(super) fn open(
        files: Arc<dyn Files>,
        segment_bytes: u64,
        found: &[u64],
    ) -> Result<Self, DataDirError> {
        let mut ready = Vec::new();
        for number in found {
            let name = names::spare(*number);
            let is_good = match files.read(&name, segment_bytes) {
                Ok(bytes) => bytes.len() as u64 == segment_bytes && is_zero(&bytes),
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => false,
                Err(error) => return Err(error).opening("read", &*files, &name),
            };
            if is_good && ready.len() < SPARE_SEGMENTS {
                ready.push(*number);
            } else {
                files.remove(&name).opening("remove", &*files, &name)?;
            }
        }
        let next = found.last().map_or(1, |last| last.saturating_add(1));
        let state = Mutex::new(State { ready, next, has_room: true });
        Ok(Self { files, segment_bytes, state })
    }

    /// Makes what is missing, and says whether the disk has room: false means that clients' writes
    /// must stop while what ends things goes on. To be called after writes, and now and then while
    /// there is no room, by one thread at a time.
    pub fn fill(&self) -> Result<bool, WriteError> {
        while self.state().ready.len() < SPARE_SEGMENTS {
            let number = self.draw();
            match make(&*self.files, number, self.segment_bytes) {
                Ok(()) => self.state().ready.push(number),
                Err(WriteError::NoRoom { .. }) => {
                    self.state().has_room = false;
                    return Ok(false);
                }
                Err(fatal @ WriteError::Fatal { .. }) => return Err(fatal),
            }
        }
        self.state().has_room = true;
        Ok(true)
    }

    /// Whether the disk had room when it was last asked for some.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.state().has_room
    }

    /// How many segments are ready.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.state().ready.len()
    }

    /// A segment of at least these bytes: an ordinary one from the reserve, or one made on the spot.
    pub(super) fn take(&self, bytes: u64) -> Result<Spare, WriteError> {
        let file_bytes = bytes.next_multiple_of(8).max(self.segment_bytes);
        if file_bytes == self.segment_bytes {
            let ready = self.state().ready.pop();
            if let Some(number) = ready {
                return Ok(Spare { number, file_bytes });
            }
        }
        let number = self.draw();
        match make(&*self.files, number, file_bytes) {
            Ok(()) => Ok(Spare { number, file_bytes }),
            Err(error) => {
                self.state().has_room = false;
                Err(error)
            }
        }
    }

    /// Takes back a segment that was not used after all.
    pub(super) fn give_back(&self, spare: Spare) -> Result<(), WriteError> {
        if spare.file_bytes == self.segment_bytes {
            self.state().ready.push(spare.number);
            return Ok(());
        }
        self.files.remove(&spare.name()).writing("remove", &*self.files, &spare.name())
    }

    fn draw(&self) -> u64 {
        let mut state = self.state();
        state.next += 1;
        state.next - 1
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No change of this state is ever half done, so one who panicked left it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes one spare, for good, or leaves nothing behind.
fn make(files: &dyn Files, number: u64, file_bytes: u64) -> Result<(), WriteError> {
    let name = names::spare(number);
    let beside = names::beside(&name);
    zeros(files, &beside, file_bytes)?;
    if let Err(error) = files.rename(&beside, &name) {
        return Err(no_room_or_fatal(files, &beside, "name", error));
    }
    files.sync_dir().writing("sync the directory of", files, &name)
}

/// Makes a file of zeros, durable but for its name, or leaves nothing behind.
pub(super) fn zeros(
    files: &dyn Files,
    name: &str,
    file_bytes: u64,
) -> Result<Box<dyn OpenFile>, WriteError> {
    let zeros = vec![0; ZEROS_BYTES.min(usize::try_from(file_bytes).unwrap_or(ZEROS_BYTES))];
    let mut file = match files.create(name) {
        Ok(file) => file,
        Err(error) => return Err(no_room_or_fatal(files, name, "make", error)),
    };
    let mut at = 0;
    while at < file_bytes {
        let count = (file_bytes - at).min(zeros.len() as u64);
        if let Err(error) = file.write_at(at, &zeros[..count as usize]) {
            drop(file);
            return Err(no_room_or_fatal(files, name, "write", error));
        }
        at += count;
    }
    file.sync_data().writing("sync", files, name)?;
    Ok(file)
}

/// A full disk is a refusal, and what was begun is taken back; anything else is the end.
pub(super) fn no_room_or_fatal(
    files: &dyn Files,
    name: &str,
    what: &'static str,
    source: io::Error,
) -> WriteError {
    let path = files.path(name);
    if source.kind() != io::ErrorKind::StorageFull && source.kind() != io::ErrorKind::QuotaExceeded
    {
        return WriteError::Fatal { what, path, source };
    }
    match files.remove(name) {
        Ok(()) => WriteError::NoRoom { path, source },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            WriteError::NoRoom { path, source }
        }
        Err(source) => WriteError::Fatal { what: "remove", path, source },
    }
}
