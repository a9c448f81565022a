//! What a line of the audit log says.

use serde::{Deserialize, Serialize};

use crate::limits::DETAIL_CHARS_MAX;

/// The version of the format, in the first line of a chain.
pub const FORMAT: u32 = 1;

/// One line: its place in the chain, and what it says. What is hashed are the bytes that stand in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Its number in the chain, from 1.
    pub seq: u64,
    /// The SHA-256 of the line before; zeros before the first.
    pub prev: String,
    /// When, by the server's wall clock in milliseconds since 1970: a note, order is by number.
    pub at_ms: u64,
    #[serde(flatten)]
    pub content: Content,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ev", rename_all = "snake_case")]
pub enum Content {
    /// A chain begins. Always its first line.
    Begin(Begin),
    /// A file of a chain that began in an earlier one. Always its first line.
    File {
        /// The chain's id, as in its `begin`.
        chain: String,
        /// The file's own number.
        file: u64,
    },
    /// A server begins to write to a chain that is there already.
    Start {
        /// Whether the run before ended in order. If not, lines that it had not written are missing.
        clean: bool,
        version: String,
    },
    /// Something was changed, or may have been (`code` is `UNCERTAIN`).
    Change(Act),
    /// An operator's request was refused by a rule. Nothing was changed.
    Refused(Act),
    /// Somebody was denied: no good credential, or no right. With `count`, so many more of the same kind.
    Denied(Act),
    /// So many lines are not in the log.
    Gap { lost: u64, why: String },
    /// Half a line at the end of the file, left by a kill, was taken away.
    Repaired {
        bytes: u64,
        /// The SHA-256 of what was taken away.
        sha256: String,
    },
    /// All files before this one were removed, because the log may keep only so many bytes.
    Trimmed { file: u64 },
    /// A signed statement of everything before this line.
    Checkpoint {
        /// A compact JWS of [`crate::Checkpoint`].
        signed: String,
    },
    /// The server ended in order.
    End,
    /// Of a later version.
    #[serde(other)]
    Unknown,
}

/// The first line of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    pub format: u32,
    /// The chain's id: random.
    pub chain: String,
    /// The cluster's label.
    pub cluster: String,
    pub version: String,
    /// Why the chain that was there could not be continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// What somebody did, or was not allowed to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// The principal, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// Where the request came from: an address, or the user of a Unix socket.
    pub from: String,
    /// What was asked for: the name of a command, or the id of a route.
    pub verb: String,
    /// The right that it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The caller's request id, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The store's revision after a change, if the store told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// `OK`, or the code of the problem.
    pub code: String,
    /// What exactly, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How many more denials of this kind there were since `since_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
}

impl Act {
    /// The same with a detail of bounded length.
    #[must_use]
    pub fn with_detail(mut self, mut detail: String) -> Self {
        if let Some((end, _)) = detail.char_indices().nth(DETAIL_CHARS_MAX) {
            detail.truncate(end);
        }
        self.detail = Some(detail).filter(|detail| !detail.is_empty());
        self
    }
}

impl Content {
    /// The word that stands in the line.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Begin(_) => "begin",
            Self::File { .. } => "file",
            Self::Start { .. } => "start",
            Self::Change(_) => "change",
            Self::Refused(_) => "refused",
            Self::Denied(_) => "denied",
            Self::Gap { .. } => "gap",
            Self::Repaired { .. } => "repaired",
            Self::Trimmed { .. } => "trimmed",
            Self::Checkpoint { .. } => "checkpoint",
            Self::End => "end",
            Self::Unknown => "unknown",
        }
    }

    /// What somebody did, if the line is about that.
    #[must_use]
    pub const fn act(&self) -> Option<&Act> {
        match self {
            Self::Change(act) | Self::Refused(act) | Self::Denied(act) => Some(act),
            Self::Begin(_)
            | Self::File { .. }
            | Self::Start { .. }
            | Self::Gap { .. }
            | Self::Repaired { .. }
            | Self::Trimmed { .. }
            | Self::Checkpoint { .. }
            | Self::End
            | Self::Unknown => None,
        }
    }
}
