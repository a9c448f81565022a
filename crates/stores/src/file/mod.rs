//! `file:///DIRECTORY`: a register in files, for the processes of one host.
//!
//! One file for each entry, replaced as a whole: written beside, synced, renamed, directory synced.
//! Whoever replaces holds the lock of the entry's stripe, a lock of the kernel's that ends with its
//! process. Sessions are timed by those who watch them, so no process is more than any other, and none
//! has to run.
//!
//! A reader may meet a file whose writer died between the rename and the sync of the directory. What a
//! power cut could still take back must not be told, so whoever first meets a version syncs the
//! directory before telling.
//!
//! Not across a network: there, locks and renames are what the server makes of them, and such a
//! directory is refused.

mod entry;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use regent_election::store::{Description, Level};

use crate::register::{
    Found, Key, KeyKind, Record, Register, RegisterError, RegisterResult, Swapped, VALUE_BYTES_MAX,
    Version,
};

/// Locks that entries share: enough that two rarely meet.
const STRIPES: u32 = 64;
/// How often a lock is tried that another process holds.
const TRY_EVERY: Duration = Duration::from_millis(2);
/// How long it is tried: whoever holds it is stopped, or its disk is.
const TRY_FOR: Duration = Duration::from_secs(2);
/// How often a file is looked at by whoever waits for its change. A look costs a microsecond.
const FILE_POLL_EVERY: Duration = Duration::from_millis(25);
/// Versions known to be durable; beyond it all are forgotten, and directories synced once more.
const DURABLE_MAX: usize = 65_536;
/// Most bytes of a file: the value and its head.
const FILE_BYTES_MAX: u64 = VALUE_BYTES_MAX as u64 + 4096;

/// File systems of other machines, and those that cannot be known: their magic numbers and names.
const FOREIGN: [(u32, &str); 6] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
];

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system said no.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// It lies on another machine, or may.
    #[error(
        "{} is on {kind}, where locks and renames are not what they are on one host; choose a directory on a disk of this machine",
        path.display()
    )]
    Foreign {
        path: PathBuf,
        /// Its file system.
        kind: &'static str,
    },
}

/// A directory of entries. Clones share it; so do all processes that open it.
#[derive(Clone)]
pub struct FileRegister {
    shared: Arc<Shared>,
}

struct Shared {
    directory: PathBuf,
    /// Versions that a power cut cannot take back, as far as this process knows.
    durable: Mutex<BTreeMap<Key, Version>>,
}

impl fmt::Debug for FileRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRegister").field("directory", &self.shared.directory).finish()
    }
}

impl FileRegister {
    /// Opens a directory, and makes it if it is not there.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self, FileError> {
        let directory = directory.into();
        for below in
            [KeyKind::Group.word(), KeyKind::Session.word(), KeyKind::Setting.word(), "locks"]
        {
            let path = directory.join(below);
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(|source| FileError::Io { what: "make", path, source })?;
        }
        refuse_foreign(&directory)?;
        let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
        for path in [directory.as_path(), parent.unwrap_or(Path::new("."))] {
            let failed = |source| FileError::Io { what: "sync", path: path.to_owned(), source };
            sync(path).map_err(failed)?;
        }
        let shared = Shared { directory, durable: Mutex::default() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Runs what blocks where it may.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> RegisterResult<T> + Send + 'static,
    ) -> RegisterResult<T> {
        let shared = Arc::clone(&self.shared);
        // Work that was begun goes on when its future is dropped, so nothing is left half done.
        tokio::task::spawn_blocking(move || work(&shared)).await.map_err(|error| {
            RegisterError::uncertain(format!("the work was broken off: {error}"))
        })?
    }
}

impl Shared {
    fn folder(&self, kind: KeyKind) -> PathBuf {
        self.directory.join(kind.word())
    }

    fn path(&self, key: &Key) -> PathBuf {
        // No name holds a plus, so this can be undone; and no name becomes longer by it.
        self.folder(key.kind()).join(key.name().replace('/', "+"))
    }

