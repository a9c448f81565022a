//! Patterns of bindings: a text in which `*` stands for any run of characters.

use std::fmt;
use std::str::FromStr;

use super::AccessError;
use crate::limits::PATTERN_BYTES_MAX;
use crate::policy::glob_matches;

/// A pattern for principals, groups or nodes, like `node:web-*` or `orders/*`. It means whole names, and the star
/// also stands for slashes, as in the allow-list of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pattern(Box<str>);

impl Pattern {
    /// Checks and keeps a pattern.
    pub fn new(text: &str) -> Result<Self, AccessError> {
        let fits = !text.is_empty()
            && text.len() <= PATTERN_BYTES_MAX
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:@/*".contains(&byte));
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(AccessError::Pattern(text.chars().take(150).collect()))
        }
    }

    /// The pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the whole text is one of those meant.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        glob_matches(&self.0, text)
    }

    /// Whether every name is meant: only stars.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'*')
    }
}

impl FromStr for Pattern {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        Self::new(text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
