//! Listening, and ending in order.

use std::convert::Infallible;
use std::future::Future;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use regent_api::{Code, Problem};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::app::{App, answer};
use crate::body::GatewayAnswer;
use crate::config::{GatewayConfig, GatewayError};
use crate::current::Current;
use crate::front::{ByteStream, Front};
use crate::keeper::{self, Keeper};
use crate::limits::{
    ACCEPT_PAUSE, HANDSHAKE_WITHIN, HEAD_BYTES_MAX, HEADERS_MAX, METRICS_CONNECTIONS_MAX,
};
use crate::mark::{LastEnd, MarkFile};
use crate::metrics::Metrics;
use crate::reply;
use crate::report::{self, Telling};

/// A gateway that has its mark and its lock and does not listen yet.
#[derive(Debug)]
pub struct Gateway {
    app: Arc<App>,
    keeper: Keeper,
    telling: Option<Telling>,
    front: Option<Front>,
    config: Arc<GatewayConfig>,
}

impl Gateway {
    /// Reads the mark and takes the directory.
    pub fn open(mut config: GatewayConfig) -> Result<Self, GatewayError> {
        config.check()?;
        let front = config.tls.as_ref().map(Front::open).transpose()?;
        let (mark, kept, last_end) = MarkFile::open(&config.data, &config.group)?;
        if last_end == LastEnd::Unknown {
            tracing::warn!(
                settle_ms = config.rules.settle_for.as_millis(),
                "the last gateway here ended without a word: what it passed on is given time"
            );
        }
        tracing::info!(group = %config.group, term = kept.get(), "the mark was read");
        let (door, keeper) =
            keeper::open(config.rules, mark, kept, last_end).map_err(GatewayError::Thread)?;
        let current = config.strict.take().map(|remote| Current::new(remote, config.group.clone()));
        let upstream = config.upstream.take().ok_or(GatewayError::NoUpstream)?;
        let (reporter, telling) = match config.report.take() {
            None => (None, None),
            Some(told) => {
                let (reporter, telling) = report::open(told, config.group.clone());
                (Some(reporter), Some(telling))
            }
        };
        let app = App {
            group: config.group.clone(),
            door,
            upstream,
            current,
            reporter,
            signed: config.signed.take(),
            allows_reads: config.allows_reads,
            keeps_host: config.keeps_host,
            timing: config.timing(),
            metrics: Metrics::new(),
        };
        Ok(Self { app: Arc::new(app), keeper, telling, front, config: Arc::new(config) })
    }

    /// The highest term that ever passed.
    #[must_use]
    pub fn mark(&self) -> regent_election::Term {
        self.app.door.looks().mark
    }

