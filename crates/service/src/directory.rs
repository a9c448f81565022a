//! Data directories: which may hold a replica.

use std::fs;
use std::io;
use std::path::Path;

use regent_replica::disk::error::DataDirError;
use regent_replica::disk::{RealFiles, is_of_local};

use crate::error::ReplicaError;

/// The directory, made if it is not there. Others must not be able to change it.
pub(crate) fn files(directory: &Path) -> Result<RealFiles, ReplicaError> {
    regent_files::check_directory(directory)?;
    RealFiles::new(directory).map_err(|error| no_directory("use", directory, error))
}

fn no_directory(what: &'static str, path: &Path, source: io::Error) -> ReplicaError {
    ReplicaError::Directory { what, path: path.to_owned(), source }
}

/// Refuses a directory with files that no replica wrote: a replica founded beside another store's
/// files would begin all its terms anew.
pub(crate) fn refuse_strangers(directory: &Path) -> Result<(), ReplicaError> {
    let mut strangers = names(directory)?;
    strangers.retain(|name| !is_of_replica(name));
    if let Some(name) = strangers.iter().find(|name| is_of_local(name)) {
        return Err(DataDirError::Removed { path: directory.join(name) }.into());
    }
    match strangers.into_iter().next() {
        None => Ok(()),
        Some(name) => Err(ReplicaError::Foreign { path: directory.to_owned(), name }),
    }
}

/// Whether a directory holds a replica: another store must not begin beside it.
pub fn holds_replica(directory: &Path) -> Result<bool, ReplicaError> {
    Ok(names(directory)?.iter().any(|name| name != "lock" && is_of_replica(name)))
}

fn names(directory: &Path) -> Result<Vec<String>, ReplicaError> {
    let refuse = |error| no_directory("read", directory, error);
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(refuse)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(refuse)?;
        // A link, a device or a pipe is a file to whoever opens it.
        if !entry.file_type().map_err(refuse)?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn is_of_replica(name: &str) -> bool {
    let whole = ["lock", "acked", "founding", "peers"];
    let numbered = ["wal-", "spare-", "snapshot-"];
    let name = name.strip_suffix(".tmp").unwrap_or(name);
    whole.contains(&name) || numbered.iter().any(|prefix| name.starts_with(prefix))
}
