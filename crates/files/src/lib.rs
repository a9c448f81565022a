//! Reads files that others may have prepared: configuration, keys, secrets, and directories of data. Writes files that
//! only their user may read.
//!
//! A path may name a pipe that never ends, a device without an end, or a file that another user can write.
//! So a file is opened without waiting, judged by what was opened and not by what had that name a moment
//! ago, and read up to a bound. Every room that reads such a file does it here.
//!
//! What is not judged: the directories above. Whoever can write those can replace everything below.

use std::fmt;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Who may do what with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Everybody may read it, and its owner is the operator's affair: configuration, policies, public keys.
    Public,
    /// Others must not be able to change it: data.
    Own,
    /// Others must not be able to read it either: keys and sessions.
    Secret,
}

/// Why a file is not used. Nothing of it was read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system did not do it.
    #[error("{}: cannot {what} it: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is something else than a file.
    #[error("{} is {kind} and not a regular file; name the file itself", path.display())]
    NotRegular {
        path: PathBuf,
        /// What it is.
        kind: Kind,
    },
    /// It is larger than any honest one.
    #[error("{} has {bytes} bytes, and at most {bytes_max} are read; is it the right file?", path.display())]
    TooLarge {
        path: PathBuf,
        bytes: u64,
        /// What is read.
        bytes_max: u64,
    },
    /// Somebody else owns it, and can change it at any time.
    #[error("{} belongs to user {owner}, and this process runs as user {own}; chown {own} {}", path.display(), path.display())]
    Owner {
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who runs this process.
        own: u32,
    },
    /// Others can do what they must not.
    #[error("{} can be {verb} by others (mode {mode:03o}); chmod {cure} {}", path.display(), path.display())]
    Open {
        path: PathBuf,
        /// What they can do.
        verb: &'static str,
        mode: u32,
        /// The permissions that help, as `chmod` takes them.
        cure: &'static str,
    },
}

impl FileError {
    /// Whether there is no such file.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// What stands behind a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory,
    /// A named pipe: whoever reads it waits for a writer.
    Pipe,
    /// A device, which may have no end.
    Device,
    Socket,
    Other,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::Pipe => "a named pipe",
            Self::Device => "a device",
            Self::Socket => "a socket",
            Self::Other => "something else",
        })
    }
}

/// A file that was opened and judged.
#[derive(Debug)]
pub struct Checked {
    file: File,
    path: PathBuf,
    bytes_max: u64,
    /// What the system says about the very file that is read.
    pub facts: Metadata,
}

/// Opens a file of at most so many bytes, if it may be trusted so far.
pub fn open(path: &Path, bytes_max: u64, trust: Trust) -> Result<Checked, FileError> {
    // Opening a pipe would wait for a writer, and the file must be judged before it is read.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = opened.map_err(failed("open", path))?;
    let facts = file.metadata().map_err(failed("read", path))?;
    if !facts.is_file() {
        return Err(FileError::NotRegular { path: path.to_owned(), kind: kind(&facts) });
    }
    judge(path, Facts::of(&facts), trust, geteuid().as_raw())?;
    if facts.len() > bytes_max {
        return Err(FileError::TooLarge { path: path.to_owned(), bytes: facts.len(), bytes_max });
    }
    Ok(Checked { file, path: path.to_owned(), bytes_max, facts })
}

/// A whole file of at most so many bytes, if it may be trusted so far.
pub fn read(path: &Path, bytes_max: u64, trust: Trust) -> Result<Vec<u8>, FileError> {
    open(path, bytes_max, trust)?.read()
}

/// The same as text.
pub fn read_text(path: &Path, bytes_max: u64, trust: Trust) -> Result<String, FileError> {
    let bytes = read(path, bytes_max, trust)?;
    String::from_utf8(bytes).map_err(|error| failed("read", path)(io::Error::other(error)))
}

impl Checked {
    /// The file itself, for whoever reads it piece by piece and never holds all of it.
    #[must_use]
    pub fn into_file(self) -> File {
        self.file
    }

    /// All of it. The bound holds even if the file grows meanwhile.
    pub fn read(self) -> Result<Vec<u8>, FileError> {
        let mut bytes = Vec::new();
        let limit = self.bytes_max.saturating_add(1);
        self.file.take(limit).read_to_end(&mut bytes).map_err(failed("read", &self.path))?;
        let count = bytes.len() as u64;
        if count > self.bytes_max {
            let Self { path, bytes_max, .. } = self;
            return Err(FileError::TooLarge { path, bytes: count, bytes_max });
        }
        Ok(bytes)
    }
}

