//! A Regent server over HTTP: one method per verb, in files that are named as in `regent-api`.
//!
//! A [`Remote`] knows one or several addresses of the same store. What was certainly not sent is
//! tried at the next address; what may have been sent is repeated only if it is a read. Everything
//! else is the caller's decision, because only the caller knows whether it holds the ids that make
//! a repeat safe. [`RemoteError`] says which case it is.
//!
//! The road not taken is a general HTTP client with retries of its own: a library that silently
//! sends a resignation twice, or counts a lost answer as a failure, is wrong here.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use regent_api::CampaignRequest;
//! use regent::remote::Remote;
//!
//! let remote = Remote::new("http://127.0.0.1:7400")?;
//! let answer = remote.campaign(&"billing".parse()?, &CampaignRequest::of("web-1".parse()?)).await?;
//! println!("{}", if answer.elected { "we lead" } else { "somebody else leads" });
//! # Ok(())
//! # }
//! ```

mod address;
mod auth;
mod backoff;
mod campaign;
mod claims;
mod cluster;
mod connector;
mod context;
mod credential;
mod error;
mod groups;
mod history;
mod leader;
mod port;
mod process;
mod send;
#[cfg(unix)]
mod session_file;
mod sessions;
mod socket;
mod sse;
mod step_down;
mod tenure;
mod tls;
mod token;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use regent_election::{RequestId, Revision};

#[cfg(feature = "grpc")]
pub(crate) use address::credential;
pub use address::{Address, AddressError};
#[cfg(feature = "grpc")]
pub(crate) use backoff::Backoff;
pub(crate) use connector::Spoken;
#[cfg(any(feature = "grpc", feature = "fence-signed"))]
pub(crate) use connector::connector;
#[cfg(feature = "tls")]
#[doc(hidden)]
pub use connector::tls_config;
pub use context::{
    CONTEXT_VARIABLE, Chosen, Context, ContextError, ContextName, Contexts, SERVER_VARIABLE, Wanted,
};
pub use credential::{Credential, CredentialError};
pub use error::RemoteError;
pub use regent_election::store::Scope;
#[cfg(all(unix, feature = "fuzzing"))]
#[doc(hidden)]
pub use session_file::fuzz as fuzz_session_file;
#[cfg(unix)]
pub use session_file::{HeldSession, SessionFile, SessionFileError};
pub(crate) use socket::Connector;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use sse::fuzz as fuzz_events;
pub use tls::TlsFiles;
pub use watch::{Watched, Watching};

use crate::fresh::{self, NoRandomness};
use crate::limits::{CONNECTION_IDLE_MAX, REQUEST_TIMEOUT};

/// What every verb returns.
pub type RemoteResult<T> = Result<T, RemoteError>;

/// A store behind one or several servers. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Remote {
    shared: Arc<Shared>,
    request_timeout: Duration,
}

struct Shared {
    addresses: Vec<Address>,
    /// The address that worked last; where the next request goes first.
    preferred: AtomicUsize,
    /// The highest revision any answer told.
    seen: AtomicU64,
    http: Client<Connector, Full<Bytes>>,
    /// What is shown to every one of them.
    credential: Option<Credential>,
}

impl Remote {
    /// A remote at one address, or at several with commas between.
    pub fn new(addresses: &str) -> Result<Self, AddressError> {
        Self::at(Address::list(addresses)?)
    }

    /// A remote at these addresses, which all serve the same store.
    pub fn at(addresses: Vec<Address>) -> Result<Self, AddressError> {
        address::check_list(&addresses)?;
        let connector = connector::connector(&addresses, Spoken::One)?;
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(CONNECTION_IDLE_MAX)
            .build(connector);
        let shared = Shared {
            addresses,
            preferred: AtomicUsize::new(0),
            seen: AtomicU64::new(0),
            http,
            credential: address::credential()?,
        };
        Ok(Self { shared: Arc::new(shared), request_timeout: REQUEST_TIMEOUT })
    }

    /// The same remote, waiting this long for an answer (beside the time a request itself asks to
    /// wait). The time covers all addresses tried.
    #[must_use]
    pub fn with_timeout(&self, request_timeout: Duration) -> Self {
        Self { shared: Arc::clone(&self.shared), request_timeout }
    }

    /// Where this remote is, in the order given.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.shared.addresses
    }

    /// The highest revision that any answer told.
    #[must_use]
    pub fn seen(&self) -> Revision {
        Revision(self.shared.seen.load(Ordering::Relaxed))
    }

    /// A name for one request to this store, so that repeating it takes effect once.
    ///
    /// It opens with the highest revision seen. A remote that has heard nothing yet should read
    /// something first: a store that has forgotten its oldest ids refuses one that opens with 0.
    pub fn request_id(&self) -> Result<RequestId, NoRandomness> {
        fresh::request_id(self.seen())
    }

    /// Whether a token goes with every request.
    fn shows_token(&self) -> bool {
        self.shared.credential.is_some()
    }

    fn note(&self, revision: Revision) {
        self.shared.seen.fetch_max(revision.0, Ordering::Relaxed);
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("addresses", &self.shared.addresses)
            .field("request_timeout", &self.request_timeout)
            .finish_non_exhaustive()
    }
}
