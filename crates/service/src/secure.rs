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
    Err(ReplicaError::NoTls)
}

#[cfg(feature = "tls")]
use tls::encrypted;

#[cfg(feature = "tls")]
mod tls {
    //! The transport over TLS, and the task that looks after its files.

    use std::io;
    use std::sync::Weak;
    use std::time::Duration;

    use async_trait::async_trait;
    use regent_election::Moment;
    use regent_replica::ReplicaId;
    use regent_replica::peers::{Channel, PeerName};
    use regent_tls::{PeerFiles, PeerTls, Reloaded, ReplicaName};
    use tokio::io::{AsyncRead, AsyncWrite};
    use tokio::net::TcpStream;
    use tokio::time::timeout;

    use super::{Arc, Identity, Notify, PeerCertificates, ReplicaError, Transport};
    use crate::wall::wall_s;

    /// How often the files are looked at.
    const LOOK_EVERY: Duration = Duration::from_secs(10);
    const DAY_S: u64 = 24 * 3600;
    /// From how many days before its end on a certificate is warned about.
    const WARN_DAYS: u64 = 30;
    /// From how many days before its end on that is done every day, though nothing changes.
    const URGENT_DAYS: u64 = 14;
    const URGE_EVERY: Duration = Duration::from_secs(DAY_S);

    #[derive(Debug)]
    struct Tls(PeerTls);

    pub(super) fn encrypted(
        files: &PeerCertificates,
        identity: Identity,
        reload: Arc<Notify>,
    ) -> Result<Arc<dyn Transport>, ReplicaError> {
        let PeerCertificates { certificate, key, ca } = files.clone();
        let own = ReplicaName { cluster: identity.cluster, replica: identity.replica.get() };
        let tls = PeerTls::open(own, PeerFiles { certificate, key, ca })?;
        tell_expiry(tls.expires_at_s(), "peer links use mutual TLS");
        let tls = Arc::new(Tls(tls));
        tokio::spawn(look_after(Arc::downgrade(&tls), reload));
        Ok(tls)
    }

    /// Looks at the files now and then, and when told to, for as long as somebody uses them. What is
    /// wrong with them is told once.
    async fn look_after(tls: Weak<Tls>, reload: Arc<Notify>) {
        let mut told = None;
        // The start has told of it.
        let mut urged_at = Some(regent_clock::now());
        loop {
            let _ = timeout(LOOK_EVERY, reload.notified()).await;
            let Some(tls) = tls.upgrade() else { return };
            let (now, left_s) =
                (regent_clock::now(), tls.0.expires_at_s().saturating_sub(wall_s()));
            if is_to_be_told(urged_at, now, left_s) {
                urged_at = Some(now);
                tracing::warn!(
                    expires_in_days = left_s / DAY_S,
                    "the certificate of peer links ends soon, and peers will refuse this replica then; renew it (regent tls renew)"
                );
            }
            let reloaded = tokio::task::spawn_blocking(move || tls.0.reload()).await;
            match reloaded {
                Ok(Ok(Reloaded::Same)) => {}
                Ok(Ok(Reloaded::Changed { expires_at_s })) => {
                    told = None;
                    tell_expiry(expires_at_s, "peer certificates were reloaded");
                }
                Ok(Err(error)) => {
                    let why = error.to_string();
                    if told.as_ref() != Some(&why) {
                        tracing::warn!(%why, "peer certificates were not reloaded; the old ones stay in use");
                        told = Some(why);
                    }
                }
                Err(error) => tracing::error!(%error, "peer certificates cannot be looked at"),
            }
        }
    }

    /// Whether the log is to be told again of a certificate that has so many seconds left.
    fn is_to_be_told(told_at: Option<Moment>, now: Moment, left_s: u64) -> bool {
        let is_early = told_at.is_some_and(|at| now.since(at) < URGE_EVERY);
        left_s < URGENT_DAYS * DAY_S && !is_early
    }

    fn tell_expiry(expires_at_s: u64, what: &str) {
        let days = expires_at_s.saturating_sub(wall_s()) / DAY_S;
        if days < WARN_DAYS {
            tracing::warn!(
                expires_in_days = days,
                "{what}; renew the certificate soon (regent tls renew)"
            );
        } else {
            tracing::info!(expires_in_days = days, "{what}");
        }
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
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_certificate_that_ends_soon_is_warned_of_once_a_day() {
            let at = |hours: u64| Moment::ZERO + Duration::from_secs(3600 * hours);
            let soon = URGENT_DAYS * DAY_S - 1;
            assert!(is_to_be_told(None, at(0), soon) && is_to_be_told(None, at(0), 0));
            assert!(!is_to_be_told(None, at(0), URGENT_DAYS * DAY_S));
            assert!(!is_to_be_told(Some(at(0)), at(23), soon));
            assert!(is_to_be_told(Some(at(0)), at(24), soon));
        }
    }
}
