//! A log read back: line by line for people, and as a whole for the verifier. Nothing is written, and no server is
//! asked.

use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use regent_files::{FileError, Trust};
use regent_signing::{Jwks, PublicKeys};

use crate::chain::{Head, Place, Report, Verifier};
use crate::files::{DIRECTORY, Read1, next_line, of_directory};
use crate::limits::KEYS_BYTES_MAX;
use crate::line::Line;

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("there is no audit log in {}; name the data directory of a server, or its audit directory", path.display())]
    Nothing { path: PathBuf },
    #[error(transparent)]
    Keys(#[from] FileError),
    #[error("{} holds no public keys; make it with `regent fence keys publish`, or from /.well-known/regent-keys", path.display())]
    NoKeys { path: PathBuf },
}

/// The public keys in a file, as `regent fence keys publish` writes it.
pub fn keys(path: &Path) -> Result<PublicKeys, ReadError> {
    let bytes = regent_files::read(path, KEYS_BYTES_MAX, Trust::Public)?;
    let nothing = || ReadError::NoKeys { path: path.to_owned() };
    let published: Jwks = serde_json::from_slice(&bytes).map_err(|_| nothing())?;
    let keys = PublicKeys::from(&published);
    if keys.is_empty() { Err(nothing()) } else { Ok(keys) }
}

/// What a file holds: a line, or half a line at its end, and whether that is the end of the log.
enum Piece<'a> {
    Line(&'a [u8]),
    Torn { bytes: u64, is_last: bool },
}

/// Every line of a log, oldest first: of the audit directory itself, or of the data directory above it.
fn each<E: From<ReadError>>(
    directory: &Path,
    mut on: impl FnMut(Place, Piece<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let below = directory.join(DIRECTORY);
    let directory = if below.is_dir() { below } else { directory.to_owned() };
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ReadError::Io { path, source }
    };
    let files = of_directory(&directory).map_err(failed(&directory))?;
    if files.is_empty() {
        return Err(ReadError::Nothing { path: directory }.into());
    }
    for (index, (file, path)) in files.iter().enumerate() {
        let opened = regent_files::open(path, u64::MAX, Trust::Public).map_err(ReadError::from)?;
        let mut reader = BufReader::new(opened.into_file());
        let mut line = 0;
        loop {
            let read = next_line(&mut reader).map_err(failed(path))?;
            line += 1;
            let place = Place { file: *file, line };
            match read {
                Read1::Line(bytes) => on(place, Piece::Line(&bytes))?,
                Read1::Torn(bytes) => {
                    let is_last = index + 1 == files.len();
                    on(place, Piece::Torn { bytes, is_last })?;
                    break;
                }
                Read1::End => break,
            }
        }
    }
    Ok(())
}

/// Every line that can be read, with its text; how many others there are.
pub fn lines<E: From<ReadError>>(
    directory: &Path,
    mut on: impl FnMut(&Line, &str) -> Result<(), E>,
) -> Result<u64, E> {
    let mut unread = 0;
    each(directory, |_, piece| {
        let Piece::Line(bytes) = piece else {
            unread += 1;
            return Ok(());
        };
        match (serde_json::from_slice::<Line>(bytes), std::str::from_utf8(bytes)) {
            (Ok(line), Ok(text)) => on(&line, text),
            (Ok(_) | Err(_), _) => {
                unread += 1;
                Ok(())
            }
        }
    })?;
    Ok(unread)
}

/// Judges a whole log.
pub fn verify(
    directory: &Path,
    keys: Option<&PublicKeys>,
    kept: Option<Head>,
) -> Result<Report, ReadError> {
    let mut verifier = Verifier::new(keys, kept);
    each(directory, |place, piece| {
        match piece {
            Piece::Line(bytes) => verifier.line(place, bytes),
            Piece::Torn { bytes, is_last } => verifier.torn(place, bytes, is_last),
        }
        Ok::<_, ReadError>(())
    })?;
    Ok(verifier.finish())
}
