//! TLS on the port of clients.

use std::path::PathBuf;
use std::sync::Arc;

use regent_server::Listener;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::error::ReplicaError;

/// Whether clients are asked for a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not.
    #[default]
    Off,
    /// One that is shown must be good.
    Optional,
    /// Without a good one there is no connection.
    Required,
}

impl ClientAuth {
    /// The words of all.
    pub const WORDS: [&'static str; 3] = ["off", "optional", "required"];

    /// The one of this word.
    #[must_use]
    pub fn find(word: &str) -> Option<Self> {
        let all = [Self::Off, Self::Optional, Self::Required];
        Self::WORDS.iter().zip(all).find(|(known, _)| **known == word).map(|(_, auth)| auth)
    }
}

/// How TLS is spoken to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientPort {
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its key, which only the server's user may read.
    pub key: PathBuf,
    /// The certificates of the CAs by which clients are believed; none if `auth` is off.
    pub ca: Option<PathBuf>,
    /// Lists of certificates that are not believed any more.
    pub crl: Option<PathBuf>,
    pub auth: ClientAuth,
    /// Whether a DNS name in a client's certificate is its name.
    pub dns_names: bool,
    /// Whether its common name is, if it has no other.
    pub common_names: bool,
}

#[cfg(not(feature = "tls"))]
pub(crate) fn secured(
    _listener: TcpListener,
    _port: &ClientPort,
    _cluster: Option<u128>,
    _reload: Arc<Notify>,
) -> Result<Listener, ReplicaError> {
    Err(ReplicaError::NoTls { setting: "tls_cert" })
}

#[cfg(feature = "tls")]
pub(crate) use tls::secured;

#[cfg(feature = "tls")]
mod tls {
    //! The listener over TLS.

    use std::io;

    use async_trait::async_trait;
    use regent_election::access::Voucher;
    use regent_server::{Secured, Tls};
    use regent_tls::{ClientCa, ClientNames, Reload, ServerFiles, ServerTls, keep_fresh};
    use tokio::net::TcpStream;

    use super::{Arc, ClientAuth, ClientPort, Listener, Notify, ReplicaError, TcpListener};

    /// What is spoken within, the best first.
    const PROTOCOLS: [&str; 2] = ["h2", "http/1.1"];

    #[derive(Debug)]
    struct Port(Arc<ServerTls>);

    pub(crate) fn secured(
        listener: TcpListener,
        port: &ClientPort,
        cluster: Option<u128>,
        reload: Arc<Notify>,
    ) -> Result<Listener, ReplicaError> {
        let ClientPort { certificate, key, ca, crl, auth, dns_names, common_names } = port.clone();
        let is_required = auth == ClientAuth::Required;
        let clients = match auth {
            ClientAuth::Off => None,
            ClientAuth::Optional | ClientAuth::Required => {
                ca.map(|ca| ClientCa { ca, crl, is_required })
            }
        };
        let names = ClientNames { cluster, dns: dns_names, common_name: common_names };
        let files = ServerFiles { certificate, key, clients };
        let tls = Arc::new(ServerTls::open(files, names, &PROTOCOLS)?);
        keep_fresh(&tls, reload, "client");
        Ok(Listener::Tls(listener, Arc::new(Port(tls))))
    }

    #[async_trait]
    impl Tls for Port {
        async fn accept(&self, stream: TcpStream) -> io::Result<Secured> {
            let (stream, client) = self.0.accept(stream).await?;
            let client = client.map(|client| Arc::new(client) as Arc<dyn Voucher>);
            Ok(Secured { stream: Box::new(stream), client })
        }

        fn expires_at_s(&self) -> u64 {
            self.0.expires_at_s()
        }

        fn reload_failures(&self) -> u64 {
            self.0.failures()
        }
    }
}
