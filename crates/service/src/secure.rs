//! What peer links travel on: mutual TLS, or plaintext where only this machine can listen in.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use regent_replica::Members;
use regent_replica::disk::Identity;
use regent_replica::peers::{Plaintext, Transport, beyond_loopback};
use tokio::sync::Notify;

use crate::error::ReplicaError;
use crate::replica::ReplicaSettings;

/// The files by which a replica and its peers prove to each other who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificates {
    /// The replica's certificate.
    pub certificate: PathBuf,
    /// Its key, which only its user may read.
    pub key: PathBuf,
    /// The certificates of the CAs that are believed.
    pub ca: PathBuf,
    /// Lists of certificates that are not believed any more.
    pub crl: Option<PathBuf>,
}

/// What the links of a replica with these members travel on.
pub(crate) fn transport(
    settings: &ReplicaSettings,
    identity: Identity,
    listen: SocketAddr,
    members: &Members,
    reload: Arc<Notify>,
) -> Result<Arc<dyn Transport>, ReplicaError> {
    if let Some(files) = &settings.certificates {
        return encrypted(files, identity, reload);
    }
    match beyond_loopback(Some(&listen.to_string()), members) {
        None if settings.is_insecure => Ok(Arc::new(Plaintext::Anywhere)),
        None => Ok(Arc::new(Plaintext::Loopback)),
        Some(address) if settings.is_insecure => {
            tracing::warn!(
                %address,
                "INSECURE: peer links are not encrypted and peers prove nothing: any host that reaches the peer port can depose leaders, read secrets of sessions and rewrite terms; give every replica a certificate (regent tls)"
            );
            Ok(Arc::new(Plaintext::Anywhere))
        }
        Some(address) => Err(ReplicaError::PlaintextPeers { address }),
    }
}

#[cfg(not(feature = "tls"))]
fn encrypted(
    _files: &PeerCertificates,
    _identity: Identity,
    _reload: Arc<Notify>,
) -> Result<Arc<dyn Transport>, ReplicaError> {
    Err(ReplicaError::NoTls { setting: "peer_cert" })
}

#[cfg(feature = "tls")]
use tls::encrypted;

#[cfg(feature = "tls")]
mod tls {
    //! The transport over TLS.

    use std::io;

    use async_trait::async_trait;
    use regent_replica::ReplicaId;
    use regent_replica::peers::{Channel, PeerName};
    use regent_tls::{PeerFiles, PeerTls, Reload, ReplicaName, keep_fresh};
    use tokio::io::{AsyncRead, AsyncWrite};
    use tokio::net::TcpStream;

    use super::{Arc, Identity, Notify, PeerCertificates, ReplicaError, Transport};

    #[derive(Debug)]
    struct Tls(Arc<PeerTls>);

    pub(super) fn encrypted(
        files: &PeerCertificates,
        identity: Identity,
        reload: Arc<Notify>,
    ) -> Result<Arc<dyn Transport>, ReplicaError> {
        let PeerCertificates { certificate, key, ca, crl } = files.clone();
        let own = ReplicaName { cluster: identity.cluster, replica: identity.replica.get() };
        let tls = Arc::new(PeerTls::open(own, PeerFiles { certificate, key, ca, crl })?);
        keep_fresh(&tls, reload, "peer");
        Ok(Arc::new(Tls(tls)))
    }

    fn channel(
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        name: ReplicaName,
    ) -> io::Result<Channel> {
        let replica = ReplicaId::new(name.replica)
            .ok_or_else(|| io::Error::other("the certificate names replica 0"))?;
        let proven = Some(PeerName { cluster: name.cluster, replica });
        let (reader, writer) = tokio::io::split(stream);
        Ok(Channel { reader: Box::new(reader), writer: Box::new(writer), proven })
    }

    #[async_trait]
    impl Transport for Tls {
        async fn connect(&self, stream: TcpStream) -> io::Result<Channel> {
            let (stream, name) = self.0.connect(stream).await?;
            channel(stream, name)
        }

        async fn accept(&self, stream: TcpStream) -> io::Result<Channel> {
            let (stream, name) = self.0.accept(stream).await?;
            channel(stream, name)
        }

        fn expires_at_s(&self) -> Option<u64> {
            Some(self.0.expires_at_s())
        }

        fn reload_failures(&self) -> u64 {
            self.0.failures()
        }
    }
}
