//! Connections that are encrypted or not, for engines whose connections are made here.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::{ClientTls, plainer};

/// An encrypted connection whose errors are told in plain words: a server that misses our certificate says so only
/// after the handshake, to whoever reads first.
#[derive(Debug)]
pub(crate) struct TlsIo<S>(pub(super) tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer).map_err(plainer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes).map_err(plainer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context).map_err(plainer)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context).map_err(plainer)
    }
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) enum NetStream {
    Plain(TcpStream),
    Secure(Box<TlsIo<TcpStream>>),
}

impl NetStream {
    /// Connects to a `host:port`, encrypted if there is a way to.
    pub(crate) async fn connect(server: &str, tls: Option<&Arc<ClientTls>>) -> io::Result<Self> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
        Self::over(stream, host, tls).await
    }

    /// A connection to a host, encrypted if there is a way to.
    pub(crate) async fn over(
        stream: TcpStream,
        host: &str,
        tls: Option<&Arc<ClientTls>>,
    ) -> io::Result<Self> {
        Ok(match tls {
            None => Self::Plain(stream),
            Some(tls) => Self::Secure(Box::new(tls.shake_hands(host, stream).await?)),
        })
    }
}

impl AsyncRead for NetStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Secure(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for NetStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Secure(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Secure(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Secure(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
