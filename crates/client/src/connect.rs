//! From a URL to a [`Regent`]: which office, which options.

use std::sync::Arc;
use std::time::Duration;

use regent_election::store::Store;
use regent_election::{Budget, Node, Wishes};
use tokio::runtime::Handle;

use crate::backend::{Backend, DirectBackend, HttpBackend};
use crate::error::ConnectError;
use crate::health::{self, Check, Checks};
use crate::keeper::{self, Setup};
use crate::limits::REQUEST_TIMEOUT;
use crate::metrics::Metrics;
use crate::options::{LastResort, Options};
use crate::regent::Regent;
use crate::remote::Address;
use crate::session::Clock;

/// Where elections are held.
#[derive(Clone, Debug)]
pub(crate) enum BackendChoice {
    Url(String),
    Store(Arc<dyn Store>),
    #[cfg_attr(not(feature = "tools"), allow(dead_code, reason = "made by `tools` only"))]
    Given(Arc<dyn Backend>),
}

/// A session to be: where, and how. Made by [`Regent::at`].
#[derive(Clone, Debug)]
#[must_use = "nothing is connected before `connect`"]
pub struct Connect {
    place: BackendChoice,
    /// The URL by which the place was named.
    url: Option<String>,
    options: Options,
    pub(crate) clock: Clock,
}

/// Joins the elections at `url`, with all options at their defaults. [`Regent::at`] sets others.
///
/// | URL | what it is |
/// |---|---|
/// | `http://a:7400,b:7400` | a service at one or several addresses; what is safe to repeat is tried at the next |
/// | `unix:///run/regent.sock` | the service of this machine, by its Unix socket |
/// | `memory:` | a store that lives and dies with this process (feature `stores`) |
/// | `file:///DIRECTORY` | files shared by the processes of one host (feature `stores`) |
/// | `postgres://…`, `redis://…`, … | a store that others run, without any server of ours (a feature each; `full` has all) |
/// | `embedded` | a replica inside this process: see `Embedded` (feature `embedded`) |
///
/// Nothing is sent before the first campaign, so a service that is down is no error here.
pub async fn connect(url: &str) -> Result<Regent, ConnectError> {
    Regent::at(url).connect().await
}

impl Connect {
    pub(crate) fn new(place: BackendChoice) -> Self {
        let url = match &place {
            BackendChoice::Url(url) => Some(url.clone()),
            BackendChoice::Store(_) | BackendChoice::Given(_) => None,
        };
        Self { place, url, options: Options::default(), clock: Clock::new(regent_clock::now) }
    }

    /// The label of this process; by default the host's name and random digits. Two processes may
    /// share one and will still never both lead.
    pub fn node(mut self, node: impl Into<String>) -> Self {
        self.options.node = Some(node.into());
        self
    }

    /// How long the session lives unheard, and so how long a failover takes at most; 10 s by
    /// default. Every timer is derived from it and checked against it.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// How long work needs to stop; a tenth of the ttl by default. So much of every lease is kept
    /// for it.
    pub fn stop_grace(mut self, stop_grace: Duration) -> Self {
        let stop_grace_ms = u64::try_from(stop_grace.as_millis()).unwrap_or(u64::MAX);
        self.options.wishes = Wishes { stop_grace_ms: Some(stop_grace_ms), ..self.options.wishes };
        self
    }

    /// What is done about work that still runs when its lease is over; an error is logged by
    /// default.
    pub fn last_resort(mut self, last_resort: LastResort) -> Self {
        self.options.last_resort = last_resort;
        self
    }

    /// Whether the lease is renewed only while this Tokio runtime answers: on by default. Without
    /// it, an application that hangs for ever leads for ever.
    pub fn runtime_probe(mut self, is_on: bool) -> Self {
        self.options.probes_runtime = is_on;
        self
    }

    /// Something that must be so for this process to lead: unhealthy, it does not stand, and what it
    /// leads is drained and given to whoever is next. Several add up.
    pub fn check(mut self, check: impl Check) -> Self {
        self.options.checks.0.push(Arc::new(check));
        self
    }

    /// Whether a group that was moved to another store is followed there; on by default, to the hosts that
    /// this process was connected to, and to what [`follow_to`](Self::follow_to) allows.
    pub fn follow(mut self, is_on: bool) -> Self {
        self.options.follows = is_on;
        self
    }

