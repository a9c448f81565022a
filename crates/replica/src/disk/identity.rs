//! Whose a file is: the 48 bytes that open every file of a replica.
//!
//! | byte | field |
//! |---|---|
//! | 0 | 8 bytes that name the kind of file |
//! | 8 | u32 version of that kind's format |
//! | 12 | u32 zero |
//! | 16 | u128 cluster |
//! | 32 | u64 replica |
//! | 40 | u64 incarnation: drawn by lot when the directory was founded |
//!
//! Numbers are little-endian. Files of two directories never mix unnoticed, be they of two clusters,
//! of two replicas, or of two lives of one replica.

use std::fmt;
use std::path::Path;

use super::bytes::{u32_at, u64_at};
use super::error::DataDirError;
use crate::member::ReplicaId;

/// Bytes that open every file.
pub(super) const PREFIX_BYTES: usize = 48;

/// Who a data directory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster, drawn by lot when it was founded or restored.
    pub cluster: u128,
    pub replica: ReplicaId,
    /// This life of its disk, drawn by lot.
    pub incarnation: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, replica, incarnation } = self;
        write!(f, "replica {replica} ({incarnation:016x}) of cluster {cluster:032x}")
    }
}

/// One kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) magic: [u8; 8],
    pub(super) version: u32,
}

impl Identity {
    /// Appends the prefix of a file of this kind.
    pub(super) fn put(&self, kind: Kind, out: &mut Vec<u8>) {
        out.extend(kind.magic);
        out.extend(kind.version.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.cluster.to_le_bytes());
        out.extend(self.replica.get().to_le_bytes());
        out.extend(self.incarnation.to_le_bytes());
    }

    /// Reads the prefix of a file of this kind whose checksum has been found right.
    pub(super) fn take(kind: Kind, bytes: &[u8], path: &Path) -> Result<Self, DataDirError> {
        let version = u32_at(bytes, 8);
        if version != kind.version {
            let (path, known) = (path.to_owned(), kind.version);
            return Err(DataDirError::Newer { path, found: version, known });
        }
        let replica = ReplicaId::new(u64_at(bytes, 32));
        let replica =
            replica.ok_or_else(|| DataDirError::damaged(path, 32, "replica 0 is nobody"))?;
        let cluster = u128::from(u64_at(bytes, 16)) | u128::from(u64_at(bytes, 24)) << 64;
        Ok(Self { cluster, replica, incarnation: u64_at(bytes, 40) })
    }

    /// Whether a file that should be of this replica is.
    pub(super) fn check(&self, found: Self, path: &Path) -> Result<(), DataDirError> {
        if found == *self {
            return Ok(());
        }
        let (found, expected) = (found.to_string(), self.to_string());
        Err(DataDirError::Stranger { path: path.to_owned(), found, expected })
    }
}
