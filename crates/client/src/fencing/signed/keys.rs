//! Public keys: where they come from, and when they are looked at again.
//!
//! A token by an unknown key is reason to look once more, because keys rotate; but whoever sends forged tokens must
//! not make us ask all day. So there is a shortest time between two looks, whatever comes. When is [`Due`],
//! a rule without clock or file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::ACCEPT;
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use regent_api::Operation;
use regent_clock::now;
use regent_election::Moment;
use regent_election::error_text::innermost;
use regent_files::Trust;
use regent_signing::{Jwks, PublicKeys};

use super::Unbelieved;
use crate::remote::{Address, AddressError, Connector, Spoken, connector};

/// Largest set of keys that is read.
const BYTES_MAX: usize = 1 << 20;
/// How long a fetch may take, connection included: requests wait for it.
const FETCH_FOR: Duration = Duration::from_secs(5);

/// When keys are looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// Not before this time has passed since the last look, whatever came of it.
    pub(super) again_after: Duration,
    /// When they are this old.
    pub(super) renewed_after: Duration,
    /// When they are this old they are not believed any more.
    pub(super) believed_for: Option<Duration>,
}

impl Due {
    /// A file costs nothing to look at, and whoever can write it is trusted with everything anyway: what cannot
    /// be read leaves things as they were.
    const FILE: Self = Self {
        again_after: Duration::from_secs(1),
        renewed_after: Duration::from_secs(1),
        believed_for: None,
    };
    /// A service says that its keys may be kept for five minutes, and by default goes on publishing a retired one
    /// for an hour.
    pub(super) const URL: Self = Self {
        again_after: Duration::from_secs(10),
        renewed_after: Duration::from_secs(300),
        believed_for: Some(Duration::from_secs(3600)),
    };

    /// Whether to look now.
    fn is_due(self, since_look: Duration, age: Duration, is_missed: bool) -> bool {
        since_look >= self.again_after && (is_missed || age >= self.renewed_after)
    }

    /// Whether keys of this age are too old to be believed.
    fn is_over(self, age: Duration) -> bool {
        self.believed_for.is_some_and(|believed_for| age >= believed_for)
    }
}

/// Why the keys cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The address is none.
    #[error("{given:?} is no address of keys: {source}")]
    Address { given: String, source: AddressError },
    /// Nobody answered there, or not with keys.
    #[error("cannot fetch keys from {url}: {why}")]
    Fetch { url: String, why: String },
    /// There are no public keys in it.
    #[error("{place} holds no public keys; make it with `regent fence keys publish`")]
    Empty {
        /// The file or the address.
        place: String,
    },
}

/// The keys at hand, and where others come from.
#[derive(Debug)]
pub(super) struct Keys {
    source: Source,
    /// None for keys that stay as they are.
    pub(super) due: Option<Due>,
    state: Mutex<State>,
    /// Held by the one who looks; others wait for it only if they need what it finds.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
enum Source {
    Given,
    File(PathBuf),
    Url(Box<KeyAddress>),
}

#[derive(Debug)]
struct State {
    keys: Arc<PublicKeys>,
    /// When they were had.
    had_at: Moment,
    /// When they were looked for last.
    looked_at: Moment,
}

impl Keys {
    pub(super) fn given(keys: PublicKeys) -> Self {
        Self::new(Source::Given, keys)
    }

    pub(super) fn read(path: PathBuf) -> Result<Self, KeysError> {
        let keys = read(&path)?;
        Ok(Self::new(Source::File(path), keys))
    }

    pub(super) async fn fetch(url: &str) -> Result<Self, KeysError> {
        let place = KeyAddress::new(url)?;
        let keys = place.fetch().await?;
        Ok(Self::new(Source::Url(Box::new(place)), keys))
    }

    fn new(source: Source, keys: PublicKeys) -> Self {
        let at = now();
        let due = match source {
            Source::Given => None,
            Source::File(_) => Some(Due::FILE),
            Source::Url(_) => Some(Due::URL),
        };
        let state = Mutex::new(State { keys: Arc::new(keys), had_at: at, looked_at: at });
        Self { source, due, state, looking: tokio::sync::Mutex::new(()) }
    }

    /// The keys at hand, looked at again if they are old.
    pub(super) async fn at_hand(&self) -> Result<Arc<PublicKeys>, Unbelieved> {
        if self.is_due(false)
            && let Ok(looking) = self.looking.try_lock()
        {
            self.look(false).await;
            drop(looking);
        }
        self.believed()
    }

    /// The keys, looked at again because one is missing, unless that was done a moment ago.
    pub(super) async fn looked_at_again(&self) -> Result<Arc<PublicKeys>, Unbelieved> {
        let _looking = self.looking.lock().await;
        self.look(true).await;
        self.believed()
    }

    fn is_due(&self, is_missed: bool) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let at = now();
        self.due.is_some_and(|due| {
            due.is_due(at.since(state.looked_at), at.since(state.had_at), is_missed)
        })
    }

