//! Why there is no replica: the exit code, and the way out by flags.

use std::io;

use regent_replica::disk::error::DataDirError;
use regent_service::ReplicaError;

use crate::exit::Exit;
use crate::failure::Failure;

impl From<ReplicaError> for Failure {
    fn from(error: ReplicaError) -> Self {
        let (exit, way_out) = exit_and_way_out(&error);
        // An address in use is told by what it is, not by the system's word for it.
        let what = match &error {
            ReplicaError::PeerListen { address, source } if is_in_use(source) => {
                format!("{address} is in use")
            }
            other => other.to_string(),
        };
        Self::new(exit, format!("{what}{way_out}"))
    }
}

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

fn exit_and_way_out(error: &ReplicaError) -> (Exit, &'static str) {
    match error {
        ReplicaError::Directory { .. } => {
            (Exit::Config, "; make it writable, or choose another with --data-dir")
        }
        ReplicaError::NoDirectory { .. } => (Exit::Files, ""),
        ReplicaError::Exposed(_) => (Exit::Config, ""),
        ReplicaError::InUse { .. } => {
            (Exit::Unavailable, "; stop that one, or choose another with --data-dir")
        }
        ReplicaError::Foreign { .. } => {
            (Exit::Config, "; choose a directory of its own with --data-dir")
        }
        ReplicaError::NotPrepared { .. } => (
            Exit::Config,
            ": prepare it with `regent cluster init`; if its disk was lost, it must not vote again: remove it from the cluster and let it join under another number (`regent cluster init --join`)",
        ),
        ReplicaError::Disk(
            DataDirError::Founded { .. }
            | DataDirError::Empty { .. }
            | DataDirError::HalfFounded { .. }
            | DataDirError::Occupied { .. }
            | DataDirError::Removed { .. },
        ) => (Exit::Config, ""),
        ReplicaError::Disk(_)
        | ReplicaError::Write(_)
        | ReplicaError::Entry { .. }
        | ReplicaError::Start(_) => (Exit::Files, ""),
        ReplicaError::PeerListen { source, .. } if is_in_use(source) => {
            (Exit::Unavailable, "; stop what listens there, or choose another with --peer-listen")
        }
        ReplicaError::PeerListen { .. } => (Exit::Config, "; choose another with --peer-listen"),
        ReplicaError::PlaintextPeers { .. } => (
            Exit::Config,
            "; give this replica a certificate with --peer-cert, --peer-key and --peer-ca (regent tls), or accept the risk with --insecure",
        ),
        ReplicaError::NoTls { .. } => (Exit::Config, ""),
        #[cfg(feature = "tls")]
        ReplicaError::Tls(_) => (Exit::Config, ""),
        ReplicaError::NotServing { .. }
        | ReplicaError::Store(_)
        | ReplicaError::NoRandomness(_) => (Exit::Unavailable, ""),
        ReplicaError::Settings(_) => (Exit::Config, ""),
        ReplicaError::OtherCluster { .. } => (
            Exit::Refused,
            ": give all of them exactly as on the first machine; nothing was written",
        ),
        ReplicaError::RestoredApart { .. } => (
            Exit::Refused,
            ": begin again on an empty directory without --as-of, or let this replica join (`regent cluster init --join`)",
        ),
        ReplicaError::Rebirth(_) | ReplicaError::NeverJoined | ReplicaError::WitnessOnly => {
            (Exit::Refused, "")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_happened_and_which_flag_helps() {
        let told = |error: ReplicaError| {
            let failure = Failure::from(error);
            (failure.exit, failure.message.unwrap_or_default())
        };
        let address = "127.0.0.1:7401".parse().unwrap();
        let source = io::Error::from_raw_os_error(98);
        assert_eq!(
            told(ReplicaError::PeerListen { address, source }),
            (
                Exit::Unavailable,
                "127.0.0.1:7401 is in use; stop what listens there, or choose another with --peer-listen"
                    .to_owned()
            )
        );
        let source = io::Error::from_raw_os_error(13);
        assert_eq!(
            told(ReplicaError::Directory { what: "use", path: "/d".into(), source }),
            (
                Exit::Config,
                "cannot use /d: permission denied; make it writable, or choose another with --data-dir"
                    .to_owned()
            )
        );
    }
}
