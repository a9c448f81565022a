//! Connections for clients of HTTP, which are asked for by a URL.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tower_service::Service;

use super::ClientTls;
use super::stream::NetStream;

/// Connects to the host of a URL, by TLS if there is a way to, whatever the scheme of the URL.
#[derive(Clone)]
pub(crate) struct Dial {
    http: HttpConnector,
    pub(crate) tls: Option<Arc<ClientTls>>,
    connect_within: Duration,
}

impl Dial {
    /// For connections that may take so long each, the handshake included.
    pub(crate) fn new(tls: Option<Arc<ClientTls>>, connect_within: Duration) -> Self {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.set_connect_timeout(Some(connect_within));
        http.enforce_http(false);
        Self { http, tls, connect_within }
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").field("tls", &self.tls).finish_non_exhaustive()
    }
}

/// Why there is no connection.
type DialError = Box<dyn Error + Send + Sync>;

impl Service<Uri> for Dial {
    type Response = TokioIo<NetStream>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<NetStream>, DialError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let (tls, connect_within) = (self.tls.clone(), self.connect_within);
        let host = url.host().unwrap_or_default().to_owned();
        let connecting = self.http.call(url);
        Box::pin(async move {
            let connecting = async {
                let stream = connecting.await?.into_inner();
                Ok::<_, DialError>(NetStream::over(stream, &host, tls.as_ref()).await?)
            };
            match tokio::time::timeout(connect_within, connecting).await {
                Ok(connected) => connected.map(TokioIo::new),
                Err(_) => {
                    let why = format!("no connection within {connect_within:?}");
                    Err(io::Error::new(io::ErrorKind::TimedOut, why).into())
                }
            }
        })
    }
}

impl Connection for NetStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
