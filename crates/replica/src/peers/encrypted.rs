//! Links by mutual TLS: both ends prove by a certificate which replica of which cluster they are.
//!
//! Here and not in `tls`, so that a server and an application with a replica inside have the same links; a build without
//! the feature `tls` has no cryptography.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use regent_tls::{PeerFiles, PeerTls, Reload, ReplicaName, TlsError, keep_fresh};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::transport::{Channel, Transport};
use crate::disk::Identity;

/// Links with the certificates of a replica.
#[derive(Debug)]
pub struct Encrypted(Arc<PeerTls>);

impl Encrypted {
    /// Links with the certificates in these files, which are read again while the replica runs, and at once when
    /// `reload` is told. Needs a runtime.
    ///
    /// # Errors
    /// If a file cannot be used, or the certificate is not of this replica.
    pub fn open(
        files: PeerFiles,
        identity: Identity,
        reload: Arc<Notify>,
    ) -> Result<Self, TlsError> {
        let own = ReplicaName { cluster: identity.cluster, replica: identity.replica.get() };
        let tls = Arc::new(PeerTls::open(own, files)?);
        keep_fresh(&tls, reload, "peer");
        Ok(Self(tls))
    }
}

#[async_trait]
impl Transport for Encrypted {
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
