//! Signed terms at the gateway: the term is taken from a token that the service signed, and from nowhere else.
//!
//! Nobody is asked about a token. The keys are read from a file of public keys (a JWKS, as the service publishes
//! it) and looked at again now and then; a token by an unknown key is reason to look once more, but not more
//! often than that, however many come.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::HeaderMap;
use regent::fencing::http::{TERM_HEADER, TOKEN_HEADER, term_of};
use regent_api::{Code, Problem};
use regent_clock::now;
use regent_election::{Group, Moment, Term};
use regent_signing::{Expected, Jwks, PublicKeys, WhyNot, verify};

/// How often the keys are looked at, and how soon again for a key that is not known.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Largest file of keys.
const BYTES_MAX: u64 = 1 << 20;

/// Why the keys cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It holds no public keys.
    #[error("{} holds no public keys; make it with `regent fence keys publish`", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// What every token is judged by.
#[derive(Debug)]
pub struct SignedTerms {
    path: PathBuf,
    group: Group,
    cluster: Option<String>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    keys: Arc<PublicKeys>,
    looked_at: Moment,
}

fn read(path: &Path) -> Result<PublicKeys, KeysError> {
    let failed = |source| KeysError::Io { path: path.to_owned(), source };
    if fs::metadata(path).map_err(failed)?.len() > BYTES_MAX {
        return Err(failed(io::ErrorKind::FileTooLarge.into()));
    }
    let text = fs::read(path).map_err(failed)?;
    let keys = serde_json::from_slice::<Jwks>(&text).map(|published| PublicKeys::from(&published));
    match keys {
        Ok(keys) if !keys.is_empty() => Ok(keys),
        Ok(_) | Err(_) => Err(KeysError::Empty { path: path.to_owned() }),
    }
}

impl SignedTerms {
    /// Terms of a group, signed by a key of this file; of one cluster, if one is named.
    pub fn open(path: &Path, group: Group, cluster: Option<String>) -> Result<Self, KeysError> {
        let state = State { keys: Arc::new(read(path)?), looked_at: now() };
        Ok(Self { path: path.to_owned(), group, cluster, state: Mutex::new(state) })
    }

    /// The term that a request's token is signed for.
    pub(crate) fn term_of(&self, headers: &HeaderMap) -> Result<Term, Problem> {
        let mut all = headers.get_all(TOKEN_HEADER).iter();
        let token = all.next().ok_or_else(|| {
            let detail = "this needs a signed term; send it as Regent-Token";
            Problem::new(Code::TermMissing, detail)
        })?;
        if all.next().is_some() {
            return Err(Problem::new(Code::BadRequest, "Regent-Token came more than once"));
        }
        let token = token
            .to_str()
            .map_err(|_| refused(&WhyNot::Malformed("it holds more than plain letters")))?;
        let wall = wall_seconds();
        let expected = Expected { group: &self.group, cluster: self.cluster.as_deref() };
        let mut judged = verify(token, &self.keys(false), expected, wall);
        if matches!(judged, Err(WhyNot::UnknownKey { .. })) {
            judged = verify(token, &self.keys(true), expected, wall);
        }
        let claims = judged.map_err(|why| refused(&why))?;
        let term = claims.term().ok_or_else(|| refused(&WhyNot::Malformed("it has no term")))?;
        // Whoever sends both means the same by both.
        if headers.contains_key(TERM_HEADER) && term_of(headers)? != term {
            let detail = "Regent-Term is not the term of Regent-Token; send the token alone";
            return Err(Problem::new(Code::BadRequest, detail));
        }
        Ok(term)
    }

    /// The keys at hand, looked at again if that is due.
    fn keys(&self, is_missed: bool) -> Arc<PublicKeys> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now().since(state.looked_at) >= LOOK_EVERY {
            state.looked_at = now();
            match read(&self.path) {
                Ok(keys) => state.keys = Arc::new(keys),
                // What was trusted stays so: a file that is just being replaced shuts nobody out.
                Err(error) => tracing::warn!(%error, is_missed, "the keys stay as they were"),
            }
        }
        Arc::clone(&state.keys)
    }
}

fn refused(why: &WhyNot) -> Problem {
    Problem::new(Code::TokenRefused, why.to_string())
}

/// The wall clock, which a token's end is compared with.
fn wall_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
