//! Connections for clients of HTTP, which are asked for by a URL.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tower_service::Service;

use super::ClientTls;
use super::stream::NetStream;

/// Connects to the host of a URL, by TLS if there is a way to, whatever the scheme of the URL.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    pub(crate) tls: Option<Arc<ClientTls>>,
    pub(crate) connect_within: Duration,
}

impl Service<hyper::Uri> for Dial {
    type Response = TokioIo<NetStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<NetStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: hyper::Uri) -> Self::Future {
        let Self { tls, connect_within } = self.clone();
        Box::pin(async move {
            let server = url.authority().ok_or_else(|| io::Error::other("a URL without a host"))?;
            let connecting = NetStream::connect(server.as_str(), tls.as_ref());
            match tokio::time::timeout(connect_within, connecting).await {
                Ok(connected) => connected.map(TokioIo::new),
                Err(_) => {
                    let why = format!("no connection within {connect_within:?}");
                    Err(io::Error::new(io::ErrorKind::TimedOut, why))
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
