//! The files of replicas, servers and clients, and how files of keys are read and written.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use regent_files::{FileError, Trust};

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
    /// Lists of certificates that are not believed any more.
    pub crl: Option<PathBuf>,
}

/// Where the certificate of a server is, and by what it knows its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its key, which only its user may read.
    pub key: PathBuf,
    /// Which clients are believed; without it no client is asked for a certificate.
    pub clients: Option<ClientCa>,
}

/// By what a server knows its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCa {
    /// The certificates of the CAs that are believed.
    pub ca: PathBuf,
    /// Lists of certificates that are not believed any more.
    pub crl: Option<PathBuf>,
    /// Whether a client without a certificate is refused.
    pub is_required: bool,
}

/// By what a client knows servers, and what it shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The certificates of the CAs that are believed; none: those of the system.
    pub ca: Option<PathBuf>,
    /// The client's certificate and its key, which only its user may read.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Whether anybody else may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secrecy {
    Public,
    Secret,
}

/// Reads a regular file of bounded length that nobody else can change; a secret one only if nobody else can read it.
/// Whoever can change the CA's certificates decides who is believed.
pub(crate) fn read(path: &Path, secrecy: Secrecy) -> Result<Vec<u8>, TlsError> {
    let trust = match secrecy {
        Secrecy::Public => Trust::Own,
        Secrecy::Secret => Trust::Secret,
    };
    regent_files::read(path, FILE_BYTES_MAX, trust).map_err(|error| match error {
        FileError::Open { path, mode, .. } if secrecy == Secrecy::Secret => {
            TlsError::KeyIsOpen { path, mode }
        }
        error => TlsError::Unfit(error),
    })
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
