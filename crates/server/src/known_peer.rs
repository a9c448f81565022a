//! What a connection knows of its peer: the credential that was shown last, and who that was found to be.
//!
//! Nothing here says that a credential is good: that is judged with every request. It only need not be read again.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use regent_election::access::{GuardedStore, LiveAccess, SecretDigest, TokenId};

/// What one peer has shown.
#[derive(Debug)]
pub(crate) struct KnownPeer {
    /// The bearer token that it showed last, once the store knew it.
    token: Mutex<Option<KnownToken>>,
    /// Who it was found to be last.
    caller: Mutex<Option<KnownCaller>>,
    /// Whether a token of another issuer is judged once, although its address has failed too often.
    may_be_judged: AtomicBool,
}

impl Default for KnownPeer {
    fn default() -> Self {
        let (token, caller) = (Mutex::default(), Mutex::default());
        Self { token, caller, may_be_judged: AtomicBool::new(true) }
    }
}

/// A bearer token as it was shown, and what it stands for.
#[derive(Debug)]
struct KnownToken {
    text: Secret,
    id: TokenId,
    digest: SecretDigest,
}

/// Who a peer was found to be by what it has shown, and for how long that holds.
#[derive(Debug)]
struct KnownCaller {
    /// The header `authorization`, if it sent one.
    shown: Option<Secret>,
    lasts: Lasts,
    guard: GuardedStore,
}

/// For how long a peer is known by the same credential. Whether that is still good is judged each time all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lasts {
    /// As long as the connection: its certificate or its user stands for it.
    Connection,
    /// As long as the store shows the table with this number. Another one may know the token no more, or under the same
    /// id a token with another secret and of another principal.
    Table { live: LiveAccess, version: u64 },
    /// For this request.
    Request,
}

/// A text that no message shows.
struct Secret(Box<[u8]>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Whether both are the same. How long it takes says nothing about where they differ.
    fn is(&self, other: &[u8]) -> bool {
        let differs = self.0.iter().zip(other).fold(0, |all, (left, right)| all | (left ^ right));
        self.0.len() == other.len() && std::hint::black_box(differs) == 0
    }
}

impl KnownPeer {
    /// What a bearer token stands for, if its peer showed the same one last and it was known then: a client shows one
    /// token with every request, and reading it costs more than a renewal. Whether it still is known, and good, is
    /// judged each time.
    pub(crate) fn token_known(&self, text: &str) -> Option<(TokenId, SecretDigest)> {
        let known = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let same = known.as_ref().filter(|known| known.text.is(text.as_bytes()))?;
        Some((same.id, same.digest))
    }

    /// Its peer showed this token, which stands for that.
    pub(crate) fn knows_token(&self, text: &str, id: TokenId, digest: SecretDigest) {
        let known = KnownToken { text: Secret(text.as_bytes().into()), id, digest };
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
    }

    /// Who its peer is, if it was found out last by the same header `authorization`, or by none, and that still holds.
    pub(crate) fn caller_known(&self, shown: Option<&[u8]>) -> Option<GuardedStore> {
        let known = self.caller.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.as_ref()?;
        let is_same = match (&known.shown, shown) {
            (Some(known), Some(shown)) => known.is(shown),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        (is_same && known.lasts.holds()).then(|| known.guard.clone())
    }

    /// Its peer was found to be the caller of this guard by what it has shown.
    pub(crate) fn knows_caller(&self, shown: Option<&[u8]>, lasts: Lasts, guard: &GuardedStore) {
        if lasts.holds() {
            let shown = shown.map(|bytes| Secret(bytes.into()));
            let known = KnownCaller { shown, lasts, guard: guard.clone() };
            *self.caller.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
        }
    }

    /// Whether a token of another issuer is judged although its address has failed too often: the first one that this
    /// connection needs that for, and one more after each that was good. A connection costs more than a judgement, and a
    /// client that replaces its token, or comes from another server, must be served behind an address that others abuse.
    pub(crate) fn takes_judgement(&self) -> bool {
        self.may_be_judged.swap(false, Ordering::AcqRel)
    }

    /// Its peer showed a token of another issuer that was good.
    pub(crate) fn showed_good_token(&self) {
        self.may_be_judged.store(true, Ordering::Release);
    }
}

impl Lasts {
    fn holds(&self) -> bool {
        match self {
            Self::Connection => true,
            Self::Table { live, version } => live.version() == *version,
            Self::Request => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use regent_election::access::{AccessTable, Caller};
    use regent_stores::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn a_peer_is_known_by_the_same_credential_while_the_table_stays_the_same() {
        let caller =
            Caller { who: "node:a".parse().unwrap(), token: None, voucher: None, wall_ms: || 0 };
        let store = Arc::new(MemoryStore::new().unwrap());
        let guard = GuardedStore::new(store, caller, Arc::default());
        let live = LiveAccess::new(Arc::default());
        let lasts = || Lasts::Table { live: live.clone(), version: live.version() };
        let peer = KnownPeer::default();
        let is_known = |shown: Option<&[u8]>| peer.caller_known(shown).is_some();
        peer.knows_caller(Some(b"Bearer a"), Lasts::Request, &guard);
        assert!(!is_known(Some(b"Bearer a")), "for that request only");
        peer.knows_caller(Some(b"Bearer a"), lasts(), &guard);
        assert!(is_known(Some(b"Bearer a")));
        for other in [None, Some(&b"Bearer b"[..]), Some(b"Bearer "), Some(b"Bearer aa")] {
            assert!(!is_known(other), "{other:?}");
        }
        let before = lasts();
        live.show(&Arc::<AccessTable>::default());
        assert!(!is_known(Some(b"Bearer a")), "the table may know the token no more");
        peer.knows_caller(Some(b"Bearer a"), before, &guard);
        assert!(!is_known(Some(b"Bearer a")), "it was found in an older table");
        peer.knows_caller(None, Lasts::Connection, &guard);
        live.show(&Arc::<AccessTable>::default());
        assert!(is_known(None) && !is_known(Some(b"Bearer a")));
    }
}
