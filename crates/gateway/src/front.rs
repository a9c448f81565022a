//! TLS before the gateway: what clients see.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::config::GatewayError;

/// The certificate of a gateway's listeners.
#[derive(Clone, Debug)]
pub struct GatewayCertificate {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key, which only the gateway's user may read.
    pub key: PathBuf,
    /// Says that the files are to be read again now, and not only when it is time to look.
    pub reload: Arc<Notify>,
}

/// Bytes both ways.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// How TLS is spoken to clients.
#[cfg(feature = "tls")]
#[derive(Clone, Debug)]
pub(crate) struct Front(Arc<regent_tls::ServerTls>, Arc<Notify>);

/// No value of it exists in a build without TLS.
#[cfg(not(feature = "tls"))]
#[derive(Clone, Debug)]
pub(crate) enum Front {}

#[cfg(feature = "tls")]
impl Front {
    pub(crate) fn open(own: &GatewayCertificate) -> Result<Self, GatewayError> {
        let GatewayCertificate { certificate, key, reload } = own.clone();
        let files = regent_tls::ServerFiles { certificate, key, clients: None };
        // No client is asked for a certificate, so no name in one counts.
        let names = regent_tls::ClientNames { cluster: None, dns: false, common_name: false };
        let tls = regent_tls::ServerTls::open(files, names, &["http/1.1"])
            .map_err(|error| GatewayError::Tls(error.to_string()))?;
        Ok(Self(Arc::new(tls), reload))
    }

    /// Looks after the files for as long as this is used.
    pub(crate) fn keep_fresh(&self) {
        regent_tls::keep_fresh(&self.0, Arc::clone(&self.1), "gateway");
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<Box<dyn ByteStream>> {
        let (stream, _) = self.0.accept(stream).await?;
        Ok(Box::new(stream))
    }
}

#[cfg(not(feature = "tls"))]
impl Front {
    pub(crate) fn open(_: &GatewayCertificate) -> Result<Self, GatewayError> {
        Err(GatewayError::Tls("this build has no TLS; build with --features tls".to_owned()))
    }

    pub(crate) fn keep_fresh(&self) {
        match *self {}
    }

    pub(crate) async fn accept(&self, _: TcpStream) -> io::Result<Box<dyn ByteStream>> {
        match *self {}
    }
}
