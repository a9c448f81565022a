//! TLS to the upstream, by certificates that this system trusts: the same that the client of a service uses
//! (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others).

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use super::UpstreamError;

/// How TLS is spoken to one host.
pub(super) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    pub(super) fn to(host: &str) -> Result<Self, UpstreamError> {
        let no = |why: String| UpstreamError::Tls { why };
        let name = ServerName::try_from(host.to_owned()).map_err(|error| no(error.to_string()))?;
        let mut config = regent::remote::tls_config().map_err(|error| no(error.to_string()))?;
        // What is passed on is HTTP/1.1, and so an upstream that could do more is told.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    pub(super) async fn speak(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), stream).await
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}
