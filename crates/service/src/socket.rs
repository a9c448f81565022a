//! The Unix socket of a server: how root, and the server's own user, get in without any secret.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// The socket's place in a data directory: not among the files of the replica, which refuses strangers there.
pub const SOCKET_NAME: &str = "run/regent.sock";

/// Why a socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another server answers there.
    #[error("{}: another server listens there; stop it, or choose another path with --socket", .0.display())]
    InUse(PathBuf),
    /// Something else is there, which is not ours to remove.
    #[error("{}: there is a file that is no socket; remove it, or choose another path with --socket", .0.display())]
    NoSocket(PathBuf),
    #[error("{}: {source}", .path.display())]
    File { path: PathBuf, source: io::Error },
}

/// The file of a socket; removed with this value.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl SocketFile {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // One that stays is found to be dead by the next server.
        let _ = fs::remove_file(&self.0);
    }
}

/// Listens on a socket that only its owner may connect to. What a dead server left there is replaced.
///
/// # Errors
/// If a server lives there, or the file cannot be made.
pub fn listen(path: &Path) -> Result<(UnixListener, SocketFile), SocketError> {
    let failed = |source| SocketError::File { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(SocketError::NoSocket(path.to_owned()));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(SocketError::InUse(path.to_owned()));
        }
        Ok(_) => fs::remove_file(path).map_err(failed)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    let file = SocketFile(path.to_owned());
    // Who may connect in between is known by its user id all the same.
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
    Ok((listener, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dead_servers_socket_is_replaced_and_a_living_ones_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SOCKET_NAME);
        let (listener, file) = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(listen(&path).unwrap_err(), SocketError::InUse(_)));
        drop(listener);
        // The file is still there, as after a crash.
        let (_again, newer) = listen(&path).unwrap();
        std::mem::forget(file);
        drop(newer);
        assert!(!path.exists());
        fs::write(&path, "mine").unwrap();
        assert!(matches!(listen(&path).unwrap_err(), SocketError::NoSocket(_)));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }
}
