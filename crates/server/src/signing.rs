//! The keys by which terms are signed: read from one file that all instances share, and read again when it is
//! another one.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::header::{self, HeaderValue};
use regent_election::{Group, Node, SessionId, Term};
use regent_signing::{Claims, Jwks, KeyFile, KeyFileError, KeyPair, session_digest, sign};

use crate::app::Call;
use crate::reply::{self, Reply};

/// How often the file is looked at: a key is published long before it signs, so this need not be soon.
const KEY_FILE_POLL_EVERY: Duration = Duration::from_secs(1);
/// How long others may keep the published keys; far shorter than a new key waits before it signs.
const KEPT_FOR: &str = "public, max-age=300";

/// Signs terms.
#[derive(Debug)]
pub struct Signing {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: KeyFile,
    looked_at: Instant,
    /// The key that signed last: making one of its secret for every token would cost more than signing.
    signer: Option<(String, KeyPair)>,
}

/// What a signed term says, but for the times.
#[derive(Clone, Copy, Debug)]
pub struct TermStatement<'a> {
    pub cluster: &'a str,
    pub group: &'a Group,
    pub term: Term,
    /// Who holds it.
    pub node: &'a Node,
    /// By which session; only a digest of it is told.
    pub session: SessionId,
}

impl Signing {
    /// Reads the file of keys.
    pub fn open(path: &Path) -> Result<Self, KeyFileError> {
        let file = KeyFile::open(path)?;
        let state = State { file, looked_at: Instant::now(), signer: None };
        Ok(Self { state: Mutex::new(state) })
    }

    /// The public keys that are believed now.
    #[must_use]
    pub fn published(&self) -> Jwks {
        self.state().file.ring().published(wall_seconds()).to_jwks()
    }

    /// Signs that this term is held, good for so long. `None` if no key signs now.
    #[must_use]
    pub fn sign(&self, held: TermStatement<'_>, good_for: Duration) -> Option<String> {
        let now = wall_seconds();
        let not_after = now.saturating_add(good_for.as_secs());
        let claims = Claims {
            cluster: held.cluster.to_owned(),
            group: held.group.to_string(),
            term: held.term.get(),
            node: held.node.to_string(),
            session: session_digest(held.session),
            not_after,
            exp: not_after,
            iat: now,
        };
        self.with_signer(|kid, pair| sign(&claims, kid, pair))
    }

    /// Does something with the key that signs now. `None` if no key does.
    pub(crate) fn with_signer<T>(
        &self,
        sign: impl FnOnce(&str, &KeyPair) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.state();
        let entry = state.file.ring().signer(wall_seconds())?.clone();
        if state.signer.as_ref().is_none_or(|(kid, _)| *kid != entry.kid) {
            state.signer = Some((entry.kid.clone(), entry.pair().ok()?));
        }
        let (kid, pair) = state.signer.as_ref()?;
        sign(kid, pair)
    }

    /// The keys, looked at again if that is due.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked_at.elapsed() >= KEY_FILE_POLL_EVERY {
            state.looked_at = Instant::now();
            match state.file.refresh() {
                Ok(true) => tracing::info!("the signing keys were read again"),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "the signing keys stay as they were"),
            }
        }
        state
    }
}

/// `GET /.well-known/regent-keys`. A service that signs nothing has none.
pub(crate) fn keys(call: &Call) -> Reply {
    let published = call.app.signing.as_deref().map(Signing::published).unwrap_or_default();
    let mut response = reply::json(&published)?;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(KEPT_FOR));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/jwk-set+json"));
    Ok(response)
}

fn wall_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use regent_signing::{Expected, KeyEntry, PublicKeys, Ring, SigningAlgorithm, verify};

    fn ring(byte: u8) -> Ring {
        let mut ring = Ring::empty();
        ring.add(KeyEntry::new(SigningAlgorithm::EdDsa, &[byte; 32], 0, 0).unwrap(), 0).unwrap();
        ring
    }

    #[test]
    fn what_is_signed_is_believed_by_whoever_knows_the_published_keys() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("keys");
        let mut file = KeyFile::create(&path, &ring(1)).unwrap();
        let signing = Signing::open(&path).unwrap();
        let group = Group::new("billing").unwrap();
        let node = Node::new("web-1").unwrap();
        let session = SessionId::new(7).unwrap();
        let term = Term::new(101).unwrap();
        let held = TermStatement { cluster: "main", group: &group, term, node: &node, session };
        let expected = Expected { group: &group, cluster: Some("main") };
        let judged = |signing: &Signing| {
            let token = signing.sign(held, Duration::from_secs(10)).unwrap();
            let keys = PublicKeys::from(&signing.published());
            verify(&token, &keys, expected, wall_seconds())
        };
        assert_eq!(judged(&signing).unwrap().term(), Some(term));
        // Rotated: read again, without a restart.
        file.replace(ring(2)).unwrap();
        signing.state.lock().unwrap().looked_at = Instant::now() - KEY_FILE_POLL_EVERY;
        assert_eq!(judged(&signing).unwrap().session, session_digest(session));
        assert_eq!(signing.published(), ring(2).published(0).to_jwks());
    }
}