    /// Holds the lock of an entry's stripe until it is dropped.
    fn lock(&self, key: &Key) -> RegisterResult<File> {
        let path = self.directory.join("locks").join(format!("{:02}", stripe(key)));
        let file = private()
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| RegisterError::unavailable(failed("open", &path, &error)))?;
        let tries = TRY_FOR.as_millis() / TRY_EVERY.as_millis();
        for _ in 0..=tries {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => std::thread::sleep(TRY_EVERY),
                Err(TryLockError::Error(error)) => {
                    return Err(RegisterError::unavailable(failed("lock", &path, &error)));
                }
            }
        }
        let why = format!("{} has been held by another process for too long", path.display());
        Err(RegisterError::unavailable(why))
    }

    fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        let path = self.path(key);
        let read = File::open(&path).and_then(|file| {
            let mut bytes = Vec::new();
            file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(RegisterError::unavailable(failed("read", &path, &error))),
        };
        let found = entry::decode(key, &bytes)?;
        if !self.is_durable(key, &found.version) {
            sync(&self.folder(key.kind())).map_err(|error| {
                RegisterError::unavailable(failed("sync the directory of", &path, &error))
            })?;
            self.note_durable(key, &found.version);
        }
        Ok(Some(found))
    }

    fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: &Record,
    ) -> RegisterResult<Swapped> {
        let _lock = self.lock(key)?;
        let found = self.load(key)?.map(|found| found.version);
        if found.as_ref() != expected {
            return Ok(Swapped::Conflict);
        }
        let drawn = getrandom::u64()
            .map_err(|error| RegisterError::unavailable(format!("no random numbers: {error}")))?;
        let version = entry::after(found.as_ref(), drawn);
        let path = self.path(key);
        // In the same directory, and under a name that no entry has. Whoever holds the lock has it for
        // itself, and what a killed process left there is written over.
        let beside = self.folder(key.kind()).join(format!("+{:02}", stripe(key)));
        let written = write(&beside, &entry::encode(key, &version, record));
        if let Err(error) = written.and_then(|()| fs::rename(&beside, &path)) {
            let _ = fs::remove_file(&beside);
            return Err(RegisterError::unavailable(failed("write", &path, &error)));
        }
        sync(&self.folder(key.kind())).map_err(|error| {
            RegisterError::uncertain(failed("sync the directory of", &path, &error))
        })?;
        self.note_durable(key, &version);
        Ok(Swapped::Done(version))
    }

    fn list(
        &self,
        kind: KeyKind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>> {
        let folder = self.folder(kind);
        let failing =
            |error: io::Error| RegisterError::unavailable(failed("list", &folder, &error));
        let mut names = Vec::new();
        for file in fs::read_dir(&folder).map_err(failing)? {
            let file = file.map_err(failing)?.file_name();
            // What is being written opens with a plus, as no name does.
            let Some(name) = file.to_str().map(|name| name.replace('+', "/")) else { continue };
            if name.starts_with(prefix) && after.is_none_or(|after| name.as_str() > after) {
                names.extend(Key::found(kind, &name));
            }
        }
        names.sort_unstable();
        let mut entries = Vec::new();
        for key in names {
            if entries.len() == count {
                break;
            }
            if let Some(found) = self.load(&key)? {
                entries.push((key, found));
            }
        }
        Ok(entries)
    }

    /// What tells two files of one entry apart; none if there is none.
    fn mark(&self, key: &Key) -> Option<(u64, i64, i64)> {
        let metadata = fs::metadata(self.path(key)).ok()?;
        Some((metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
    }

    fn is_durable(&self, key: &Key, version: &Version) -> bool {
        let durable = self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        durable.get(key) == Some(version)
    }

    fn note_durable(&self, key: &Key, version: &Version) {
        let mut durable = self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        if durable.len() >= DURABLE_MAX {
            durable.clear();
        }
        durable.insert(key.clone(), version.clone());
    }
}

#[async_trait]
impl Register for FileRegister {
    fn describe(&self) -> Description {
        Description {
            name: "file",
            place: self.shared.directory.display().to_string(),
            level: Level::Strict,
            caveat: Some("one host and one disk: for the processes of this machine only".into()),
        }
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        self.run(|shared| {
            refuse_foreign(&shared.directory).map_err(RegisterError::unavailable)?;
            Ok(Vec::new())
        })
        .await
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        let key = key.clone();
        self.run(move |shared| shared.load(&key)).await
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        let bytes = record.value.len();
        if bytes > VALUE_BYTES_MAX {
            let why = format!("a value has at most {VALUE_BYTES_MAX} bytes; this one has {bytes}");
            return Err(RegisterError::unavailable(why));
        }
        let (key, expected) = (key.clone(), expected.cloned());
        self.run(move |shared| shared.swap(&key, expected.as_ref(), &record)).await
    }

    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        // The mark is taken before the entry is looked at: a change after the look changes the mark.
        let before = self.shared.mark(key);
        if self.load(key).await?.map(|found| found.version).as_ref() != seen {
            return Ok(());
        }
        let changed = async {
            while self.shared.mark(key) == before {
                tokio::time::sleep(FILE_POLL_EVERY).await;
            }
        };
        let _ = tokio::time::timeout(patience, changed).await;
        Ok(())
    }

    async fn list(
        &self,
        kind: KeyKind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>> {
        let (prefix, after) = (prefix.to_owned(), after.map(ToOwned::to_owned));
        self.run(move |shared| shared.list(kind, &prefix, after.as_deref(), count)).await
    }
}

/// Refuses a directory that other machines may share.
fn refuse_foreign(directory: &Path) -> Result<(), FileError> {
    let path = directory.to_owned();
    let kind = match rustix::fs::statfs(directory) {
        // The number has 32 bits, whatever type the platform gives it.
        Ok(found) => found.f_type as u32,
        Err(error) => {
            return Err(FileError::Io { what: "look at", path, source: error.into() });
        }
    };
    match FOREIGN.iter().find(|(magic, _)| *magic == kind) {
        Some((_, kind)) => Err(FileError::Foreign { path, kind }),
        None => Ok(()),
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

/// Which lock an entry shares.
fn stripe(key: &Key) -> u32 {
    crc32fast::hash(key.to_string().as_bytes()) % STRIPES
}

/// Writes a file from its beginning and makes its bytes durable.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = private().create(true).truncate(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes the names in a directory durable.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn failed(what: &str, path: &Path, error: &io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}

/// Reads the bytes as the file of a group, for the fuzzer.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let group = regent_election::Group::new("billing").expect("the name is short and plain");
    let _ = entry::decode(&Key::group(&group), bytes);
}