/// Writes a file that only this user may read, in place of the one that is there, if one is: whoever reads it finds one of
/// the two, whole. A link is replaced and not followed.
///
/// # Errors
/// If it cannot be written. What was there stays, and nothing is left behind.
pub fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(name);
    let written = create_private(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Writes a file that only this user may read, and that must not be there yet.
///
/// # Errors
/// If there is something, or it cannot be written.
pub fn create_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    opened.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
}

/// Makes a directory that only this user may look into, and those above it, unless they are there.
///
/// # Errors
/// If it cannot be made.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// How many bytes can still be written to the file system of this directory by a user who is not root.
pub fn free_bytes(directory: &Path) -> io::Result<u64> {
    let room = rustix::fs::statvfs(directory)?;
    Ok(room.f_bavail.saturating_mul(room.f_frsize))
}

/// Refuses a directory of data that others can change, or that has files which others can change. One
/// that does not exist is no danger yet.
pub fn check_directory(path: &Path) -> Result<(), FileError> {
    let facts = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        facts => facts.map_err(failed("read", path))?,
    };
    let own = geteuid().as_raw();
    judge(path, Facts::of(&facts), Trust::Own, own)?;
    for entry in fs::read_dir(path).map_err(failed("list", path))? {
        let entry = entry.map_err(failed("list", path))?;
        let facts = match entry.metadata() {
            // A file that a server removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            facts => facts.map_err(failed("read", &entry.path()))?,
        };
        if facts.is_file() {
            judge(&entry.path(), Facts::of(&facts), Trust::Own, own)?;
        }
    }
    Ok(())
}

/// What decides about a file.
#[derive(Clone, Copy, Debug)]
struct Facts {
    owner: u32,
    mode: u32,
}

impl Facts {
    fn of(facts: &Metadata) -> Self {
        Self { owner: facts.uid(), mode: facts.mode() & 0o777 }
    }
}

/// Whether a file may be trusted so far by a process of this user. Root can change everything anyway.
fn judge(path: &Path, facts: Facts, trust: Trust, own: u32) -> Result<(), FileError> {
    let Facts { owner, mode } = facts;
    let path = || path.to_owned();
    let (mask, cure) = match trust {
        Trust::Public => return Ok(()),
        Trust::Own => (0o022, "go-w"),
        Trust::Secret => (0o077, "600"),
    };
    if owner != own && owner != 0 {
        return Err(FileError::Owner { path: path(), owner, own });
    }
    if mode & mask != 0 {
        let verb = match () {
            () if mode & mask & 0o044 != 0 => "read",
            () if mode & mask & 0o022 != 0 => "written",
            () => "run",
        };
        return Err(FileError::Open { path: path(), verb, mode, cure });
    }
    Ok(())
}

fn kind(facts: &Metadata) -> Kind {
    let kind = facts.file_type();
    match () {
        () if kind.is_dir() => Kind::Directory,
        () if kind.is_fifo() => Kind::Pipe,
        () if kind.is_char_device() || kind.is_block_device() => Kind::Device,
        () if kind.is_socket() => Kind::Socket,
        () => Kind::Other,
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError::Io { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_can_change_or_read_is_refused_with_the_way_out() {
        let judged = |owner, mode, trust| {
            judge(Path::new("keys"), Facts { owner, mode }, trust, 1000)
                .map_err(|error| error.to_string())
        };
        for owner in [0, 1000] {
            assert_eq!(judged(owner, 0o600, Trust::Secret), Ok(()));
            assert_eq!(judged(owner, 0o644, Trust::Own), Ok(()));
        }
        assert_eq!(
            judged(1000, 0o644, Trust::Secret).unwrap_err(),
            "keys can be read by others (mode 644); chmod 600 keys"
        );
        for mode in [0o620, 0o602, 0o777] {
            let refused = judged(1000, mode, Trust::Own).unwrap_err();
            assert!(refused.contains("can be written by others"), "{refused}");
            assert!(refused.ends_with("; chmod go-w keys"), "{refused}");
            assert_eq!(judged(1000, mode, Trust::Public), Ok(()));
        }
        for trust in [Trust::Own, Trust::Secret] {
            assert_eq!(
                judged(7, 0o600, trust).unwrap_err(),
                "keys belongs to user 7, and this process runs as user 1000; chown 1000 keys"
            );
        }
    }
}
