//! A whole cluster on this machine, to try things out: what `regent dev` starts.
//!
//! Every replica is a process of its own, so that one can be killed and the others watched as they
//! go on. The road not taken is all replicas in one process: quicker to start, but then nothing can
//! be killed but everything.
//!
//! - `site`: directories, addresses, and a settings file for each replica.
//! - `processes`: the replicas as processes.

mod processes;
mod site;

use std::io;
use std::path::{Path, PathBuf};

pub use processes::{AGAIN_AFTER, EndedReplica, Processes};
pub use site::{DevCluster, DevReplica};

use regent_election::error_text::plain;

use crate::error::ReplicaError;
use crate::settings::ConfigError;

/// Why there is no such cluster.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// A replica could not be founded.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// The settings file of a replica is wrong.
    #[error(transparent)]
    Settings(#[from] ConfigError),
    /// The settings file of a replica names no addresses.
    #[error("{} does not say listen and peer_listen", .path.display())]
    NoAddresses { path: PathBuf },
    /// A file or directory could not be written.
    #[error("{}: {}", .path.display(), plain(.source))]
    File { path: PathBuf, source: io::Error },
    /// The directory holds another cluster than the one that was asked for.
    #[error("{} holds a cluster of {replicas} from port {port} on", .path.display())]
    AnotherCluster {
        path: PathBuf,
        /// How many replicas it has.
        replicas: usize,
        /// Its first port.
        port: u16,
    },
    /// The directory holds something else.
    #[error("{} holds something that `regent dev` did not make", .path.display())]
    Taken { path: PathBuf },
    /// Ports that were asked for are in use.
    #[error("not all of the ports {first} to {last} are free")]
    PortsTaken {
        /// The first of them.
        first: u16,
        /// The last of them.
        last: u32,
    },
    /// No ports are free.
    #[error("no free ports were found between 10000 and 29999")]
    NoPorts,
    /// The system refuses a process.
    #[error("a replica cannot be started: {}", plain(.source))]
    Spawn { source: io::Error },
    /// What was temporary is left behind.
    #[error("{} could not be removed: {source}", .path.display())]
    NotRemoved { path: PathBuf, source: io::Error },
}

impl DevError {
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }
}
