//! The data directory: its lock, its file names, and how a file comes into being for good.
//!
//! A file appears whole or not at all: it is written beside its name, synced, renamed, and the
//! directory synced too, since a name is only as durable as the directory that holds it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::frame::FileKind;

/// Why a local store cannot be opened. Each says where, what, and the way out.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The operating system refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another process has the directory.
    #[error(
        "{} is in use by another process; stop that one first, or choose another directory",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// A file is not what was written.
    #[error(
        "{} is damaged at byte {offset}: {why}; nothing was changed: restore the whole directory from a backup. Do not delete single files, or terms could come back",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong there.
        why: String,
    },
    /// A file that must be there is not.
    #[error(
        "{} is missing although other files need it: restore the whole directory from a backup",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file of a later version.
    #[error(
        "{} was written by a newer program ({why}); use that one; nothing was changed",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// What is not known here.
        why: String,
    },
    /// The settings contradict what the store holds.
    #[error("the settings cannot be kept: {0}")]
    Settings(String),
    /// No thread or no random number could be had.
    #[error("the system gave no {what}: {why}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// Why not.
        why: String,
    },
}

/// Short for what opening returns.
pub(super) type LocalResult<T> = Result<T, LocalError>;

/// Says what was tried when an operation fails.
pub(super) trait Trying<T> {
    fn trying(self, what: &'static str, path: &Path) -> LocalResult<T>;
}

impl<T> Trying<T> for io::Result<T> {
    fn trying(self, what: &'static str, path: &Path) -> LocalResult<T> {
        self.map_err(|source| LocalError::Io { what, path: path.to_owned(), source })
    }
}

/// A data directory that this process alone uses, as long as this value lives.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// The directory itself, to make names durable. Opened once: a process that has run out of file
    /// descriptors could otherwise name a file and not keep the name.
    names: Option<File>,
    /// Holds the lock; released when it is dropped, also by a crash.
    _lock: File,
}

impl Directory {
    /// Makes the directory if need be and takes its lock.
    pub(super) fn open(path: &Path) -> LocalResult<Self> {
        make_private_dir(path).trying("make", path)?;
        let lock_path = path.join("lock");
        let lock = private().write(true).create(true).truncate(false).open(&lock_path);
        let lock = lock.trying("open", &lock_path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LocalError::InUse { path: path.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(source).trying("lock", &lock_path),
        }
        // Elsewhere a directory cannot be opened, and names need no sync.
        let names = cfg!(unix).then(|| File::open(path)).transpose().trying("open", path)?;
        Ok(Self { path: path.to_owned(), names, _lock: lock })
    }

    pub(super) fn path_of(&self, kind: FileKind, number: u64) -> PathBuf {
        self.path.join(file_name(kind, number))
    }

    /// The numbers of the files of one kind, rising.
    pub(super) fn numbers(&self, kind: FileKind) -> LocalResult<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path).trying("list", &self.path)? {
            let name = entry.trying("list", &self.path)?.file_name();
            numbers.extend(name.to_str().and_then(|name| number_in(kind, name)));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Removes what a crash left half-made.
    pub(super) fn remove_leftovers(&self) -> LocalResult<()> {
        for entry in fs::read_dir(&self.path).trying("list", &self.path)? {
            let path = entry.trying("list", &self.path)?.path();
            if path.extension().is_some_and(|extension| extension == "tmp") {
                fs::remove_file(&path).trying("remove", &path)?;
            }
        }
        Ok(())
    }

    /// Makes a file appear whole under its name, for good. `write` fills it; it is synced here.
    ///
    /// After an error the file may have its name all the same, if that could not be made durable.
    pub(super) fn create(
        &self,
        kind: FileKind,
        number: u64,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> LocalResult<File> {
        let path = self.path_of(kind, number);
        let beside = path.with_extension("tmp");
        let mut file = private()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&beside)
            .trying("make", &beside)?;
        write(&mut file).and_then(|()| file.sync_all()).trying("write", &beside)?;
        fs::rename(&beside, &path).trying("name", &path)?;
        self.sync()?;
        Ok(file)
    }

    /// Removes all files of a kind with a number below `below`. They are needed no more, so a crash
    /// in between leaves only what the next opening removes.
    pub(super) fn remove_below(&self, kind: FileKind, below: u64) -> LocalResult<()> {
        for number in self.numbers(kind)?.into_iter().filter(|number| *number < below) {
            let path = self.path_of(kind, number);
            fs::remove_file(&path).trying("remove", &path)?;
        }
        Ok(())
    }

    /// Makes names durable.
    fn sync(&self) -> LocalResult<()> {
        self.names.as_ref().map_or(Ok(()), File::sync_all).trying("sync", &self.path)
    }
}

/// Opens an existing file for reading and writing.
pub(super) fn open_existing(path: &Path) -> LocalResult<File> {
    OpenOptions::new().read(true).write(true).open(path).trying("open", path)
}

fn file_name(kind: FileKind, number: u64) -> String {
    match kind {
        FileKind::Journal => format!("journal-{number}.log"),
        FileKind::Snapshot => format!("state-{number}.snap"),
    }
}

/// The number in a file's name; only the one way to write it counts.
fn number_in(kind: FileKind, name: &str) -> Option<u64> {
    let digits = match kind {
        FileKind::Journal => name.strip_prefix("journal-")?.strip_suffix(".log")?,
        FileKind::Snapshot => name.strip_prefix("state-")?.strip_suffix(".snap")?,
    };
    let number = digits.parse().ok()?;
    (file_name(kind, number) == name).then_some(number)
}

/// Files for their owner only: they hold the secrets of sessions.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn make_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_never_share_a_directory_and_the_message_names_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("data");
        let first = Directory::open(&path).unwrap();
        let error = Directory::open(&path).unwrap_err();
        assert!(matches!(error, LocalError::InUse { .. }), "{error}");
        assert!(error.to_string().contains("data"), "{error}");
        drop(first);
        Directory::open(&path).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn others_can_read_neither_the_directory_nor_its_files() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("data");
        let directory = Directory::open(&path).unwrap();
        directory.create(FileKind::Journal, 0, |_| Ok(())).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&path.join("lock")), 0o600);
        assert_eq!(mode(&path.join("journal-0.log")), 0o600);
    }

    #[test]
    fn only_exact_names_are_files_of_the_store() {
        for (name, number) in [
            ("journal-0.log", Some(0)),
            ("journal-17.log", Some(17)),
            ("journal-017.log", None),
            ("journal-+1.log", None),
            ("journal-1.log.tmp", None),
            ("journal-.log", None),
            ("state-1.snap", None),
        ] {
            assert_eq!(number_in(FileKind::Journal, name), number, "{name}");
        }
        assert_eq!(number_in(FileKind::Snapshot, "state-4.snap"), Some(4));
    }

    #[test]
    fn a_file_that_failed_to_be_written_never_gets_its_name() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let failing = |_: &mut File| Err(io::Error::other("no"));
        assert!(directory.create(FileKind::Snapshot, 1, failing).is_err());
        assert_eq!(directory.numbers(FileKind::Snapshot).unwrap(), Vec::<u64>::new());
        directory.remove_leftovers().unwrap();
        let left = fs::read_dir(place.path()).unwrap().count();
        assert_eq!(left, 1, "only the lock is left");
    }
}
