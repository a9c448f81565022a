//! Bindings: which principals have which role where.

use std::fmt;
use std::str::FromStr;

use super::{Pattern, Principal, Role};
use crate::codec::{CodecError, Input, Wire, malformed, wire_enum, wire_struct};
use crate::limits::{
    BINDINGS_BYTES_MAX, BINDINGS_MAX, PATTERN_BYTES_MAX, PATTERNS_PER_BINDING_MAX,
};
use crate::name::Node;

/// Under which node names a principal may open sessions and campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeRule {
    /// Its own name, written `self`: `node:web-1` acts as `web-1`.
    Own,
    /// Every name of a pattern.
    Named(Pattern),
}

impl NodeRule {
    /// Whether `who` may act under this name.
    #[must_use]
    pub fn allows(&self, who: &Principal, node: &Node) -> bool {
        match self {
            Self::Own => who.own_name() == Some(node.as_str()),
            Self::Named(pattern) => pattern.matches(node.as_str()),
        }
    }
}

impl FromStr for NodeRule {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        if text == "self" { Ok(Self::Own) } else { Pattern::new(text).map(Self::Named) }
    }
}

impl fmt::Display for NodeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.pad("self"),
            Self::Named(pattern) => fmt::Display::fmt(pattern, f),
        }
    }
}

/// Gives the principals of a pattern one role in some groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Who: a pattern for the printed principal, like `node:web-*`.
    pub who: Pattern,
    pub role: Role,
    /// In which groups. Only a binding whose groups include `*` reaches what belongs to no group, like members.
    pub groups: Vec<Pattern>,
    /// Under which node names they may stand.
    pub nodes: Vec<NodeRule>,
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<&str> = self.groups.iter().map(Pattern::as_str).collect();
        write!(f, "{} is {} in {}", self.who, self.role, groups.join(", "))
    }
}

/// All bindings of a store, in the order in which they were put.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    /// Rises by one with every change; 0 if there never was one. A change names the version it was made from.
    version: u64,
    list: Vec<Binding>,
}

impl Bindings {
    /// These bindings, if they keep the bounds.
    pub fn new(version: u64, list: Vec<Binding>) -> Result<Self, AccessError> {
        let too_many = |what, count, max| Err(AccessError::TooMany { what, count, max });
        if list.len() > BINDINGS_MAX {
            return too_many("the list of bindings", list.len(), BINDINGS_MAX);
        }
        for (index, binding) in list.iter().enumerate() {
            if binding.groups.is_empty() {
                return Err(AccessError::NoGroups { number: index + 1 });
            }
            for (what, count) in [("groups", binding.groups.len()), ("nodes", binding.nodes.len())]
            {
                if count > PATTERNS_PER_BINDING_MAX {
                    return too_many(what, count, PATTERNS_PER_BINDING_MAX);
                }
            }
        }
        let mut bytes = Vec::new();
        list.put(&mut bytes);
        if bytes.len() > BINDINGS_BYTES_MAX {
            return Err(AccessError::TooLarge { bytes: bytes.len() });
        }
        Ok(Self { version, list })
    }

    /// The version of this list.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The bindings in their order.
    #[must_use]
    pub fn list(&self) -> &[Binding] {
        &self.list
    }

    /// Those that name a principal, with their places in the list.
    pub(super) fn naming(&self, who: &Principal) -> impl Iterator<Item = (usize, &Binding)> {
        let text = who.text();
        let all = self.list.iter().enumerate();
        all.filter(move |(_, binding)| binding.who.matches(text.as_str()))
    }
}

/// Why a wish is no binding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// A text that cannot be a pattern.
    #[error(
        "{0:?} is no pattern: letters, digits and - _ . : @ / with * for any run of them, at most {PATTERN_BYTES_MAX} bytes"
    )]
    Pattern(String),
    #[error("{0:?} is no right: observe, stand, operate, administer or replicate")]
    Right(String),
    #[error("{0:?} is no role: observer, participant, operator or administrator")]
    Role(String),
    /// More entries than a bound allows.
    #[error("{what} has {count} entries; at most {max}")]
    TooMany { what: &'static str, count: usize, max: usize },
    /// More bytes than the bound.
    #[error("the bindings take {bytes} bytes; at most {BINDINGS_BYTES_MAX}: use wider patterns")]
    TooLarge { bytes: usize },
    /// A token for a principal that is known in another way.
    #[error(
        "{0} gets no token: the kernel vouches for local principals, and certificates for replicas; use node:NAME or user:NAME"
    )]
    NoTokenFor(Principal),
    /// A binding that could allow nothing.
    #[error("binding {number} names no groups; write groups = [\"*\"] for all")]
    NoGroups {
        /// Counted from 1.
        number: usize,
    },
}

impl Wire for Pattern {
    fn put(&self, out: &mut Vec<u8>) {
        crate::codec::put_block(self.as_str().as_bytes(), out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let text =
            std::str::from_utf8(input.block("a pattern")?).map_err(malformed("a pattern"))?;
        Self::new(text).map_err(malformed("a pattern"))
    }
}

wire_enum!(Role "a role" { 1 = Observer, 2 = Participant, 3 = Operator, 4 = Administrator });
wire_struct!(Binding { who, role, groups, nodes });

impl Wire for NodeRule {
    fn put(&self, out: &mut Vec<u8>) {
        crate::codec::put_block(self.to_string().as_bytes(), out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let text = std::str::from_utf8(input.block("a node")?).map_err(malformed("a node"))?;
        text.parse().map_err(malformed("a node"))
    }
}

impl Wire for Bindings {
    fn put(&self, out: &mut Vec<u8>) {
        self.version.put(out);
        self.list.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let version = u64::take(input)?;
        Self::new(version, Wire::take(input)?).map_err(malformed("the bindings"))
    }
}

impl Wire for Principal {
    fn put(&self, out: &mut Vec<u8>) {
        crate::codec::put_block(self.text().as_str().as_bytes(), out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let text =
            std::str::from_utf8(input.block("a principal")?).map_err(malformed("a principal"))?;
        text.parse().map_err(malformed("a principal"))
    }
}
