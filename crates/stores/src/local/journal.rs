//! The journal: the file to which every entry goes before its answer does.
//!
//! It is appended to in frames (see [`super::frame`]), each made durable by one `fdatasync` for all
//! entries that waited. Space is taken in advance by writing zeros, so that a full disk is noticed
//! before anything is promised, and `fdatasync` has no file size to write.
//!
//! A failed write or sync cannot be tried again: the kernel may have dropped the pages and would say
//! "done" the second time. So every error here is final for the process.

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};

use regent_election::{Incarnation, Revision};

use super::files::{Directory, LocalResult};
use super::frame::{FileKind, Header, entries_frame, seal_frame};

/// Space taken at a time.
const CHUNK_BYTES: u64 = 1 << 20;
/// Less space ahead than this, and more is taken.
const AHEAD_BYTES_MIN: u64 = CHUNK_BYTES / 2;

/// The journal that is being written.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    number: u64,
    incarnation: Incarnation,
    /// Where the next frame goes.
    end: u64,
    /// Up to where space is taken.
    taken: u64,
}

impl Journal {
    /// Makes an empty journal that goes on from `revision`.
    pub(super) fn create(
        directory: &Directory,
        number: u64,
        incarnation: Incarnation,
        revision: Revision,
    ) -> LocalResult<Self> {
        let header = Header { kind: FileKind::Journal, number, incarnation, revision }.encode();
        let end = header.len() as u64;
        let file = directory.create(FileKind::Journal, number, |file| {
            file.write_all(&header)?;
            file.write_all(&vec![0; CHUNK_BYTES as usize])
        })?;
        Ok(Self { file, number, incarnation, end, taken: end + CHUNK_BYTES })
    }

    /// Goes on after the last whole frame of a journal that was read. The zeros behind it are space
    /// taken in advance; what is torn is replaced by zeros before anything else is written.
    pub(super) fn resume(
        mut file: File,
        number: u64,
        incarnation: Incarnation,
        end: u64,
        is_torn: bool,
    ) -> io::Result<Self> {
        let mut taken = file.metadata()?.len();
        if is_torn {
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
            file.write_all(&vec![0; CHUNK_BYTES as usize])?;
            file.sync_all()?;
            taken = end + CHUNK_BYTES;
        }
        Ok(Self { file, number, incarnation, end, taken })
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    pub(super) const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Bytes written.
    pub(super) const fn len(&self) -> u64 {
        self.end
    }

    /// Bytes that can be written without asking the disk for space.
    pub(super) const fn room(&self) -> u64 {
        self.taken.saturating_sub(self.end)
    }

    /// Makes entries durable, as one frame. After an error nothing is known.
    pub(super) fn append(&mut self, first: Revision, pending: &[u8]) -> io::Result<()> {
        self.write(&entries_frame(first, pending))
    }

    /// Ends this journal for good; the one of the next number goes on.
    pub(super) fn seal(&mut self) -> io::Result<()> {
        self.write(&seal_frame(self.number + 1))
    }

    /// Takes more space if little is left. False means that the disk is full; what was taken before
    /// stays. Other errors are final.
    pub(super) fn take_space(&mut self) -> io::Result<bool> {
        if self.room() >= AHEAD_BYTES_MIN {
            return Ok(true);
        }
        let from = self.taken.max(self.end);
        self.file.seek(SeekFrom::Start(from))?;
        match self.file.write_all(&vec![0; CHUNK_BYTES as usize]) {
            Ok(()) => {
                self.file.sync_all()?;
                self.taken = from + CHUNK_BYTES;
                Ok(true)
            }
            Err(error) if is_full(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(frame)?;
        self.file.sync_data()?;
        self.end += frame.len() as u64;
        Ok(())
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}
