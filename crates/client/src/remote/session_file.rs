//! A session that outlives a process: its secret and its terms in a file.
//!
//! A session file holds the id and, for every group, the term that was won with it. So a script
//! that renews names the term it believes in without having to carry it, and a renewal never
//! silently follows a tenure that was lost and won again by somebody else under the same file.
//!
//! The file is written beside and renamed, mode 0600: a reader sees the old or the new one, whole.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use regent_election::{Group, SessionId, Term};
use regent_files::{FileError, Trust, read_text, replace_private};

/// Larger than any honest session file: 131,072 groups of long names.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// What a session file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFile {
    pub session: SessionId,
    /// The terms won with it.
    pub terms: BTreeMap<Group, Term>,
}

/// Why a session file was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum SessionFileError {
    /// The operating system refused.
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The file cannot be read, or must not be trusted.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file holds something else.
    #[error("{}: this is no session file; remove it, or name another one", .path.display())]
    Malformed { path: PathBuf },
}

impl SessionFile {
    /// A session that has won nothing yet.
    #[must_use]
    pub const fn of(session: SessionId) -> Self {
        Self { session, terms: BTreeMap::new() }
    }

    /// Reads a session file; none if there is none. A bare session id is one too.
    ///
    /// # Errors
    /// If the file cannot be read, is no session file, or other users can read or change it.
    pub fn read(path: &Path) -> Result<Option<Self>, SessionFileError> {
        let text = match read_text(path, FILE_BYTES_MAX, Trust::Secret) {
            Err(error) if error.is_missing() => return Ok(None),
            text => text?,
        };
        let malformed = || SessionFileError::Malformed { path: path.to_owned() };
        Self::parse(&text).map(Some).ok_or_else(malformed)
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// If the file cannot be written. What was there stays.
    pub fn write(&self, path: &Path) -> Result<(), SessionFileError> {
        replace_private(path, self.to_text().as_bytes())
            .map_err(|source| SessionFileError::Io { path: path.to_owned(), source })
    }

    fn to_text(&self) -> String {
        let terms: BTreeMap<&str, u64> =
            self.terms.iter().map(|(group, term)| (group.as_str(), term.get())).collect();
        let json = serde_json::json!({ "session_id": self.session.reveal(), "terms": terms });
        format!("{json}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        if let Ok(session) = text.trim().parse() {
            return Some(Self::of(session));
        }
        let json: serde_json::Value = serde_json::from_str(text).ok()?;
        let session = json.get("session_id")?.as_str()?.parse().ok()?;
        let terms = json
            .get("terms")?
            .as_object()?
            .iter()
            .map(|(group, term)| Some((Group::new(group).ok()?, Term::new(term.as_u64()?)?)));
        Some(Self { session, terms: terms.collect::<Option<_>>()? })
    }
}

/// A session that is named to do something with it, and the file that it was found in.
#[derive(Debug)]
pub struct HeldSession {
    pub session: SessionId,
    file: Option<(PathBuf, SessionFile)>,
}

impl HeldSession {
    /// One that is in no file.
    #[must_use]
    pub const fn of(session: SessionId) -> Self {
        Self { session, file: None }
    }

    /// The one of a file.
    #[must_use]
    pub const fn in_file(path: PathBuf, record: SessionFile) -> Self {
        Self { session: record.session, file: Some((path, record)) }
    }

    /// The term that it holds in a group, by its file.
    #[must_use]
    pub fn term(&self, group: &Group) -> Option<Term> {
        self.file.as_ref().and_then(|(_, record)| record.terms.get(group).copied())
    }

    /// Takes the term of a group out of the file: nobody may act on it any more.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn forget(&mut self, group: &Group) -> Result<(), SessionFileError> {
        let Some((path, record)) = &mut self.file else { return Ok(()) };
        if record.terms.remove(group).is_none() {
            return Ok(());
        }
        record.write(path)
    }

    /// Removes the file: an id that has ended is never opened again.
    ///
    /// # Errors
    /// If it is there and cannot be removed.
    pub fn remove_file(&self) -> Result<(), SessionFileError> {
        let Some((path, _)) = &self.file else { return Ok(()) };
        match fs::remove_file(path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(SessionFileError::Io { path: path.clone(), source })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Reads a text as a session file, for the fuzzer. What is read is written, and read again.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz(text: &str) {
    if let Some(file) = SessionFile::parse(text) {
        let again = SessionFile::parse(&file.to_text());
        assert!(again.is_some_and(|again| again.terms == file.terms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn session() -> SessionId {
        "000000000000000000000000000000ab".parse().unwrap()
    }

    #[test]
    fn a_session_file_is_written_for_its_owner_alone_and_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        assert_eq!(SessionFile::read(&path).unwrap(), None);
        let mut record = SessionFile::of(session());
        record.write(&path).unwrap();
        record.terms.insert("team/billing".parse().unwrap(), Term::new(7).unwrap());
        record.write(&path).unwrap();
        assert_eq!(SessionFile::read(&path).unwrap(), Some(record));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_bare_id_is_a_session_file_too_and_nonsense_is_none() {
        let id = "000000000000000000000000000000ab";
        assert_eq!(SessionFile::parse(&format!("{id}\n")), Some(SessionFile::of(session())));
        for text in ["", "x", "{}", "{\"session_id\":\"ab\",\"terms\":{}}", "[1]"] {
            assert_eq!(SessionFile::parse(text), None, "{text}");
        }
        let bad_term = format!("{{\"session_id\":\"{id}\",\"terms\":{{\"g\":-1}}}}");
        assert_eq!(SessionFile::parse(&bad_term), None);
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("missing/s");
        let refused = SessionFile::of(session()).write(&path).unwrap_err();
        assert!(matches!(refused, SessionFileError::Io { .. }));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
