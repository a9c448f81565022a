//! Links between copies of an application, by mutual TLS.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use regent_replica::disk::Identity;
use regent_replica::peers::{Channel, Transport};
use regent_tls::{PeerFiles, PeerTls, Reload, ReplicaName, TlsError, keep_fresh};
use tokio::net::TcpStream;

#[derive(Debug)]
struct Links(Arc<PeerTls>);

/// Links with the certificates in these files, which are read again while the replica runs. Needs its runtime.
pub(crate) fn encrypted(
    files: PeerFiles,
    identity: Identity,
) -> Result<Arc<dyn Transport>, TlsError> {
    let own = ReplicaName { cluster: identity.cluster, replica: identity.replica.get() };
    let tls = Arc::new(PeerTls::open(own, files)?);
    keep_fresh(&tls, Arc::default(), "peer");
    Ok(Arc::new(Links(tls)))
}

#[async_trait]
impl Transport for Links {
    async fn connect(&self, stream: TcpStream) -> io::Result<Channel> {
        let (stream, name) = self.0.connect(stream).await?;
        Channel::proven(stream, name.cluster, name.replica)
    }

    async fn accept(&self, stream: TcpStream) -> io::Result<Channel> {
        let (stream, name) = self.0.accept(stream).await?;
        Channel::proven(stream, name.cluster, name.replica)
    }

    fn expires_at_s(&self) -> Option<u64> {
        Some(self.0.expires_at_s())
    }

    fn reload_failures(&self) -> u64 {
        self.0.failures()
    }
}
