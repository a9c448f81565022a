//! Connections of both kinds: through the network, or by a Unix socket of this machine.

use std::error::Error;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tower_service::Service;

use super::connector::{NetConnector, NetStream};

/// What makes connections.
#[derive(Clone, Debug)]
pub(crate) enum Connector {
    Net(NetConnector),
    /// By this socket, whatever the host of the request.
    Unix(PathBuf),
}

/// A connection.
pub(crate) enum Stream {
    Net(Box<NetStream>),
    Unix(TokioIo<UnixStream>),
}

type BoxError = Box<dyn Error + Send + Sync>;
type Connecting = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = Connecting;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Net(net) => net.poll_ready(cx).map_err(Into::into),
            Self::Unix(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        match self {
            Self::Net(net) => {
                let connecting = net.call(uri);
                Box::pin(async move { Ok(Stream::Net(Box::new(connecting.await?))) })
            }
            Self::Unix(path) => {
                let path = path.clone();
                Box::pin(
                    async move { Ok(Stream::Unix(TokioIo::new(UnixStream::connect(path).await?))) },
                )
            }
        }
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Self::Net(net) => net.connected(),
            Self::Unix(_) => Connected::new(),
        }
    }
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Net(net) => Pin::new(net).poll_read(cx, buffer),
            Self::Unix(unix) => Pin::new(unix).poll_read(cx, buffer),
        }
    }
}

impl Write for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Net(net) => Pin::new(net).poll_write(cx, bytes),
            Self::Unix(unix) => Pin::new(unix).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Net(net) => Pin::new(net).poll_flush(cx),
            Self::Unix(unix) => Pin::new(unix).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Net(net) => Pin::new(net).poll_shutdown(cx),
            Self::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
        }
    }
}
