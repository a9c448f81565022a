//! What a disk may answer, split by what can be done about it.

use std::io;
use std::path::{Path, PathBuf};

use regent_election::codec::CodecError;

use super::files::Files;

/// Why a data directory cannot be used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The operating system refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Another process has it.
    #[error(
        "{} is held by another process; stop that one first, or choose another directory",
        path.display()
    )]
    InUse { path: PathBuf },
    /// It holds no replica.
    #[error("{} holds no replica; found a cluster there, or join one", path.display())]
    Empty { path: PathBuf },
    /// It holds a replica already.
    #[error(
        "{} holds a replica already; open it, or choose an empty directory",
        path.display()
    )]
    Founded {
        /// What was found.
        path: PathBuf,
    },
    /// Something is there that no bootstrap may replace.
    #[error(
        "{} cannot be bootstrapped: it holds {}; nothing was changed; {}",
        path.display(), found.join(", "), way_out(marker.as_deref())
    )]
    Occupied {
        path: PathBuf,
        /// What is in the way.
        found: Vec<String>,
        /// The marker of a bootstrap that was cut short, if there is one.
        marker: Option<PathBuf>,
    },
    /// Founding was cut short, before anything was promised.
    #[error(
        "{} marks a bootstrap or a restore that was cut short: repeat that command to finish it, which is refused if anything else is there",
        path.display()
    )]
    HalfFounded {
        /// The mark that says so.
        path: PathBuf,
    },
    /// It belongs to somebody else.
    #[error(
        "{} belongs to {found}, not to {expected}; give each replica its own directory",
        path.display()
    )]
    Stranger {
        /// The file that says so.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Whose it should be.
        expected: String,
    },
    /// Written by a later version.
    #[error(
        "{} has format {found}, and this program knows {known}; use the newer program",
        path.display()
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
    /// The directory holds the data of a store that earlier builds had.
    #[error(
        "{} belongs to the store local:, which was removed; to keep its groups and terms, serve the directory with the last build that has local: and move them with its `regent migrate`; to start empty, choose another directory",
        path.display()
    )]
    Removed {
        /// A file of that store.
        path: PathBuf,
    },
    /// Something is not what was written. What this replica promised can no longer be proved, so it
    /// must not vote (S10).
    #[error(
        "{} is damaged at byte {offset}: {why}; nothing was changed, and this replica must not vote from it: remove it from the cluster, empty its directory and add it again as a learner (or, if it was the only one, restore a backup)",
        path.display()
    )]
    Damaged {
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        why: String,
    },
    /// The options make no sense.
    #[error("{0}")]
    Options(String),
    /// A first write failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What helps where nothing can be founded.
fn way_out(marker: Option<&Path>) -> String {
    match marker {
        Some(marker) => format!(
            "this very bootstrap or restore would not have written that: if another one was cut short here (a restore that is repeated is another one) and no replica ever ran, empty the directory and repeat it; if a replica ran here, remove {} and start it again",
            marker.display()
        ),
        None => "choose an empty directory, or move that away first".to_owned(),
    }
}

/// Why something was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// There is no room. Nothing was written, nothing was promised, everything before it stands: the
    /// same call may be made again when there is.
    #[error("no room for {}: {source}; free some space, the replica goes on by itself", path.display())]
    NoRoom {
        /// What did not fit.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The disk failed in the middle, and nobody knows what is on it. The process must end: what is
    /// found at the next start is the truth.
    #[error(
        "cannot {what} {}: {source}; what is on the disk is unknown, so this process must end and start again",
        path.display()
    )]
    Fatal {
        /// What was tried.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// Why a snapshot was not made or read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// It could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// It could not be read, or is not what was written. A restart uses the one before it.
    #[error("the newest snapshot cannot be used: {0}")]
    Unusable(#[source] Box<DataDirError>),
    /// The entries do not go on where the newest snapshot ends: a later one came from the leader
    /// meanwhile. There is nothing to be done.
    #[error("the entries begin at {first}, and the newest snapshot ends at {newest}")]
    Overtaken {
        /// The first entry's index.
        first: u64,
        /// The newest snapshot's index.
        newest: u64,
    },
    /// An entry or the snapshot before it makes no sense, although it was committed.
    #[error("entry {index} cannot be replayed: {source}")]
    Nonsense {
        /// The entry's index.
        index: u64,
        source: CodecError,
    },
}

/// Says what was tried on which file when it fails.
pub(super) trait Trying<T> {
    /// While opening: nothing is lost, the replica does not start.
    fn opening(self, what: &'static str, files: &dyn Files, name: &str) -> Result<T, DataDirError>;

    /// While writing: the disk's state is unknown.
    fn writing(self, what: &'static str, files: &dyn Files, name: &str) -> Result<T, WriteError>;
}

impl<T> Trying<T> for io::Result<T> {
    fn opening(self, what: &'static str, files: &dyn Files, name: &str) -> Result<T, DataDirError> {
        self.map_err(|source| DataDirError::Io { what, path: files.path(name), source })
    }

    fn writing(self, what: &'static str, files: &dyn Files, name: &str) -> Result<T, WriteError> {
        self.map_err(|source| WriteError::Fatal { what, path: files.path(name), source })
    }
}

impl DataDirError {
    /// What is wrong, without the way out: that is another one if there is something to fall back on.
    pub(super) fn fault(&self) -> String {
        match self {
            Self::Damaged { path, offset, why } => {
                format!("{} is damaged at byte {offset}: {why}", path.display())
            }
            other => other.to_string(),
        }
    }

    pub(super) fn damaged(path: &Path, offset: usize, why: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), offset: offset as u64, why: why.into() }
    }
}
