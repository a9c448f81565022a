//! Why a replica was not founded, opened, restored or started.
//!
//! A message says what happened, with the numbers. It names no flag: [`ReplicaError::way_out`] adds the flag of the
//! command that helps, for those who have flags.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use regent_election::Refusal;
use regent_election::error_text::plain;
use regent_election::state::RebirthError;
use regent_election::store::StoreError;
use regent_files::FileError;
use regent_replica::disk::error::{DataDirError, WriteError};
use regent_replica::node::StartError;

/// Why there is no replica.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// The operating system refused the directory.
    #[error("cannot {what} {}: {}", .path.display(), plain(.source))]
    Directory {
        /// What was tried.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Others can change the directory or a file in it.
    #[error(transparent)]
    Exposed(#[from] FileError),
    /// The directory to recover from does not exist.
    #[error("{} is no directory", .path.display())]
    NoDirectory { path: PathBuf },
    /// Another process uses the directory.
    #[error("{} is in use by another process", .path.display())]
    InUse { path: PathBuf },
    /// The directory holds a file that no replica wrote.
    #[error("{} holds {name:?}, which is no file of a replica", .path.display())]
    Foreign {
        path: PathBuf,
        /// The first such file.
        name: String,
    },
    /// The directory is empty, and the replica has peers: only an operator may say that it never voted.
    #[error("{} is empty, and {said_by} says that this replica has peers", .path.display())]
    NotPrepared {
        path: PathBuf,
        /// Which setting names peers.
        said_by: String,
    },
    /// The directory cannot be opened, or nothing can be founded in it.
    #[error(transparent)]
    Disk(DataDirError),
    /// What was founded could not be made durable.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// An entry of the log cannot be read.
    #[error("entry {index} makes no sense: {why}")]
    Entry { index: u64, why: String },
    /// The replica cannot listen to its peers.
    #[error("{address}: {}", plain(.source))]
    PeerListen {
        /// Where it should.
        address: SocketAddr,
        source: io::Error,
    },
    /// Peers would be spoken to in plaintext across a network.
    #[error(
        "{address} can be reached from other machines, and peer links would be neither encrypted nor authenticated"
    )]
    PlaintextPeers {
        /// Where the replica listens, or where a member is reached.
        address: String,
    },
    /// Certificates are given to a build that cannot use them.
    #[error("{setting} is set, and this build has no TLS; build with --features tls")]
    NoTls {
        /// Which setting names one.
        setting: &'static str,
    },
    /// The certificates cannot be used.
    #[cfg(feature = "tls")]
    #[error(transparent)]
    Tls(#[from] regent_tls::TlsError),
    /// The replica cannot run on what its disk remembers.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A cluster of one elected no leader in time.
    #[error("the replica does not serve after {} s", .within.as_secs())]
    NotServing {
        /// How long that took.
        within: Duration,
    },
    /// The settings of the store are refused.
    #[error(transparent)]
    Settings(Refusal),
    /// The settings of the store could not be written.
    #[error(transparent)]
    Store(StoreError),
    /// The operating system gives no random numbers.
    #[error("this machine gives no random numbers: {0}")]
    NoRandomness(getrandom::Error),
    /// A cluster of this id was founded with other members or settings. Nothing was written.
    #[error(
        "cluster {cluster:032x} was founded with another list of members, other witnesses or other settings of the store (auto_create, groups_max, ttl_min, ttl_max)"
    )]
    OtherCluster {
        /// The id that was given.
        cluster: u128,
    },
    /// The backup cannot begin another life.
    #[error(transparent)]
    Rebirth(#[from] RebirthError),
    /// The first replica of the same restore may have granted terms by now.
    #[error(
        "the restore began {apart_s} s away from this clock, and all replicas must be restored within {within_s} s, before the first of them may grant a term"
    )]
    RestoredApart {
        /// The distance of the clocks, in seconds.
        apart_s: u64,
        /// What is allowed, in seconds.
        within_s: u64,
    },
    /// The replica to recover from never joined.
    #[error("this replica had not joined its cluster yet; it remembers nothing")]
    NeverJoined,
    /// The replica to recover from keeps no state.
    #[error("this replica is a witness: it kept no state to recover from")]
    WitnessOnly,
}

/// What is wrong in kind: whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaFault {
    /// Settings, permissions or certificates must change.
    Setup,
    /// What the disk holds cannot be used.
    Files,
    /// Something else is in the way at this moment.
    Busy,
    /// It would break a promise, or nothing is there to do it with. Nothing was changed.
    Refused,
}

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

