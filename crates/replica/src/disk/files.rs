//! The few things a disk is asked to do, so that a simulator can do them badly.
//!
//! One value of [`Files`] is one data directory: names are plain, without folders. The contract says
//! of every call what survives what. Two deaths are told apart: when the *process* dies, everything
//! that a call did stays; when the *power* fails, only what was synced does. Of the rest, any part
//! may be there: each sector of a file independently holds one of the contents it has had since the
//! last sync, a write that was under way has come to any byte and no further, and each change of a
//! name has independently happened or not.
//!
//! Handles only write and files are only read whole, because the log is written front to back and
//! read once, at the start. There is no call to preallocate or to shorten: zeros are written, which
//! takes the room for good on every file system, and what is to go is overwritten with zeros.
//! Beneath the real one is `std::fs`, which goes through the C library: fault injection by
//! `LD_PRELOAD` bites.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::names::is_of_replica;

/// The unit that a disk writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// One data directory. Shared by the thread that writes the log and those that make snapshots.
///
/// An error of [`io::ErrorKind::StorageFull`] from `create`, `rename` or `write_at` means that there
/// is no room; part of what was to be written may have been. Any other error but those named below
/// says that the disk cannot be relied on.
pub trait Files: Debug + Send + Sync {
    /// Takes the directory for this process alone, until the value returned is dropped or the
    /// process dies. [`io::ErrorKind::WouldBlock`] if another one has it, be it in this very process.
    fn lock(&self) -> io::Result<Box<dyn DirectoryLock>>;

    /// The names of everything in the directory, in any order, but for what a file system puts there
    /// by itself. [`io::ErrorKind::InvalidData`] if something that is no regular file has the name of
    /// one of a replica's files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// A whole file: everything written, synced or not.
    /// [`io::ErrorKind::NotFound`] if there is none of that name, [`io::ErrorKind::FileTooLarge`],
    /// before any memory is taken, if it has more than `bytes_max` bytes.
    fn read(&self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>>;

    /// Makes an empty file, for its owner only. [`io::ErrorKind::AlreadyExists`] if the name is taken.
    ///
    /// The name is durable only after [`Files::sync_dir`]: a file whose bytes were synced can still
    /// be gone after a power cut.
    fn create(&self, name: &str) -> io::Result<Box<dyn OpenFile>>;

    /// Opens a file that is there, for writing; its bytes stay.
    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>>;

    /// Gives a file another name, in one step; a file of that name gives way. Open handles go on
    /// with the renamed file.
    ///
    /// After a power cut either name may be there, the new one only ever with this file's bytes; after
    /// [`Files::sync_dir`] it is the new one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Without [`Files::sync_dir`] it may be back after a power cut.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes every change of names that has returned durable. A failure leaves the names in a state
    /// nobody knows, and the next call may succeed without having repaired it: end the process.
    fn sync_dir(&self) -> io::Result<()>;

    /// What people know a file by, for messages.
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(name)
    }
}

/// A file that can be written.
pub trait OpenFile: Debug + Send {
    /// Writes all these bytes at this place. A place beyond the end makes the file longer, with zeros
    /// in between.
    ///
    /// Reads of this process see it at once, and so do those of the next process if only this one
    /// dies. Nothing of it is durable.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes every byte that was written to this file, and its length, durable. Not its name.
    ///
    /// After a failure nobody knows what is on the disk: some of what was written may be lost for
    /// good, and a second call may well return success without having written it. There is no
    /// second call: the process must end, and recover from what it finds.
    fn sync_data(&mut self) -> io::Result<()>;
}

/// Something that is held until it is dropped.
pub trait DirectoryLock: Debug + Send + Sync {}

impl DirectoryLock for File {}

/// A directory of the operating system, for its owner only.
#[derive(Debug)]
pub struct RealFiles {
    directory: PathBuf,
}

impl RealFiles {
    /// The directory at this path; it is made, for good and for its owner only, if it is not there.
    pub fn new(directory: &Path) -> io::Result<Self> {
        if !directory.is_dir() {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true);
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            builder.create(directory)?;
            if let Some(parent) = directory.canonicalize()?.parent() {
                sync_directory(parent)?;
            }
        }
        Ok(Self { directory: directory.to_owned() })
    }
}

impl Files for RealFiles {
    fn lock(&self) -> io::Result<Box<dyn DirectoryLock>> {
        let file = private().create(true).truncate(false).open(self.path("lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            // What is no text is no name of ours, but it is there.
            let name = entry.file_name().to_string_lossy().into_owned();
            if !kind.is_file() && is_of_replica(&name) {
                let what = if kind.is_symlink() { "a symbolic link" } else { "no regular file" };
                let why = format!("{name} is {what}; put the file itself there");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            if !kind.is_dir() || name != OF_FILE_SYSTEM {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn read(&self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut file = File::open(self.path(name))?;
        let length = file.metadata()?.len();
        if length > bytes_max {
            let why = format!("{length} bytes, and at most {bytes_max} are read");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        // The bound holds even if the file grows meanwhile.
        Read::by_ref(&mut file).take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(private().create_new(true).open(self.path(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(private().open(self.path(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        sync_directory(&self.directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl OpenFile for File {
    #[cfg(unix)]
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, offset)
    }

    #[cfg(not(unix))]
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        use std::io::{Seek, SeekFrom, Write};
        self.seek(SeekFrom::Start(offset))?;
        self.write_all(bytes)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        File::sync_data(self)
    }
}

/// A directory at the root of file systems, in which repaired files are put: an empty disk has one.
const OF_FILE_SYSTEM: &str = "lost+found";

/// Files for their owner only: they hold the secrets of sessions.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Names are only as durable as the directory that holds them; elsewhere than on Unix a directory
/// cannot be synced and need not be.
fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_never_share_a_directory() {
        let place = tempfile::tempdir().unwrap();
        let files = RealFiles::new(&place.path().join("data")).unwrap();
        let held = files.lock().unwrap();
        assert_eq!(files.lock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(held);
        files.lock().unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn others_can_read_neither_the_directory_nor_its_files() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let files = RealFiles::new(&place.path().join("deep/data")).unwrap();
        files.create("a").unwrap();
        let _held = files.lock().unwrap();
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(place.path().join("deep/data")), 0o700);
        assert_eq!(mode(files.path("a")), 0o600);
        assert_eq!(mode(files.path("lock")), 0o600);
    }

    #[test]
    fn a_handle_goes_on_with_its_file_when_it_is_renamed() {
        let place = tempfile::tempdir().unwrap();
        let files = RealFiles::new(place.path()).unwrap();
        let mut file = files.create("a").unwrap();
        file.write_at(2, b"xy").unwrap();
        assert_eq!(files.create("a").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        files.rename("a", "b").unwrap();
        file.write_at(0, b"w").unwrap();
        file.sync_data().unwrap();
        files.sync_dir().unwrap();
        assert_eq!(files.read("b", 4).unwrap(), b"w\0xy");
        assert_eq!(files.read("b", 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(files.read("a", 4).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(files.list().unwrap(), ["b"]);
        files.remove("b").unwrap();
        assert!(files.list().unwrap().is_empty());
    }
}
