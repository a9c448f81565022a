//! The three files of a replica, and how files of keys are read and written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::TlsError;
use crate::limits::FILE_BYTES_MAX;

/// Where a replica's certificate, its key and the CA's certificate are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFiles {
    /// The replica's certificate.
    pub certificate: PathBuf,
    /// Its key, which only its user may read.
    pub key: PathBuf,
    /// The certificates of the CAs that are believed.
    pub ca: PathBuf,
}

/// Whether anybody else may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secrecy {
    Public,
    Secret,
}

/// Reads a file of bounded length; a secret one only if nobody else can.
pub(crate) fn read(path: &Path, secrecy: Secrecy) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::File { what: "read", path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    if secrecy == Secrecy::Secret && mode & 0o077 != 0 {
        return Err(TlsError::KeyIsOpen { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(TlsError::TooLong { path: path.to_owned() });
    }
    Ok(bytes)
}

/// Writes a file that must not be there yet.
pub(crate) fn create(path: &Path, text: &str, secrecy: Secrecy) -> Result<(), TlsError> {
    write_new(path, text, secrecy).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => TlsError::Exists { path: path.to_owned() },
        _ => TlsError::File { what: "write", path: path.to_owned(), source },
    })
}

/// Writes a file in place of the one that is there; whoever reads it finds one of the two whole.
pub(crate) fn replace(path: &Path, text: &str, secrecy: Secrecy) -> Result<(), TlsError> {
    let beside = path.with_added_extension("new");
    // What an attempt before this one left is of no use.
    let _ = fs::remove_file(&beside);
    write_new(&beside, text, secrecy)
        .and_then(|()| fs::rename(&beside, path))
        .map_err(|source| TlsError::File { what: "write", path: path.to_owned(), source })
}

fn write_new(path: &Path, text: &str, secrecy: Secrecy) -> io::Result<()> {
    let mode = match secrecy {
        Secrecy::Public => 0o644,
        Secrecy::Secret => 0o600,
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
