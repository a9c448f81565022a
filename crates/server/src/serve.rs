//! Starting everything, and ending it in order.

use std::future::Future;
use std::sync::Arc;

use regent_audit::{Audit, OpenError, Sign};
use regent_election::state::Question;
use regent_election::store::{Consistency, Store, StoreError};
use regent_signing::KeyFileError;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::admission::Admission;
use crate::app::{App, Phase};
use crate::beliefs::{self, ClaimMonitor};
use crate::cluster::Cluster;
use crate::config::{AuditConfig, Auth, ConfigError, ServerConfig};
use crate::connection::protocol;
use crate::connection_limit::{ConnectionLimit, within_open_files};
use crate::delay::{self, QueueDelay};
use crate::faces::Faces;
use crate::forecast::{self, FailureForecast};
use crate::held::Holdings;
use crate::issuers::{self, Issuers};
use crate::listen::{Listener, listen};
use crate::metrics::Metrics;
use crate::observer;
use crate::process::Readiness;
use crate::rate::{FailureLimits, RateLimits};
use crate::signing::Signing;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The settings are refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is nothing to listen on.
    #[error("there is no address to listen on; give at least one")]
    NoListener,
    /// The store cannot keep what authentication needs.
    #[error("auth is required, but {0}")]
    NoAccess(String),
    /// The list of issuers of tokens cannot be used.
    #[error("token_issuers: {0}")]
    TokenIssuers(String),
    /// The keys by which terms are signed cannot be used.
    #[error("signing_keys: {0}")]
    SigningKeys(#[from] KeyFileError),
    /// What is to be audited must not be served unaudited.
    #[error("audit log: {0}; or switch it off with audit_bytes = 0")]
    Audit(#[from] OpenError),
}

/// Serves `store` on all `listeners` until `shutdown` is ready, then ends in order:
///
/// 1. nothing more is accepted, watches end with `CLOSING`, connections close after their answer;
/// 2. requests under way are answered, for at most half the grace;
/// 3. the store shuts down, which answers the campaigns that still wait;
/// 4. what is not through when the grace is over is dropped.
pub async fn serve(
    listeners: Vec<impl Into<Listener>>,
    store: Arc<dyn Store>,
    config: ServerConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    serve_cluster(listeners, store, None, config, shutdown).await
}

/// The same for a store whose replicas an operator may look after.
pub async fn serve_cluster(
    listeners: Vec<impl Into<Listener>>,
    store: Arc<dyn Store>,
    cluster: Option<Arc<dyn Cluster>>,
    config: ServerConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let config = config.check()?;
    let listeners: Vec<Listener> = listeners.into_iter().map(Into::into).collect();
    if listeners.is_empty() {
        return Err(ServeError::NoListener);
    }
    if config.auth == Auth::Required {
        // A store that cannot answer now may later: requests are refused until then.
        let asked = store.ask(Question::access(None), Consistency::Stale);
        if let Ok(Err(error @ StoreError::Unsupported { .. })) =
            tokio::time::timeout(config.request_timeout, asked).await
        {
            return Err(ServeError::NoAccess(error.to_string()));
        }
    }
    let signing = config.signing_keys.as_deref().map(Signing::open).transpose()?.map(Arc::new);
    let audit = audit(&config, signing.as_ref())?;
    let issuers = config.token_issuers.as_deref().map(Issuers::open).transpose();
    let issuers = issuers.map_err(ServeError::TokenIssuers)?;
    let (turn, phase) = watch::channel(Phase::Serving);
    let (claim_monitor, jobs) = ClaimMonitor::new();
    let (failure_forecast, suspicions) = FailureForecast::new();
    let app = Arc::new(App {
        admission: Admission::new(config.requests_max, config.waiting_max),
        queue_delay: QueueDelay::new(config.queue_delay_max),
        rates: RateLimits::new(config.requests_per_principal, config.renewals_per_principal),
        failures: FailureLimits::new(config.requests_per_principal),
        holdings: Holdings::default(),
        connection_limit: ConnectionLimit::new(
            within_open_files(config.connections_max),
            config.connections_per_address_max,
        ),
        handshakes: Arc::default(),
        tls: listeners.iter().find_map(Listener::tls).cloned(),
        backups: Arc::default(),
        metrics: Metrics::new(&config),
        claim_monitor,
        failure_forecast,
        signing,
        audit,
        known: Arc::default(),
        readiness: Readiness::default(),
        issuers,
        store,
        cluster,
        phase,
        config,
    });
    let (faces, protocol) = (Faces::new(&app), Arc::new(protocol(&app.config)));
    let mut tasks = JoinSet::new();
    tasks.spawn(delay::probe(Arc::clone(&app)));
    tasks.spawn(observer::observe(Arc::clone(&app)));
    tasks.spawn(beliefs::attend(Arc::clone(&app), jobs));
    tasks.spawn(forecast::attend(Arc::clone(&app), suspicions));
    tasks.spawn(issuers::keep_fresh(Arc::clone(&app)));
    for listener in listeners {
        tasks.spawn(listen(listener, Arc::clone(&app), faces.clone(), Arc::clone(&protocol)));
    }
    shutdown.await;
    close(&app, &turn).await;
    tasks.shutdown().await;
    Ok(())
}

/// The audit log, signed if terms are.
fn audit(
    config: &ServerConfig,
    signing: Option<&Arc<Signing>>,
) -> Result<Option<Arc<Audit>>, OpenError> {
    let (Auth::Required, Some(AuditConfig { directory, bytes_max })) = (config.auth, &config.audit)
    else {
        return Ok(None);
    };
    let sign = signing.map(|signing| {
        let signing = Arc::clone(signing);
        let sign: Sign =
            Box::new(move |checkpoint| signing.with_signer(|kid, pair| checkpoint.sign(kid, pair)));
        sign
    });
    let is_signed = sign.is_some();
    let audit = Audit::start(directory, *bytes_max, &config.cluster, sign)?;
    tracing::info!(directory = %directory.display(), is_signed, "changes and denials are audited");
    Ok(Some(Arc::new(audit)))
}

async fn close(app: &App, turn: &watch::Sender<Phase>) {
    let grace = app.config.shutdown_grace;
    let now = Instant::now();
    tracing::info!(connections = app.connection_limit.count().now(), "shutting down");
    turn.send_replace(Phase::Closing);
    let asked = timeout_at(now + grace / 2, app.admission.asking().emptied()).await;
    // From here on the store answers every waiting campaign as lost and refuses what still comes.
    app.store.shut_down().await;
    let gone = timeout_at(now + grace, app.connection_limit.count().emptied()).await;
    if asked.is_err() || gone.is_err() {
        tracing::warn!(
            connections = app.connection_limit.count().now(),
            "the grace is over; what is still under way is dropped"
        );
    }
    turn.send_replace(Phase::Over);
    app.connection_limit.count().emptied().await;
    tracing::info!("shut down");
}
