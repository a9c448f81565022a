//! The whole state in one file: what a journal goes on from.

use std::fs;
use std::io::Write;
use std::path::Path;

use regent_election::codec::CodecError;
use regent_election::state::State;
use regent_election::{Incarnation, Revision};

use super::files::{Directory, LocalError, LocalResult, Trying};
use super::frame::{FORMAT_VERSION, FileKind, HEADER_BYTES, Header, HeaderFault, u32_at, u64_at};

const BODY_HEAD_BYTES: usize = 12;

/// Writes the state of `revision`, as [`State::encode`] gave it, from which the journal of the same
/// number goes on.
pub(super) fn write(
    directory: &Directory,
    number: u64,
    incarnation: Incarnation,
    revision: Revision,
    body: &[u8],
) -> LocalResult<()> {
    let header = Header { kind: FileKind::Snapshot, number, incarnation, revision };
    directory.create(FileKind::Snapshot, number, |file| {
        file.write_all(&header.encode())?;
        file.write_all(&(body.len() as u64).to_le_bytes())?;
        file.write_all(&crc32fast::hash(body).to_le_bytes())?;
        file.write_all(body)
    })?;
    Ok(())
}

/// Reads a snapshot; anything that is not exactly what was written is refused.
pub(super) fn read(directory: &Directory, number: u64) -> LocalResult<(Header, State)> {
    let path = directory.path_of(FileKind::Snapshot, number);
    let bytes = fs::read(&path).trying("read", &path)?;
    let header = read_header(FileKind::Snapshot, number, &path, &bytes)?;
    let damaged = |offset: usize, why: String| LocalError::Damaged {
        path: path.clone(),
        offset: offset as u64,
        why,
    };
    let Some((head, body)) = bytes[HEADER_BYTES..].split_at_checked(BODY_HEAD_BYTES) else {
        return Err(damaged(bytes.len(), "it ends before its state".into()));
    };
    if u64_at(head, 0) != body.len() as u64 {
        let why = format!("it holds {} bytes of state instead of {}", body.len(), u64_at(head, 0));
        return Err(damaged(HEADER_BYTES, why));
    }
    if u32_at(head, 8) != crc32fast::hash(body) {
        return Err(damaged(HEADER_BYTES, "the state does not match its checksum".into()));
    }
    let state = State::decode(body)
        .map_err(|error| not_ours(&path, HEADER_BYTES + BODY_HEAD_BYTES, &error))?;
    if state.revision() != header.revision {
        let why = format!("the state is of revision {}, not {}", state.revision(), header.revision);
        return Err(damaged(HEADER_BYTES, why));
    }
    Ok((header, state))
}

/// Reads the header of the file that calls itself `number`.
pub(super) fn read_header(
    kind: FileKind,
    number: u64,
    path: &Path,
    bytes: &[u8],
) -> LocalResult<Header> {
    let damaged =
        |why: &str| LocalError::Damaged { path: path.to_owned(), offset: 0, why: why.into() };
    let header = Header::decode(kind, bytes).map_err(|fault| match fault {
        HeaderFault::Version(version) => LocalError::Newer {
            path: path.to_owned(),
            why: format!("format version {version}, known up to {FORMAT_VERSION}"),
        },
        HeaderFault::Damaged(why) => damaged(why),
    })?;
    if header.number != number {
        return Err(damaged("it was written under another number"));
    }
    Ok(header)
}

/// What bytes mean that match their checksum and yet cannot be read: an unknown tag was written by a
/// program that knows more, anything else cannot have been written by any.
pub(super) fn not_ours(path: &Path, offset: usize, error: &CodecError) -> LocalError {
    let (path, why) = (path.to_owned(), error.to_string());
    match error {
        CodecError::Unknown { .. } => LocalError::Newer { path, why },
        CodecError::Short(_) | CodecError::Long(_) | CodecError::Malformed { .. } => {
            LocalError::Damaged { path, offset: offset as u64, why }
        }
    }
}
