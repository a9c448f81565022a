//! The secret of a session: which flag, variable or file it is taken from.

use std::path::{Path, PathBuf};

use clap::Args;
use regent::remote::{HeldSession, SessionFile, SessionFileError};
use regent_election::{Group, SessionId, Term};

use crate::exit::Exit;
use crate::failure::Failure;

/// The environment variable that holds a session id.
pub(crate) const VARIABLE: &str = "REGENT_SESSION";

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
    pub(crate) fn require(&self) -> Result<HeldSession, Failure> {
        match self.holder()? {
            Holder::Nobody => Err(Failure::usage(format!(
                "which session? name it with --session-file, or with ${VARIABLE}"
            ))),
            Holder::Given(session) => Ok(HeldSession::of(session)),
            Holder::File(path) => match read(&path)? {
                Some(record) => Ok(HeldSession::in_file(path, record)),
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
    ) -> Result<(HeldSession, Term), Failure> {
        let known = self.require()?;
        let kept = known.term(group);
        let term = given.or(kept).ok_or_else(|| {
            Failure::usage(format!("which term of {group} is held? name it with --term"))
        })?;
        Ok((known, term))
    }
}

/// Reads a session file; none if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<SessionFile>, Failure> {
    Ok(SessionFile::read(path)?)
}

impl From<SessionFileError> for Failure {
    fn from(error: SessionFileError) -> Self {
        match error {
            SessionFileError::Io { path, source } => Self::file(&path, &source),
            SessionFileError::File(_) | SessionFileError::Malformed { .. } => {
                Self::new(Exit::Files, error.to_string())
            }
        }
    }
}
