//! What peer links travel on: mutual TLS, or plaintext where only this machine can listen in; or, while a running cluster
//! changes from plaintext to TLS replica by replica, either.

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
    /// Whether links without TLS are taken, too: only while a cluster changes from plaintext to TLS.
    pub accepts_plaintext: bool,
}

/// What the links of a replica with these members travel on.
pub(crate) fn transport(
    settings: &ReplicaSettings,
    identity: Identity,
    listen: SocketAddr,
    members: &Members,
    reload: Arc<Notify>,
) -> Result<Arc<dyn Transport>, ReplicaError> {
    match &settings.certificates {
        None => Ok(Arc::new(plaintext(settings, listen, members)?)),
        Some(files) if !files.accepts_plaintext => encrypted(files, identity, reload, None),
        Some(files) => {
            let plain = plaintext(settings, listen, members)?;
            tracing::warn!(
                "peer_tls is \"accept\": peer links without TLS are still taken, and whoever reaches the peer port can use one; set it to \"required\" as soon as every replica has a certificate"
            );
            encrypted(files, identity, reload, Some(plain))
        }
    }
}

/// Where links may be plaintext.
fn plaintext(
    settings: &ReplicaSettings,
    listen: SocketAddr,
    members: &Members,
) -> Result<Plaintext, ReplicaError> {
    match beyond_loopback(Some(&listen.to_string()), members) {
        None if settings.is_insecure => Ok(Plaintext::Anywhere),
        None => Ok(Plaintext::Loopback),
        Some(address) if settings.is_insecure => {
            tracing::warn!(
                %address,
                "INSECURE: peer links are not encrypted and peers prove nothing: any host that reaches the peer port can depose leaders, read secrets of sessions and rewrite terms; give every replica a certificate (regent tls)"
            );
            Ok(Plaintext::Anywhere)
        }
        Some(address) => Err(ReplicaError::PlaintextPeers { address }),
    }
}

#[cfg(not(feature = "tls"))]
fn encrypted(
    _files: &PeerCertificates,
    _identity: Identity,
    _reload: Arc<Notify>,
    _plain: Option<Plaintext>,
) -> Result<Arc<dyn Transport>, ReplicaError> {
    Err(ReplicaError::NoTls { setting: "peer_cert" })
}

#[cfg(feature = "tls")]
use tls::encrypted;

#[cfg(feature = "tls")]
mod tls {
    //! TLS, or either.

    use std::collections::BTreeSet;
    use std::io;
    use std::net::SocketAddr;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use async_trait::async_trait;
    use regent_replica::peers::{Channel, Encrypted};
    use regent_tls::PeerFiles;
    use tokio::net::TcpStream;

    use super::{Arc, Identity, Notify, PeerCertificates, Plaintext, ReplicaError, Transport};

    /// What every connection of TLS begins with, and no greeting of a replica does: a record of a handshake.
    const TLS_BEGINS_WITH: u8 = 0x16;
    /// Most peers that are remembered to speak no TLS: more than a cluster has.
    const WITHOUT_MAX: usize = 64;

    pub(super) fn encrypted(
        files: &PeerCertificates,
        identity: Identity,
        reload: Arc<Notify>,
        plain: Option<Plaintext>,
    ) -> Result<Arc<dyn Transport>, ReplicaError> {
        let PeerCertificates { certificate, key, ca, crl, .. } = files.clone();
        let files = PeerFiles { certificate, key, ca, crl };
        let tls = Encrypted::open(files, identity, reload)?;
        Ok(match plain {
            None => Arc::new(tls),
            Some(plain) => Arc::new(Either { tls, plain, without: Mutex::default() }),
        })
    }

    /// TLS with whoever speaks it, plaintext with the rest. A peer is dialled by TLS first; one that ends the connection
    /// without a word of TLS is dialled without the next time, and by TLS again after that. Whoever answers by TLS and
    /// cannot prove who it is gets no second chance in plaintext.
    #[derive(Debug)]
    struct Either {
        tls: Encrypted,
        plain: Plaintext,
        /// Who ended the last connection without a word of TLS.
        without: Mutex<BTreeSet<SocketAddr>>,
    }

    impl Either {
        fn without(&self) -> MutexGuard<'_, BTreeSet<SocketAddr>> {
            self.without.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    #[async_trait]
    impl Transport for Either {
        async fn connect(&self, stream: TcpStream) -> io::Result<Channel> {
            let address = stream.peer_addr()?;
            if self.without().remove(&address) {
                tracing::info!(%address, "dialled without TLS, which this peer did not speak");
                return self.plain.connect(stream).await;
            }
            let connected = self.tls.connect(stream).await;
            let said_nothing = |error: &io::Error| {
                matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof
                        | io::ErrorKind::ConnectionReset
                        | io::ErrorKind::ConnectionAborted
                        | io::ErrorKind::BrokenPipe
                )
            };
            if connected.as_ref().err().is_some_and(said_nothing) {
                let mut without = self.without();
                if without.len() >= WITHOUT_MAX {
                    without.clear();
                }
                without.insert(address);
            }
            connected
        }

        async fn accept(&self, stream: TcpStream) -> io::Result<Channel> {
            let mut first = [0];
            match stream.peek(&mut first).await? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ if first[0] == TLS_BEGINS_WITH => self.tls.accept(stream).await,
                _ => self.plain.accept(stream).await,
            }
        }

        fn expires_at_s(&self) -> Option<u64> {
            self.tls.expires_at_s()
        }

        fn reload_failures(&self) -> u64 {
            self.tls.reload_failures()
        }
    }
}
