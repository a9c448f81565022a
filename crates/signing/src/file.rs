//! The ring on disk: one file that all instances of a service share.
//!
//! Whoever reads it can sign, so it is refused if anybody but its owner could. It is replaced whole: written
//! beside, synced, renamed. A service looks at it now and then and reads it again when it is another one; a
//! file that cannot be read then leaves the keys as they were.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use regent_files::{FileError, Trust};

use crate::ring::{Ring, RingError};

/// Largest file that is read.
const BYTES_MAX: u64 = 1 << 20;

/// Why a file of keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The system did not do it.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be read, or must not be trusted: whoever reads it can sign.
    #[error("{0}{advice}", advice = advice(.0))]
    File(#[from] FileError),
    /// It is no file of keys.
    #[error("{} is no file of signing keys: {why}", path.display())]
    Malformed { path: PathBuf, why: String },
    /// It is there already.
    #[error("{} is there already; rotate its keys instead", path.display())]
    Exists { path: PathBuf },
    /// Its keys cannot be used.
    #[error("{}: {why}", path.display())]
    Ring { path: PathBuf, why: RingError },
}

/// What helps beyond what the file needs.
fn advice(error: &FileError) -> &'static str {
    match error {
        FileError::Open { .. } => ", and rotate the keys if somebody has read them",
        FileError::Io { .. }
        | FileError::NotRegular { .. }
        | FileError::TooLarge { .. }
        | FileError::Owner { .. } => "",
    }
}

/// What tells one file from the next without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    changed_at: (i64, i64),
}

/// A file of keys, as it was read last.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    stamp: Stamp,
    ring: Ring,
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeyFileError {
    let path = path.to_owned();
    move |source| KeyFileError::Io { what, path, source }
}

fn read(path: &Path) -> Result<(Stamp, Ring), KeyFileError> {
    let file = regent_files::open(path, BYTES_MAX, Trust::Secret)?;
    let facts = file.facts.clone();
    let bytes = file.read()?;
    let malformed = |why: String| KeyFileError::Malformed { path: path.to_owned(), why };
    // The parser's own words could quote a secret; where it stopped is enough.
    let ring: Ring = serde_json::from_slice(&bytes)
        .map_err(|error| malformed(format!("line {}, column {}", error.line(), error.column())))?;
    if !ring.is_of_this_version() {
        return Err(malformed("it is of another version".to_owned()));
    }
    ring.check().map_err(|why| KeyFileError::Ring { path: path.to_owned(), why })?;
    let changed_at = (facts.mtime(), facts.mtime_nsec());
    Ok((Stamp { inode: facts.ino(), bytes: facts.len(), changed_at }, ring))
}

fn write(path: &Path, ring: &Ring) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    let mut text = serde_json::to_string_pretty(ring).map_err(io::Error::other)?;
    text.push('\n');
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

impl KeyFile {
    /// Reads a file of keys.
    pub fn open(path: &Path) -> Result<Self, KeyFileError> {
        let (stamp, ring) = read(path)?;
        Ok(Self { path: path.to_owned(), stamp, ring })
    }

    /// Makes a file of keys where there is none.
    pub fn create(path: &Path, ring: &Ring) -> Result<Self, KeyFileError> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(KeyFileError::Exists { path: path.to_owned() });
        }
        write(path, ring).map_err(failed("write", path))?;
        Self::open(path)
    }

    /// The keys.
    #[must_use]
    pub const fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the keys. Two who do so at once would lose one's change: it is an operator's deed, by hand.
    pub fn replace(&mut self, ring: Ring) -> Result<(), KeyFileError> {
        write(&self.path, &ring).map_err(failed("write", &self.path))?;
        (self.stamp, self.ring) = read(&self.path)?;
        Ok(())
    }

    /// Reads the file again if it is another one, and says whether it was. If it cannot be read, the keys
    /// stay as they were.
    pub fn refresh(&mut self) -> Result<bool, KeyFileError> {
        let facts = fs::metadata(&self.path).map_err(failed("read", &self.path))?;
        let changed_at = (facts.mtime(), facts.mtime_nsec());
        let stamp = Stamp { inode: facts.ino(), bytes: facts.len(), changed_at };
        if stamp == self.stamp {
            return Ok(false);
        }
        (self.stamp, self.ring) = read(&self.path)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::SigningAlgorithm;
    use crate::ring::KeyEntry;
    use std::os::unix::fs::PermissionsExt;

    fn ring(byte: u8) -> Ring {
        let mut ring = Ring::empty();
        ring.add(KeyEntry::new(SigningAlgorithm::EdDsa, &[byte; 32], 0, 0).unwrap(), 0).unwrap();
        ring
    }

    #[test]
    fn a_file_of_keys_is_its_owners_alone_and_read_again_when_it_changes() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("keys");
        let mut service = KeyFile::create(&path, &ring(1)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!service.refresh().unwrap());
        KeyFile::open(&path).unwrap().replace(ring(2)).unwrap();
        assert!(service.refresh().unwrap());
        assert_eq!(*service.ring(), ring(2));
        fs::write(&path, "{").unwrap();
        let error = service.refresh().unwrap_err();
        assert!(matches!(error, KeyFileError::Malformed { .. }), "{error}");
        assert_eq!(*service.ring(), ring(2), "the keys stay as they were");
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("keys");
        KeyFile::create(&path, &ring(1)).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o644] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = KeyFile::open(&path).unwrap_err();
            assert!(matches!(error, KeyFileError::File(FileError::Open { .. })), "{error}");
        }
        assert!(matches!(KeyFile::create(&path, &ring(2)), Err(KeyFileError::Exists { .. })));
    }

    #[test]
    fn a_damaged_file_is_refused_and_quotes_no_secret() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("keys");
        KeyFile::create(&path, &ring(1)).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        let secret = whole.split("\"secret\": \"").nth(1).unwrap().split('"').next().unwrap();
        for damaged in [
            whole.replace(secret, &secret.replace('A', "B")),
            whole.replace("\"version\": 1", "\"version\": 2"),
            whole.replace("EdDSA", "none"),
            whole[..whole.len() / 2].to_owned(),
        ] {
            fs::write(&path, &damaged).unwrap();
            let error = KeyFile::open(&path).unwrap_err().to_string();
            assert!(!error.contains(secret), "{error}");
        }
    }
}
