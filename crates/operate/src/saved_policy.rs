//! Groups that an earlier version stopped for recovery: by a policy under which no node may lead.
//!
//! That version kept the policy that held before in a file. Such a group is stopped by its door as well, and
//! gets its policy back before the door opens.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use regent_api::PolicyBody;
use regent_election::Group;
use serde::Deserialize;

/// The only node that such a policy allows: no node has this name.
pub(crate) const NOBODY: &str = "nobody/until-the-split-brain-is-healed";

/// Why the policy that held before is not known.
#[derive(Debug, thiserror::Error)]
pub enum SavedPolicyError {
    /// The file cannot be read or removed.
    #[error("{}: {error}", path.display())]
    Io {
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is not such a file, or not of this group.
    #[error("{}: {what}", path.display())]
    Wrong {
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// There is none.
    #[error(
        "{group} is stopped already, but {} is not here; give it with --save, or set the policy by hand (regent group set)",
        path.display()
    )]
    Missing {
        group: Group,
        /// Where it was looked for.
        path: PathBuf,
    },
}

/// The policy that held before.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedPolicy {
    group: String,
    /// The group's own policy, or none if it had none.
    pub(crate) policy: Option<PolicyBody>,
}

/// Whether a policy is one of those under which no node may lead.
pub(crate) fn is_stopping(policy: &PolicyBody) -> bool {
    policy.allow.iter().any(|pattern| pattern.as_str() == NOBODY)
}

impl SavedPolicy {
    /// Reads what was kept for a group; none if there is no file.
    pub(crate) fn read(path: &Path, group: &Group) -> Result<Option<Self>, SavedPolicyError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(SavedPolicyError::Io { path: path.to_owned(), error }),
        };
        let wrong = |what| SavedPolicyError::Wrong { path: path.to_owned(), what };
        let saved: Self = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if saved.group != group.as_str() {
            return Err(wrong(format!("it is about {}, not {group}", saved.group)));
        }
        Ok(Some(saved))
    }

    /// Removes the file: later it would bring an old policy back. One that is not about this group is left
    /// alone: the names of two groups may lead to the same file.
    pub(crate) fn remove(path: &Path, group: &Group) -> Result<(), SavedPolicyError> {
        if !matches!(Self::read(path, group), Ok(Some(_))) {
            return Ok(());
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(SavedPolicyError::Io { path: path.to_owned(), error })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
