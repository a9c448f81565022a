//! Why there are no certificates to use.

use std::io;
use std::path::PathBuf;

use crate::name::ReplicaName;

/// Why certificates are not used, or were not made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("cannot {what} {}: {source}", .path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        source: io::Error,
    },
    /// A file cannot be read, is none, or can be changed by others.
    #[error(transparent)]
    Unfit(#[from] regent_files::FileError),
    /// A key can be read by other users.
    #[error("{} can be read by others (mode {mode:03o}); chmod 600 it, and issue another certificate if somebody has read it", .path.display())]
    KeyIsOpen { path: PathBuf, mode: u32 },
    /// A file holds something else.
    #[error("{} holds {why}", .path.display())]
    Malformed {
        path: PathBuf,
        /// What it holds, or what it lacks.
        why: String,
    },
    /// The certificate names another replica.
    #[error("{} is the certificate of {found}, and this is {expected}", .path.display())]
    OtherName {
        path: PathBuf,
        /// Whom it names.
        found: ReplicaName,
        /// Who we are.
        expected: ReplicaName,
    },
    /// The certificate would be refused by everybody.
    #[error("{} would be refused by {by}: {why}", .path.display())]
    Refused {
        path: PathBuf,
        /// Whom it is for.
        by: &'static str,
        why: String,
    },
    /// A certificate and a key do not go together.
    #[error("{} does not fit the key in {}: {why}", .certificate.display(), .key.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        why: String,
    },
    /// What is to be made is there already.
    #[error("{} is there already; nothing was written", .path.display())]
    Exists { path: PathBuf },
    /// A certificate must end before its CA does.
    #[error(
        "the CA is good for {left_days} more days, so no certificate of it can be good for {days}; ask for fewer days, or make another CA"
    )]
    OutlivesCa {
        /// What was asked for.
        days: u32,
        /// What is left of the CA.
        left_days: u64,
    },
    /// Certificates of this many days are not made.
    #[error("{days} days are refused; from 1 to {}", crate::limits::DAYS_MAX)]
    Days {
        /// What was asked for.
        days: u32,
    },
    /// What is to be renewed or revoked was never issued here.
    #[error("{} is not there: nothing was issued under this name in this directory", .path.display())]
    Unknown { path: PathBuf },
    /// A host that no certificate can name.
    #[error("{name:?} is no host: write a DNS name in lower case, or an address")]
    Host { name: String },
    /// The cryptography refuses.
    #[error("the certificate cannot be made: {0}")]
    Cryptography(String),
}