    /// Allows this process to follow a group to one more place: a host, a whole URL, or `*` for any. The old
    /// store says where a group went; this process goes there with whatever credentials its surroundings
    /// hold, so list only what you trust as much as the old store. A URL with parameters must be listed whole.
    pub fn follow_to(mut self, place: impl Into<String>) -> Self {
        self.options.places.allow(place.into());
        self
    }

    /// Where to count what happens.
    pub fn metrics(mut self, metrics: Arc<dyn Metrics>) -> Self {
        self.options.metrics = metrics;
        self
    }

    /// Starts the session's thread. Called within the Tokio runtime that is to be probed.
    pub async fn connect(mut self) -> Result<Regent, ConnectError> {
        // Opened once, whoever else needs it later.
        self.place = opened(self.place)?;
        let budget = self.options.budget()?;
        let node = self.options.node()?;
        let runtime = Handle::try_current().map_err(|_| ConnectError::NoRuntime);
        if !self.options.checks.0.is_empty() {
            runtime.as_ref().map_err(|_| ConnectError::NoRuntime)?;
        }
        let application = if self.options.probes_runtime {
            Some(runtime?)
        } else {
            tracing::warn!(%node, "the runtime probe is off: an application that hangs for ever leads for ever");
            None
        };
        let (office, reads) = offices(&self.place, &budget)?;
        tracing::debug!(%node, %budget, "a session begins");
        let session = keeper::start(Setup {
            node,
            budget,
            application,
            office,
            reads,
            clock: self.clock.clone(),
            last_resort: self.options.last_resort.clone(),
            metrics: Arc::clone(&self.options.metrics),
        })?;
        health::watch(&self.options.checks, &session);
        Ok(Regent::new(session, self))
    }

    /// The same session in another store, under the same name.
    pub(crate) fn at_home(&self, url: &str, node: &Node) -> Result<Self, ConnectError> {
        let options = Options { node: Some(node.to_string()), ..self.options.clone() };
        let place = if is_http(url) {
            BackendChoice::Url(url.to_owned())
        } else {
            BackendChoice::Store(open_shared(url)?)
        };
        Ok(Self { place, url: Some(url.to_owned()), options, clock: self.clock.clone() })
    }

    /// What the place shows, without a session there.
    pub(crate) fn reads(&self) -> Result<Arc<dyn Backend>, ConnectError> {
        Ok(offices(&self.place, &self.options.budget()?)?.1)
    }

    /// The address, if it has one.
    pub(crate) fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// Whether this is the place.
    pub(crate) fn is_at(&self, url: &str) -> bool {
        self.url.as_deref() == Some(url)
    }

    /// Whether this process may go there.
    pub(crate) fn may_follow(&self, to: &str) -> Result<(), ConnectError> {
        if !self.options.follows {
            return Err(ConnectError::StaysHere);
        }
        if self.options.places.allows(self.url.as_deref(), to) {
            return Ok(());
        }
        Err(ConnectError::NotAllowedThere)
    }

    /// The same place with another ttl, for what must outlive the usual one. Whether this process is
    /// healthy is a question of leadership, not of what it holds for a moment.
    pub(crate) fn with_ttl(&self, ttl: Duration) -> Self {
        let (wishes, checks) = (Wishes::default(), Checks::default());
        let options = Options { ttl, wishes, checks, ..self.options.clone() };
        Self { options, ..self.clone() }
    }
}

/// The place, with whatever a URL names open.
fn opened(place: BackendChoice) -> Result<BackendChoice, ConnectError> {
    match place {
        BackendChoice::Url(url) if is_http(&url) => Ok(BackendChoice::Url(url)),
        BackendChoice::Url(url) => open(&url).map(BackendChoice::Store),
        place @ (BackendChoice::Store(_) | BackendChoice::Given(_)) => Ok(place),
    }
}

fn is_http(url: &str) -> bool {
    url.starts_with("http:") || url.starts_with("https:") || url.starts_with("unix:")
}

/// How a service is spoken to.
#[cfg(feature = "grpc")]
type RemoteOffice = crate::backend::StreamBackend;
#[cfg(not(feature = "grpc"))]
type RemoteOffice = HttpBackend;

type Offices = (Arc<dyn Backend>, Arc<dyn Backend>);

