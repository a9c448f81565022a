//! What a store keeps about access: the bindings and the tokens.

use std::collections::BTreeMap;

use super::{Bindings, LiveAccess, Principal, TokenId, TokenRecord};
use crate::codec::{CodecError, Input, Wire, malformed};
use crate::limits::TOKENS_MAX;
use crate::name::Node;
use std::sync::Arc;

/// The bindings and the tokens of a store. Shared with readers as a whole: every request of a client looks at it, and
/// it changes rarely.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessTable {
    /// Shared with those who keep what follows from the bindings alone.
    pub(crate) bindings: Arc<Bindings>,
    pub(crate) tokens: BTreeMap<TokenId, TokenRecord>,
}

impl AccessTable {
    /// The bindings.
    #[must_use]
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// All tokens, by their ids.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = (TokenId, &TokenRecord)> {
        self.tokens.iter().map(|(id, record)| (*id, record))
    }

    /// One token.
    #[must_use]
    pub fn token(&self, id: TokenId) -> Option<&TokenRecord> {
        self.tokens.get(&id)
    }

    /// Whether nothing was ever put here: such a store is written as by programs that know no access.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        *self == Self::default()
    }
}

/// What a server must know to admit a request: who may do what, and whose the session is that the request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessView {
    pub table: Arc<AccessTable>,
    /// None if no such session is open as far as this was read, or if none was asked about.
    pub session: Option<SessionOwner>,
    /// Whether this server has not heard of a majority since it started, so that what was revoked before that may look
    /// good here. It is enough for reads of what may be old, and for nothing else.
    pub may_be_old: bool,
    /// Where the store shows this table and every later one, if it does.
    pub live: Option<LiveAccess>,
}

/// Whose a session is. It never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOwner {
    pub node: Node,
    /// Who opened it; none if it was opened without authentication.
    pub owner: Option<Principal>,
}

impl Wire for AccessTable {
    fn put(&self, out: &mut Vec<u8>) {
        self.bindings.put(out);
        (self.tokens.len() as u64).put(out);
        for (id, record) in &self.tokens {
            id.put(out);
            record.put(out);
        }
    }

    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let bindings = Arc::new(Bindings::take(input)?);
        let mut tokens = BTreeMap::new();
        for _ in 0..input.count("tokens")? {
            let id = TokenId::take(input)?;
            if tokens.keys().next_back().is_some_and(|last| *last >= id) {
                return Err(malformed("tokens")("they are out of order, or one is named twice"));
            }
            tokens.insert(id, TokenRecord::take(input)?);
        }
        if tokens.len() > TOKENS_MAX {
            return Err(malformed("tokens")(format!(
                "{} of them; at most {TOKENS_MAX}",
                tokens.len()
            )));
        }
        Ok(Self { bindings, tokens })
    }
}
