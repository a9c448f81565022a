//! Authenticated callers.

use std::fmt;
use std::str::FromStr;

use crate::limits::NODE_BYTES_MAX;
use crate::name::{Account, NameError, Node};

/// An authenticated caller, written `node:NAME`, `user:NAME`, `replica:ID` or `local:NAME`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Principal {
    /// A participant: a process that stands for leadership.
    Node(Node),
    /// A person, or a program that does not stand.
    User(Account),
    /// Another replica of the cluster.
    Replica(u64),
    /// A process on the replica's own machine whose identity the kernel vouches for. No token gives it. Such a caller
    /// could read and replace the replica's files, so it is an administrator without any binding: this is how a
    /// cluster gets its first binding, and how its operator gets back in.
    Local(Account),
}

/// Why a text names no principal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrincipalError {
    /// No kind, or one that does not exist.
    #[error(
        "{0:?} is no principal: write node:NAME, user:NAME, replica:ID or local:NAME, like node:web-1"
    )]
    Kind(String),
    /// The name after the kind is none.
    #[error("{0}")]
    Name(#[from] NameError),
    /// A replica's id is a number.
    #[error("a replica is named by its number, like replica:3; {0:?} is none")]
    Replica(String),
}

/// What stands before the name of a replica: the longest there is.
const LONGEST_KIND: &str = "replica:";
const TEXT_BYTES_MAX: usize = LONGEST_KIND.len() + NODE_BYTES_MAX;

/// A principal as it is printed, without an allocation: every judgement compares it with patterns.
#[derive(Clone, Copy)]
pub(super) struct PrincipalText {
    bytes: [u8; TEXT_BYTES_MAX],
    length: usize,
}

impl PrincipalText {
    const fn empty() -> Self {
        Self { bytes: [0; TEXT_BYTES_MAX], length: 0 }
    }

    /// No name is longer than what there is room for: both kinds of names are checked when they are made.
    fn push(mut self, text: &str) -> Self {
        let end = self.length + text.len();
        self.bytes[self.length..end].copy_from_slice(text.as_bytes());
        self.length = end;
        self
    }

    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).expect("texts in a row are a text")
    }
}

impl Principal {
    /// What is printed.
    pub(super) fn text(&self) -> PrincipalText {
        let text = PrincipalText::empty();
        match self {
            Self::Node(node) => text.push("node:").push(node.as_str()),
            Self::User(account) => text.push("user:").push(account.as_str()),
            Self::Replica(id) => text.push(LONGEST_KIND).push(&id.to_string()),
            Self::Local(account) => text.push("local:").push(account.as_str()),
        }
    }

    /// The name without its kind. Two principals of different kinds may have the same name.
    #[must_use]
    pub fn own_name(&self) -> Option<&str> {
        match self {
            Self::Node(node) => Some(node.as_str()),
            Self::User(account) | Self::Local(account) => Some(account.as_str()),
            Self::Replica(_) => None,
        }
    }
}

impl FromStr for Principal {
    type Err = PrincipalError;

    fn from_str(text: &str) -> Result<Self, PrincipalError> {
        let excerpt = |text: &str| text.chars().take(150).collect::<String>();
        let (kind, name) =
            text.split_once(':').ok_or_else(|| PrincipalError::Kind(excerpt(text)))?;
        match kind {
            "node" => Ok(Self::Node(Node::new(name)?)),
            "user" => Ok(Self::User(Account::new(name)?)),
            "local" => Ok(Self::Local(Account::new(name)?)),
            "replica" => {
                let is_plain = !name.starts_with(['0', '+']);
                let id = name.parse().ok().filter(|id| *id > 0 && is_plain);
                id.map(Self::Replica).ok_or_else(|| PrincipalError::Replica(excerpt(name)))
            }
            _ => Err(PrincipalError::Kind(excerpt(text))),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_is_read_as_it_is_printed() {
        for text in ["node:web-1", "user:alice@example.org", "replica:3", "local:root"] {
            assert_eq!(text.parse::<Principal>().unwrap().to_string(), text);
        }
        // The name of a Kubernetes service account has colons of its own.
        let account: Principal = "node:system:serviceaccount:shop:web".parse().unwrap();
        assert_eq!(account.own_name(), Some("system:serviceaccount:shop:web"));
    }

    #[test]
    fn the_longest_principal_there_is_can_be_printed() {
        let name = "x".repeat(NODE_BYTES_MAX);
        for kind in ["node", "user", "local"] {
            let text = format!("{kind}:{name}");
            assert_eq!(text.parse::<Principal>().unwrap().to_string(), text);
            assert!(format!("{text}x").parse::<Principal>().is_err());
        }
        assert_eq!(Principal::Replica(u64::MAX).to_string(), format!("replica:{}", u64::MAX));
    }

    #[test]
    fn what_is_no_principal_is_refused_with_the_way_out() {
        for text in
            ["", "alice", "root:x", "node:", "node:a b", "replica:0", "replica:+1", "replica:01"]
        {
            let error = text.parse::<Principal>().unwrap_err().to_string();
            assert!(error.len() > 20, "{text:?}: {error}");
        }
        assert!("alice".parse::<Principal>().unwrap_err().to_string().contains("node:NAME"));
    }
}