/// One office for the session's thread and one for the application's reads.
fn offices(place: &BackendChoice, budget: &Budget) -> Result<Offices, ConnectError> {
    match place {
        BackendChoice::Given(office) => Ok((Arc::clone(office), Arc::clone(office))),
        BackendChoice::Store(store) => Ok(direct(Arc::clone(store), budget)),
        BackendChoice::Url(url) => {
            let addresses = Address::list(url)?;
            let office = RemoteOffice::new(&addresses, budget.request_timeout())?;
            let reads = HttpBackend::new(&addresses, REQUEST_TIMEOUT)?;
            Ok((Arc::new(office), Arc::new(reads)))
        }
    }
}

fn direct(store: Arc<dyn Store>, budget: &Budget) -> Offices {
    let office = DirectBackend::new(Arc::clone(&store), budget.request_timeout());
    (Arc::new(office), Arc::new(DirectBackend::new(store, REQUEST_TIMEOUT)))
}

/// Opens the store that `url` names. What is told of the URL is its scheme: the rest may hold a password.
fn open(url: &str) -> Result<Arc<dyn Store>, ConnectError> {
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme {
        "embedded" if cfg!(feature = "embedded") => {
            Err(ConnectError::NotByUrl { url: url.to_owned() })
        }
        "embedded" => {
            Err(ConnectError::FeatureMissing { url: url.to_owned(), feature: "embedded" })
        }
        _ => open_store(url, scheme),
    }
}

/// Opens a store that other processes can be in, too: in one of this process alone, everybody who follows a
/// group would lead.
#[cfg(feature = "stores")]
fn open_shared(url: &str) -> Result<Arc<dyn Store>, ConnectError> {
    let register = regent_stores::open_register(url).map_err(unopened(url))?;
    Ok(Arc::new(regent_stores::LeaseStore::new(register)))
}

#[cfg(not(feature = "stores"))]
fn open_shared(url: &str) -> Result<Arc<dyn Store>, ConnectError> {
    open(url)
}

#[cfg(feature = "stores")]
fn open_store(url: &str, _: &str) -> Result<Arc<dyn Store>, ConnectError> {
    regent_stores::open_url(url).map_err(unopened(url))
}

#[cfg(feature = "stores")]
fn unopened(url: &str) -> impl Fn(regent_stores::OpenError) -> ConnectError {
    use regent_stores::OpenError;
    let scheme = url.split(':').next().unwrap_or_default().to_owned();
    move |error| match error {
        OpenError::Unknown { .. } => ConnectError::UnknownScheme { url: scheme.clone() },
        OpenError::NotBuiltIn { feature, .. } => {
            ConnectError::FeatureMissing { url: scheme.clone(), feature }
        }
        OpenError::Url { .. }
        | OpenError::NoRegister { .. }
        | OpenError::Removed
        | OpenError::Memory(_) => ConnectError::Store(error.to_string()),
    }
}

#[cfg(not(feature = "stores"))]
fn open_store(_: &str, scheme: &str) -> Result<Arc<dyn Store>, ConnectError> {
    let url = scheme.to_owned();
    Err(match scheme {
        "memory" | "file" => ConnectError::FeatureMissing { url, feature: "stores" },
        _ => ConnectError::UnknownScheme { url },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_nobody_knows_is_refused_with_what_is_known() {
        let error = open("zebra://a:secret@b").unwrap_err().to_string();
        assert!(error.contains("http://HOST:PORT") && error.contains("memory:"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_scheme_that_needs_more_or_was_not_compiled_in_says_what() {
        let error = open("embedded").unwrap_err().to_string();
        let way_out = if cfg!(feature = "embedded") { "regent::Embedded" } else { "\"embedded\"" };
        assert!(error.contains(way_out), "{error}");
        let opened = open("memory:");
        assert_eq!(opened.is_ok(), cfg!(feature = "stores"));
        let is_told = opened.err().is_none_or(|error| error.to_string().contains("\"stores\""));
        assert!(is_told);
    }

    #[tokio::test]
    async fn a_ttl_that_leaves_no_room_is_refused_before_anything_starts() {
        let error = Regent::at("http://127.0.0.1:1").ttl(Duration::from_millis(1)).connect().await;
        assert!(matches!(error, Err(ConnectError::Budget(_))), "{error:?}");
    }
}
