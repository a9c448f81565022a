//! The secret of a session: where it is taken from and how it is kept.
//!
//! A session file holds the id and, for every group, the term that was won with it. So a script
//! that renews names the term it believes in without having to carry it, and a renewal never
//! silently follows a tenure that was lost and won again by somebody else under the same file.
//!
//! The file is written beside and renamed, mode 0600: a reader sees the old or the new one, whole.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use regent_election::{Group, SessionId, Term};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::remark;

/// The environment variable that holds a session id.
pub(crate) const VARIABLE: &str = "REGENT_SESSION";
/// Larger than any honest session file: 131,072 groups of long names.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// Flags that name a session.
#[derive(Clone, Debug, Args)]
pub(crate) struct SessionArgs {
    /// Keep the session's secret and terms in this file (mode 0600)
    #[arg(long, value_name = "FILE", conflicts_with = "session")]
    session_file: Option<PathBuf>,
    /// The session's secret itself; visible to other users of this machine, so prefer
    /// --session-file or $REGENT_SESSION
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
}

/// Where the secret is.
#[derive(Clone, Debug)]
pub(crate) enum Holder {
    /// Nobody named one.
    Nobody,
    /// In a flag or in the environment.
    Given(SessionId),
    /// In a file, which may not exist yet.
    File(PathBuf),
}

/// What a session file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The secret.
    pub(crate) session: SessionId,
    /// The terms won with it.
    pub(crate) terms: BTreeMap<Group, Term>,
}

impl SessionArgs {
    /// Where the secret is: a flag first, then `$REGENT_SESSION`.
    pub(crate) fn holder(&self) -> Result<Holder, Failure> {
        match (&self.session_file, self.session) {
            (Some(path), _) => Ok(Holder::File(path.clone())),
            (None, Some(session)) => Ok(Holder::Given(session)),
            (None, None) => match std::env::var(VARIABLE) {
                Ok(text) if !text.is_empty() => text
                    .parse()
                    .map(Holder::Given)
                    .map_err(|error| Failure::usage(format!("${VARIABLE}: {error}"))),
                Ok(_) | Err(std::env::VarError::NotPresent) => Ok(Holder::Nobody),
                Err(std::env::VarError::NotUnicode(_)) => {
                    Err(Failure::usage(format!("${VARIABLE} is not UTF-8")))
                }
            },
        }
    }

    /// The session, which must be known.
    pub(crate) fn require(&self) -> Result<Known, Failure> {
        match self.holder()? {
            Holder::Nobody => Err(Failure::usage(format!(
                "which session? name it with --session-file, or with ${VARIABLE}"
            ))),
            Holder::Given(session) => Ok(Known { session, file: None }),
            Holder::File(path) => match Record::read(&path)? {
                Some(record) => Ok(Known { session: record.session, file: Some((path, record)) }),
                None => Err(Failure::new(
                    Exit::Files,
                    format!(
                        "{}: there is no such file; `regent campaign --session-file` makes one",
                        path.display()
                    ),
                )),
            },
        }
    }

    /// The session and the term it holds in `group`: the one given, or the one in the file.
    pub(crate) fn require_term(
        &self,
        group: &Group,
        given: Option<Term>,
    ) -> Result<(Known, Term), Failure> {
        let known = self.require()?;
        let kept = known.file.as_ref().and_then(|(_, record)| record.terms.get(group).copied());
        let term = given.or(kept).ok_or_else(|| {
            Failure::usage(format!("which term of {group} is held? name it with --term"))
        })?;
        Ok((known, term))
    }
}

/// A session that somebody named.
#[derive(Debug)]
pub(crate) struct Known {
    /// Its secret.
    pub(crate) session: SessionId,
    file: Option<(PathBuf, Record)>,
}

impl Known {
    /// Takes the term of a group out of the session file: nobody may act on it any more.
    pub(crate) fn forget(&mut self, group: &Group) -> Result<(), Failure> {
        let Some((path, record)) = &mut self.file else { return Ok(()) };
        if record.terms.remove(group).is_none() {
            return Ok(());
        }
        record.write(path)
    }

    /// Removes the session file: an id that has ended is never opened again.
    pub(crate) fn remove_file(&self) -> Result<(), Failure> {
        let Some((path, _)) = &self.file else { return Ok(()) };
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Failure::file(path, &error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl Record {
    /// A session that has won nothing yet.
    pub(crate) fn of(session: SessionId) -> Self {
        Self { session, terms: BTreeMap::new() }
    }

    /// Reads a session file; none if there is none. A bare session id is one too.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, Failure> {
        let fail = |error: io::Error| Failure::file(path, &error);
        let mut file = match fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fail(error)),
        };
        let metadata = file.metadata().map_err(fail)?;
        if metadata.permissions().mode() & 0o077 != 0 {
            let shown = path.display();
            remark(&format!("{shown} holds a secret that others can read; chmod 600 {shown}"));
        }
        let mut text = String::new();
        let mut bounded = Read::by_ref(&mut file).take(FILE_BYTES_MAX);
        bounded.read_to_string(&mut text).map_err(fail)?;
        Self::parse(&text).map(Some).ok_or_else(|| {
            let why = "this is no session file; remove it, or name another one";
            Failure::new(Exit::Files, format!("{}: {why}", path.display()))
        })
    }

    /// Writes the file, whole or not at all.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let fail = |error: io::Error| Failure::file(path, &error);
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let beside = path.with_file_name(name);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)
            .and_then(|mut file| {
                file.write_all(self.to_text().as_bytes()).and_then(|()| file.sync_all())
            })
            .and_then(|()| fs::rename(&beside, path));
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written.map_err(fail)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionId {
        "000000000000000000000000000000ab".parse().unwrap()
    }

    #[test]
    fn a_session_file_is_written_for_its_owner_alone_and_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        assert_eq!(Record::read(&path).unwrap(), None);
        let mut record = Record::of(session());
        record.write(&path).unwrap();
        record.terms.insert("team/billing".parse().unwrap(), Term::new(7).unwrap());
        record.write(&path).unwrap();
        assert_eq!(Record::read(&path).unwrap(), Some(record));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_bare_id_is_a_session_file_too_and_nonsense_is_none() {
        let id = "000000000000000000000000000000ab";
        assert_eq!(Record::parse(&format!("{id}\n")), Some(Record::of(session())));
        for text in ["", "x", "{}", "{\"session_id\":\"ab\",\"terms\":{}}", "[1]"] {
            assert_eq!(Record::parse(text), None, "{text}");
        }
        let bad_term = format!("{{\"session_id\":\"{id}\",\"terms\":{{\"g\":-1}}}}");
        assert_eq!(Record::parse(&bad_term), None);
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("missing/s");
        let failure = Record::of(session()).write(&path).unwrap_err();
        assert_eq!(failure.exit, Exit::Files);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
