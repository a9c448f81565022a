//! Why there is no replica: the exit code.

use regent_service::{ReplicaError, ReplicaFault};

use crate::exit::Exit;
use crate::failure::Failure;

impl From<ReplicaError> for Failure {
    fn from(error: ReplicaError) -> Self {
        let exit = match error.fault() {
            ReplicaFault::Setup => Exit::Config,
            ReplicaFault::Files => Exit::Files,
            ReplicaFault::Busy => Exit::Unavailable,
            ReplicaFault::Refused => Exit::Refused,
        };
        Self::new(exit, error.with_way_out())
    }
}