    /// Looks, if it is still due: whoever waited may find it done.
    async fn look(&self, is_missed: bool) {
        if !self.is_due(is_missed) {
            return;
        }
        let began_at = now();
        self.state.lock().unwrap_or_else(PoisonError::into_inner).looked_at = began_at;
        let found = match &self.source {
            Source::Given => return,
            Source::File(path) => read(path),
            Source::Url(place) => place.fetch().await,
        };
        match found {
            // Their age counts from the question: what was retired since is not in the answer.
            Ok(keys) => {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                (state.keys, state.had_at) = (Arc::new(keys), began_at);
            }
            // What was trusted stays so for a while: a file that is just being replaced, or a service that is
            // restarted, shuts nobody out.
            Err(error) => tracing::warn!(%error, is_missed, "the keys stay as they were"),
        }
    }

    fn believed(&self) -> Result<Arc<PublicKeys>, Unbelieved> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let age = now().since(state.had_at);
        if self.due.is_some_and(|due| due.is_over(age)) {
            return Err(Unbelieved::KeysTooOld { age_s: age.as_secs() });
        }
        Ok(Arc::clone(&state.keys))
    }
}

fn parse(text: &[u8], place: impl Fn() -> String) -> Result<PublicKeys, KeysError> {
    let keys = serde_json::from_slice::<Jwks>(text).map(|published| PublicKeys::from(&published));
    match keys {
        Ok(keys) if !keys.is_empty() => Ok(keys),
        Ok(_) | Err(_) => Err(KeysError::Empty { place: place() }),
    }
}

fn read(path: &Path) -> Result<PublicKeys, KeysError> {
    let failed = |error| KeysError::Io { path: path.to_owned(), source: io::Error::other(error) };
    let text = regent_files::read(path, BYTES_MAX as u64, Trust::Public).map_err(failed)?;
    parse(&text, || path.display().to_string())
}

/// An address where keys are published.
#[derive(Debug)]
struct KeyAddress {
    uri: Uri,
    client: Client<Connector, Full<Bytes>>,
}

impl KeyAddress {
    fn new(url: &str) -> Result<Self, KeysError> {
        let wrong = |source| KeysError::Address { given: url.chars().take(80).collect(), source };
        let address: Address = url.parse().map_err(wrong)?;
        let connector = connector(std::slice::from_ref(&address), Spoken::One).map_err(wrong)?;
        let has_path = url.parse::<Uri>().is_ok_and(|uri| uri.path() != "/");
        let path = if has_path { "" } else { Operation::Keys.route().path };
        let uri = address.of(path).map_err(wrong)?;
        Ok(Self { uri, client: Client::builder(TokioExecutor::new()).build(connector) })
    }

    async fn fetch(&self) -> Result<PublicKeys, KeysError> {
        let failed = |why: String| KeysError::Fetch { url: self.uri.to_string(), why };
        let request = Request::get(self.uri.clone())
            .header(ACCEPT, "application/jwk-set+json, application/json")
            .body(Full::default())
            .map_err(|error| failed(error.to_string()))?;
        let asked = async {
            let answer =
                self.client.request(request).await.map_err(|error| failed(innermost(&error)))?;
            let status = answer.status();
            if !status.is_success() {
                return Err(failed(format!("it answered {status}")));
            }
            let body = Limited::new(answer.into_body(), BYTES_MAX).collect().await;
            Ok(body.map_err(|error| failed(error.to_string()))?.to_bytes())
        };
        let body = tokio::time::timeout(FETCH_FOR, asked)
            .await
            .map_err(|_| failed(format!("no answer within {} s", FETCH_FOR.as_secs())))??;
        parse(&body, || self.uri.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn unknown_keys_do_not_make_it_look_more_often_than_it_may() {
        for due in [Due::FILE, Due::URL] {
            let almost = due.again_after - Duration::from_millis(1);
            assert!(!due.is_due(almost, seconds(7200), true), "{due:?}");
            assert!(due.is_due(due.again_after, seconds(7200), true), "{due:?}");
            assert!(due.is_due(due.again_after, Duration::ZERO, true), "{due:?}");
        }
    }

    #[test]
    fn keys_are_renewed_when_they_are_old_and_tried_again_when_that_failed() {
        assert!(!Due::URL.is_due(seconds(299), seconds(299), false));
        assert!(Due::URL.is_due(seconds(300), seconds(300), false));
        // A try that failed nine seconds ago, and one that failed ten seconds ago.
        assert!(!Due::URL.is_due(seconds(9), seconds(309), false));
        assert!(Due::URL.is_due(seconds(10), seconds(310), false));
    }

    #[test]
    fn keys_that_could_not_be_renewed_are_believed_for_a_while_and_not_for_ever() {
        assert!(!Due::URL.is_over(seconds(3599)));
        assert!(Due::URL.is_over(seconds(3600)));
        assert!(!Due::FILE.is_over(Duration::MAX));
    }

    #[test]
    fn an_address_without_a_path_is_that_of_a_service() {
        for (given, fetched) in [
            ("http://127.0.0.1:7400", "http://127.0.0.1:7400/.well-known/regent-keys"),
            ("http://127.0.0.1:7400/", "http://127.0.0.1:7400/.well-known/regent-keys"),
            ("http://cdn/keys.json", "http://cdn/keys.json"),
        ] {
            assert_eq!(KeyAddress::new(given).unwrap().uri.to_string(), fetched);
        }
        for given in ["", "keys.json", "ftp://x", "http://u@x/keys", "http://x/keys?a=b"] {
            assert!(matches!(KeyAddress::new(given), Err(KeysError::Address { .. })), "{given}");
        }
    }
}