    /// Serves until `shutdown` is ready; then nothing more is accepted, what is under way is answered for at
    /// most the grace, and the mark says whether anything may still take effect.
    pub async fn serve(
        self,
        listener: TcpListener,
        metrics: Option<TcpListener>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), GatewayError> {
        let (turn, closing) = watch::channel(false);
        if let Some(front) = &self.front {
            front.keep_fresh();
        }
        let telling_service = self.telling.map(|telling| tokio::spawn(telling.run()));
        let places = Arc::new(Semaphore::new(self.config.connections_max));
        let timed = {
            let app = Arc::clone(&self.app);
            tokio::spawn(async move { app.door.keep_time().await })
        };
        let (app, config) = (Arc::clone(&self.app), Arc::clone(&self.config));
        let front = self.front.clone();
        let accepting = tokio::spawn(listen(listener, Arc::clone(&places), closing.clone(), {
            move |stream, place, closing| {
                let (app, config) = (Arc::clone(&app), Arc::clone(&config));
                let front = front.clone();
                tokio::spawn(async move {
                    app.metrics.connected(1);
                    if let Some(stream) = begin(stream, front).await {
                        connection(stream, &app, &config, closing).await;
                    }
                    app.metrics.connected(-1);
                    drop(place);
                });
            }
        }));
        let telling = metrics.map(|listener| {
            let (app, front) = (Arc::clone(&self.app), self.front.clone());
            let places = Arc::new(Semaphore::new(METRICS_CONNECTIONS_MAX));
            tokio::spawn(listen(listener, places, closing, move |stream, place, closing| {
                let (app, front) = (Arc::clone(&app), front.clone());
                tokio::spawn(async move {
                    if let Some(stream) = begin(stream, front).await {
                        tell(stream, &app, closing).await;
                    }
                    drop(place);
                });
            }))
        });
        shutdown.await;
        turn.send_replace(true);
        let _ = accepting.await;
        let everybody = u32::try_from(self.config.connections_max).unwrap_or(u32::MAX);
        let quiet = async {
            let _gone = places.acquire_many(everybody).await;
            while self.app.door.looks().inside > 0 {
                sleep(ACCEPT_PAUSE / 10).await;
            }
        };
        if timeout(self.config.shutdown_grace, quiet).await.is_err() {
            tracing::warn!("the grace is over; what is still under way is dropped");
        }
        timed.abort();
        if let Some(telling) = telling_service {
            telling.abort();
        }
        if let Some(telling) = telling {
            telling.abort();
        }
        let end = self.keeper.end(&self.app.door)?;
        tracing::info!(?end, term = self.app.door.looks().mark.get(), "the gateway has ended");
        Ok(())
    }
}

/// Waits until the gateway closes.
async fn closes(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|is_closing| *is_closing).await;
}

/// Accepts until told to close; errors of one peer end nothing.
async fn listen(
    listener: TcpListener,
    places: Arc<Semaphore>,
    mut closing: watch::Receiver<bool>,
    serve: impl Fn(TcpStream, OwnedSemaphorePermit, watch::Receiver<bool>),
) {
    loop {
        // Whoever finds no place waits in the system's own queue.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let accepted = tokio::select! {
            biased;
            () = closes(&mut closing) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => serve(stream, place, closing.clone()),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                let is_peers = matches!(
                    error.kind(),
                    ErrorKind::ConnectionAborted
                        | ErrorKind::ConnectionReset
                        | ErrorKind::Interrupted
                );
                if !is_peers {
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// The bytes of a connection, after its handshake if there is one; none if that came to nothing.
async fn begin(stream: TcpStream, front: Option<Front>) -> Option<Box<dyn ByteStream>> {
    let _ = stream.set_nodelay(true);
    let Some(front) = front else { return Some(Box::new(stream)) };
    let why = match timeout(HANDSHAKE_WITHIN, front.accept(stream)).await {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it took too long".to_owned(),
    };
    tracing::debug!(why, "no TLS with a client");
    None
}

async fn connection(
    stream: Box<dyn ByteStream>,
    app: &Arc<App>,
    config: &GatewayConfig,
    mut closing: watch::Receiver<bool>,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let app = Arc::clone(app);
        async move { Ok::<_, Infallible>(answer(app, request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(config.timing().head)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => Some(ended),
        () = closes(&mut closing) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Metrics and health, on a listener of their own: no path of the upstream is taken.
async fn tell(stream: Box<dyn ByteStream>, app: &Arc<App>, mut closing: watch::Receiver<bool>) {
    let service = service_fn(|request: Request<Incoming>| {
        let response = match request.uri().path() {
            "/metrics" => text(
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                app.metrics.text(app.door.looks()),
            ),
            "/healthz" => text("application/json", r#"{"status":"ok"}"#.to_owned()),
            _ => reply::problem(&Problem::new(Code::NotFound, "there are /metrics and /healthz")),
        };
        async move { Ok::<_, Infallible>(response) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.timing.head)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => {}
        () = closes(&mut closing) => {}
    }
}

fn text(kind: &'static str, body: String) -> Response<GatewayAnswer> {
    let mut response = Response::new(GatewayAnswer::whole(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
