//! What an operator allows in a group.
//!
//! A [`Policy`] is always valid: [`Policy::check`] is the only way from a wish to one, and the rules
//! never look at an unchecked one.

use std::fmt;
use std::str::FromStr;

use crate::limits::{
    ALLOW_MAX, GROUPS_MAX_DEFAULT, LOCK_DELAY_MS_MAX, MINIMUM_TENURE_MS_DEFAULT,
    MINIMUM_TENURE_MS_HIGH, MINIMUM_TENURE_MS_LOW, NODE_BYTES_MAX, PRIORITIES_MAX,
    RETRY_MS_CEILING, RETRY_MS_MIN_DEFAULT, STANDBYS_MAX, STANDBYS_MAX_DEFAULT, TTL_MS_CEILING,
    TTL_MS_FLOOR, TTL_MS_MAX_DEFAULT, TTL_MS_MIN_DEFAULT,
};
use crate::name::Node;

/// The order in line: higher first, then first come. It never deposes a leader.
pub type Priority = i16;

/// A node name in which `*` stands for any run of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePattern(Box<str>);

impl NodePattern {
    /// Checks and keeps a pattern.
    pub fn new(text: &str) -> Result<Self, PolicyError> {
        let fits = !text.is_empty()
            && text.len() <= NODE_BYTES_MAX
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:@/*".contains(&byte));
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(PolicyError::Pattern(text.chars().take(150).collect()))
        }
    }

    /// The pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `node` is one of those meant.
    #[must_use]
    pub fn matches(&self, node: &Node) -> bool {
        glob_matches(&self.0, node.as_str())
    }
}

/// Whether a pattern in which `*` stands for any run of characters means the whole text. Linear in the text for
/// each star, never exponential.
pub(crate) fn glob_matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at_pattern, mut at_text) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while at_text < text.len() {
        if pattern.get(at_pattern) == Some(&b'*') {
            back = Some((at_pattern + 1, at_text));
            at_pattern += 1;
        } else if pattern.get(at_pattern) == Some(&text[at_text]) {
            at_pattern += 1;
            at_text += 1;
        } else if let Some((after_star, taken)) = back {
            back = Some((after_star, taken + 1));
            at_pattern = after_star;
            at_text = taken + 1;
        } else {
            return false;
        }
    }
    pattern[at_pattern..].iter().all(|byte| *byte == b'*')
}

impl FromStr for NodePattern {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        Self::new(text)
    }
}

impl fmt::Display for NodePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What an operator allows in one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Shortest ttl a candidate's session may have.
    pub ttl_ms_min: u64,
    /// Longest ttl a candidate's session may have.
    pub ttl_ms_max: u64,
    /// Shortest pause a losing candidate is told.
    pub retry_ms_min: u64,
    /// Longest pause a losing candidate is told; none means half its own ttl.
    pub retry_ms_max: Option<u64>,
    /// How long an office stays empty after a leader was lost (not after it resigned).
    pub lock_delay_ms: u64,
    /// How long a leader is left alone before a better candidate may be offered its office; 0 is off.
    pub minimum_tenure_ms: u64,
    /// Whether a better candidate is offered the office at all, once the minimum tenure is served.
    pub prefer_priority: bool,
    /// Who may campaign; empty means everybody.
    pub allow: Vec<NodePattern>,
    /// Priorities that override what candidates claim; the first match counts.
    pub priorities: Vec<(NodePattern, Priority)>,
    /// Most standbys in line.
    pub standbys_max: u32,
    /// Whether a forced step-down, another policy, the deletion of the group, its stop for recovery and its move
    /// away each need two principals (semantics 38).
    pub four_eyes: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            ttl_ms_min: TTL_MS_MIN_DEFAULT,
            ttl_ms_max: TTL_MS_MAX_DEFAULT,
            retry_ms_min: RETRY_MS_MIN_DEFAULT,
            retry_ms_max: None,
            lock_delay_ms: 0,
            minimum_tenure_ms: MINIMUM_TENURE_MS_DEFAULT,
            prefer_priority: false,
            allow: Vec::new(),
            priorities: Vec::new(),
            standbys_max: STANDBYS_MAX_DEFAULT,
            four_eyes: false,
        }
    }
}

/// Why a wish is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Bounds that allow nothing, or more than the store ever allows.
    #[error(
        "ttl bounds {min} ms to {max} ms are refused: they must rise and lie within {floor} ms to {ceiling} ms",
        floor = TTL_MS_FLOOR
    )]
    Ttl {
        /// The lower bound asked for.
        min: u64,
        /// The upper bound asked for.
        max: u64,
        /// The largest the store allows.
        ceiling: u64,
    },
    /// Back-off bounds that do not rise.
    #[error(
        "retry bounds {min} ms to {max} ms are refused: they must rise, start at 1 ms or more and end at {RETRY_MS_CEILING} ms or less"
    )]
    Retry {
        /// The lower bound asked for.
        min: u64,
        /// The upper bound asked for.
        max: u64,
    },
    /// Too long a delay.
    #[error("lock delay {0} ms is refused: at most {LOCK_DELAY_MS_MAX} ms")]
    LockDelay(u64),
    /// Neither off nor within bounds.
    #[error(
        "minimum tenure {0} ms is refused: 0 turns it off, otherwise {MINIMUM_TENURE_MS_LOW} ms to {MINIMUM_TENURE_MS_HIGH} ms"
    )]
    MinimumTenure(u64),
    /// Too many entries.
    #[error("{what} has {count} entries; at most {max}")]
    TooMany { what: &'static str, count: usize, max: usize },
    /// No standbys, or too many.
    #[error("standbys_max {0} is refused: 0 to {STANDBYS_MAX}")]
    Standbys(u32),
    /// A pattern that cannot match a node name.
    #[error(
        "{0:?} is no node pattern: letters, digits and - _ . : @ / with * for any run of them, at most {NODE_BYTES_MAX} bytes"
    )]
    Pattern(String),
}

impl Policy {
    /// This policy, if a store whose longest ttl is `ttl_ms_ceiling` can keep it.
    pub fn check(self, ttl_ms_ceiling: u64) -> Result<Self, PolicyError> {
        let ceiling = ttl_ms_ceiling.min(TTL_MS_CEILING);
        let ttls_fit = TTL_MS_FLOOR <= self.ttl_ms_min
            && self.ttl_ms_min <= self.ttl_ms_max
            && self.ttl_ms_max <= ceiling;
        if !ttls_fit {
            return Err(PolicyError::Ttl { min: self.ttl_ms_min, max: self.ttl_ms_max, ceiling });
        }
        let retry_max = self.retry_ms_max.unwrap_or(RETRY_MS_CEILING);
        if self.retry_ms_min == 0 || self.retry_ms_min > retry_max || retry_max > RETRY_MS_CEILING {
            return Err(PolicyError::Retry { min: self.retry_ms_min, max: retry_max });
        }
        if self.lock_delay_ms > LOCK_DELAY_MS_MAX {
            return Err(PolicyError::LockDelay(self.lock_delay_ms));
        }
        let tenure_fits = self.minimum_tenure_ms == 0
            || (MINIMUM_TENURE_MS_LOW..=MINIMUM_TENURE_MS_HIGH).contains(&self.minimum_tenure_ms);
        if !tenure_fits {
            return Err(PolicyError::MinimumTenure(self.minimum_tenure_ms));
        }
        for (what, count, max) in [
            ("allow", self.allow.len(), ALLOW_MAX),
            ("priorities", self.priorities.len(), PRIORITIES_MAX),
        ] {
            if count > max {
                return Err(PolicyError::TooMany { what, count, max });
            }
        }
        if self.standbys_max > STANDBYS_MAX {
            return Err(PolicyError::Standbys(self.standbys_max));
        }
        Ok(self)
    }

    /// Whether `node` may campaign.
    #[must_use]
    pub fn allows(&self, node: &Node) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|pattern| pattern.matches(node))
    }

    /// Whether a session of this ttl may campaign.
    #[must_use]
    pub const fn fits(&self, ttl_ms: u64) -> bool {
        self.ttl_ms_min <= ttl_ms && ttl_ms <= self.ttl_ms_max
    }

    /// The priority that counts for `node` when it claims `claimed`.
    #[must_use]
    pub fn priority(&self, node: &Node, claimed: Priority) -> Priority {
        self.priorities
            .iter()
            .find(|(pattern, _)| pattern.matches(node))
            .map_or(claimed, |(_, priority)| *priority)
    }

    /// The longest pause a losing candidate with this ttl is told.
    #[must_use]
    pub fn retry_ms_max_for(&self, ttl_ms: u64) -> u64 {
        self.retry_ms_max.unwrap_or((ttl_ms / 2).clamp(self.retry_ms_min, RETRY_MS_CEILING))
    }
}

/// What holds for a whole store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Longest ttl any session may have; no policy may exceed it.
    pub ttl_ms_ceiling: u64,
    /// Whether the first campaign creates its group.
    pub auto_create: bool,
    /// Most groups, whoever created them.
    pub groups_max: u64,
    /// The policy of groups that have none of their own.
    pub default_policy: Policy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl_ms_ceiling: TTL_MS_MAX_DEFAULT,
            auto_create: true,
            groups_max: GROUPS_MAX_DEFAULT,
            default_policy: Policy::default(),
        }
    }
}

impl Settings {
    /// These settings, if they agree with each other.
    pub fn check(mut self) -> Result<Self, PolicyError> {
        if !(TTL_MS_FLOOR..=TTL_MS_CEILING).contains(&self.ttl_ms_ceiling) {
            return Err(PolicyError::Ttl {
                min: TTL_MS_FLOOR,
                max: self.ttl_ms_ceiling,
                ceiling: TTL_MS_CEILING,
            });
        }
        self.default_policy = self.default_policy.check(self.ttl_ms_ceiling)?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> Node {
        Node::new(text).unwrap()
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("web-*", "web-1", true),
            ("web-*", "db-1", false),
            ("*", "anything", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("exact", "exact", true),
            ("exact", "exactly", false),
            ("**a", "ba", true),
        ] {
            assert_eq!(
                NodePattern::new(pattern).unwrap().matches(&node(name)),
                expected,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn the_default_policy_and_settings_are_valid() {
        assert!(Policy::default().check(TTL_MS_MAX_DEFAULT).is_ok());
        assert!(Settings::default().check().is_ok());
    }

    #[test]
    fn absurd_policies_are_refused_with_their_numbers() {
        let refuse = |policy: Policy| policy.check(TTL_MS_MAX_DEFAULT).unwrap_err().to_string();
        let base = Policy::default;
        assert!(refuse(Policy { ttl_ms_min: 1, ..base() }).contains("1 ms"));
        assert!(
            refuse(Policy { ttl_ms_min: 9000, ttl_ms_max: 8000, ..base() }).contains("must rise")
        );
        assert!(
            refuse(Policy { ttl_ms_max: u64::MAX, ..base() })
                .contains("within 500 ms to 3600000 ms")
        );
        assert!(refuse(Policy { minimum_tenure_ms: 4999, ..base() }).contains("4999"));
        assert!(refuse(Policy { retry_ms_min: 0, ..base() }).contains("1 ms or more"));
        assert!(refuse(Policy { lock_delay_ms: u64::MAX, ..base() }).contains("lock delay"));
    }

    #[test]
    fn an_operators_priority_overrides_a_candidates_claim() {
        let policy = Policy {
            priorities: vec![(NodePattern::new("big-*").unwrap(), 9)],
            ..Policy::default()
        };
        assert_eq!(policy.priority(&node("big-1"), -5), 9);
        assert_eq!(policy.priority(&node("small"), -5), -5);
    }
}