impl ReplicaError {
    /// What is wrong in kind.
    #[must_use]
    pub fn fault(&self) -> ReplicaFault {
        self.fault_and_way_out().0
    }

    /// What happened, and the flags of `regent serve` and `regent cluster` that help.
    #[must_use]
    pub fn with_way_out(&self) -> String {
        let way_out = self.fault_and_way_out().1;
        match self {
            // An address in use is told by what it is, not by the system's word for it.
            Self::PeerListen { address, source } if is_in_use(source) => {
                format!("{address} is in use{way_out}")
            }
            other => format!("{other}{way_out}"),
        }
    }

    fn fault_and_way_out(&self) -> (ReplicaFault, &'static str) {
        match self {
            Self::Directory { .. } => {
                (ReplicaFault::Setup, "; make it writable, or choose another with --data-dir")
            }
            Self::NoDirectory { .. } => (ReplicaFault::Files, ""),
            Self::Exposed(_) => (ReplicaFault::Setup, ""),
            Self::InUse { .. } => {
                (ReplicaFault::Busy, "; stop that one, or choose another with --data-dir")
            }
            Self::Foreign { .. } => {
                (ReplicaFault::Setup, "; choose a directory of its own with --data-dir")
            }
            Self::NotPrepared { .. } => (
                ReplicaFault::Setup,
                ": prepare it with `regent cluster init`; if its disk was lost, it must not vote again: remove it from the cluster and let it join under another number (`regent cluster init --join`)",
            ),
            Self::Disk(
                DataDirError::Founded { .. }
                | DataDirError::Empty { .. }
                | DataDirError::HalfFounded { .. }
                | DataDirError::Occupied { .. }
                | DataDirError::Removed { .. },
            ) => (ReplicaFault::Setup, ""),
            Self::Disk(_) | Self::Write(_) | Self::Entry { .. } | Self::Start(_) => {
                (ReplicaFault::Files, "")
            }
            Self::PeerListen { source, .. } if is_in_use(source) => (
                ReplicaFault::Busy,
                "; stop what listens there, or choose another with --peer-listen",
            ),
            Self::PeerListen { .. } => (ReplicaFault::Setup, "; choose another with --peer-listen"),
            Self::PlaintextPeers { .. } => (
                ReplicaFault::Setup,
                "; give this replica a certificate with --peer-cert, --peer-key and --peer-ca (regent tls), or accept the risk with --insecure",
            ),
            Self::NoTls { .. } => (ReplicaFault::Setup, ""),
            #[cfg(feature = "tls")]
            Self::Tls(_) => (ReplicaFault::Setup, ""),
            Self::NotServing { .. } | Self::Store(_) | Self::NoRandomness(_) => {
                (ReplicaFault::Busy, "")
            }
            Self::Settings(_) => (ReplicaFault::Setup, ""),
            Self::OtherCluster { .. } => (
                ReplicaFault::Refused,
                ": give all of them exactly as on the first machine; nothing was written",
            ),
            Self::RestoredApart { .. } => (
                ReplicaFault::Refused,
                ": begin again on an empty directory without --as-of, or let this replica join (`regent cluster init --join`)",
            ),
            Self::Rebirth(_) | Self::NeverJoined | Self::WitnessOnly => (ReplicaFault::Refused, ""),
        }
    }
}

impl From<DataDirError> for ReplicaError {
    fn from(error: DataDirError) -> Self {
        match error {
            DataDirError::Io { what, path, source } => Self::Directory { what, path, source },
            DataDirError::InUse { path } => {
                Self::InUse { path: path.parent().unwrap_or(&path).to_owned() }
            }
            other => Self::Disk(other),
        }
    }
}

impl From<getrandom::Error> for ReplicaError {
    fn from(error: getrandom::Error) -> Self {
        Self::NoRandomness(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_happened_and_which_flag_helps() {
        let told = |error: ReplicaError| (error.fault(), error.with_way_out());
        let address = "127.0.0.1:7401".parse().unwrap();
        let source = io::Error::from_raw_os_error(98);
        assert_eq!(
            told(ReplicaError::PeerListen { address, source }),
            (
                ReplicaFault::Busy,
                "127.0.0.1:7401 is in use; stop what listens there, or choose another with --peer-listen"
                    .to_owned()
            )
        );
        let source = io::Error::from_raw_os_error(13);
        assert_eq!(
            told(ReplicaError::Directory { what: "use", path: "/d".into(), source }),
            (
                ReplicaFault::Setup,
                "cannot use /d: permission denied; make it writable, or choose another with --data-dir"
                    .to_owned()
            )
        );
    }
}
