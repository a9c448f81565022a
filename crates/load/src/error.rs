//! Why a measurement gave no figures.

use std::io;
use std::path::{Path, PathBuf};

use regent::fresh::NoRandomness;
use regent::remote::{AddressError, RemoteError};
use regent_election::NameError;
use tokio::task::JoinError;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The service refused a request, or did not answer it.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// An address of the service is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A name that was made up for the measurement is refused.
    #[error(transparent)]
    Name(#[from] NameError),
    /// No secret could be made.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// A folder or file of the servers that were started.
    #[error("{}: {source}", .path.display())]
    Folder { path: PathBuf, source: io::Error },
    /// The system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        source: io::Error,
    },
    /// A task of the load generator itself ended early.
    #[error("a client of the benchmark failed: {0}")]
    Client(#[from] JoinError),
    /// Something that is needed is not there; the same may work later.
    #[error("{0}")]
    Unavailable(String),
    /// The service did what it must not do, or a group of the measurement is in use.
    #[error("{0}")]
    Wrong(String),
}

impl LoadError {
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }

    pub(crate) fn folder(path: &Path, source: io::Error) -> Self {
        Self::Folder { path: path.to_owned(), source }
    }
}
