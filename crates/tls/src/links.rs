//! Links: both ends of a handshake, with certificates that can be changed while it runs.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use rustls::{ClientConfig, CommonState, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::certificate::{Certificate, name_of, private_key};
use crate::error::TlsError;
use crate::files::{PeerFiles, Secrecy};
use crate::kept::{Kept, Reload, Reloaded, Source};
use crate::name::ReplicaName;
use crate::told::{handshake, told};
use crate::verify::{Chain, DialledReplica, DiallingReplica};

/// A replica's end of its links. New links use the certificates that were last read and found good;
/// links that are there keep theirs.
#[derive(Debug)]
pub struct PeerTls(Kept<Peer>);

#[derive(Debug)]
struct Peer {
    own: ReplicaName,
    files: PeerFiles,
}

#[derive(Debug)]
struct Loaded {
    expires_at_s: u64,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl PeerTls {
    /// The end of this replica, with the certificates in these files.
    ///
    /// # Errors
    /// If a file cannot be used, the certificate names another replica, or peers would refuse it.
    pub fn open(own: ReplicaName, files: PeerFiles) -> Result<Self, TlsError> {
        Ok(Self(Kept::open(Peer { own, files })?))
    }

    /// Looks whether a replica could open its links with these bytes, of its certificate, its key, the CAs and, if there
    /// are any, the revocation lists, once they are in these files. Nothing is read or written.
    ///
    /// # Errors
    /// As [`PeerTls::open`].
    pub fn check(own: ReplicaName, files: PeerFiles, bytes: &[Vec<u8>]) -> Result<(), TlsError> {
        Peer { own, files }.load(bytes).map(|_| ())
    }

    /// Makes a connection that we opened a link, and says which replica is at its other end.
    ///
    /// # Errors
    /// If the other end is no replica of this cluster.
    pub async fn connect<S>(&self, stream: S) -> io::Result<(TlsStream<S>, ReplicaName)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let connector = TlsConnector::from(Arc::clone(&self.0.current().client));
        // Certificates name replicas, and the verifier looks at no host; rustls wants one all the same.
        let host = ServerName::try_from("replica.invalid").map_err(io::Error::other)?;
        let stream = connector.connect(host, stream).await.map_err(handshake)?;
        let name = peer(stream.get_ref().1)?;
        Ok((TlsStream::Client(stream), name))
    }

    /// Makes a connection that was opened to us a link, and says which replica is at its other end.
    ///
    /// # Errors
    /// If the other end is no replica of this cluster.
    pub async fn accept<S>(&self, stream: S) -> io::Result<(TlsStream<S>, ReplicaName)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.0.current().server));
        let stream = acceptor.accept(stream).await.map_err(handshake)?;
        let name = peer(stream.get_ref().1)?;
        Ok((TlsStream::Server(stream), name))
    }
}

impl Reload for PeerTls {
    fn reload(&self) -> Result<Reloaded, TlsError> {
        Ok(match self.0.reload()? {
            Some(loaded) => Reloaded::Changed { expires_at_s: loaded.expires_at_s },
            None => Reloaded::Same,
        })
    }

    fn expires_at_s(&self) -> u64 {
        self.0.current().expires_at_s
    }

    fn failures(&self) -> u64 {
        self.0.failures()
    }
}

/// Whom the verified certificate of the other end names.
fn peer(connection: &CommonState) -> io::Result<ReplicaName> {
    let shown = connection.peer_certificates().and_then(<[_]>::first);
    let shown = shown.ok_or_else(|| io::Error::other("the peer has shown no certificate"))?;
    name_of(shown).map_err(io::Error::other)
}

impl Source for Peer {
    type Loaded = Loaded;

    fn files(&self) -> Vec<(&Path, Secrecy)> {
        let PeerFiles { certificate, key, ca, crl } = &self.files;
        let crl = crl.iter().map(|crl| (crl.as_path(), Secrecy::Public));
        let all = [
            (certificate.as_path(), Secrecy::Public),
            (key, Secrecy::Secret),
            (ca, Secrecy::Public),
        ];
        all.into_iter().chain(crl).collect()
    }

    fn load(&self, bytes: &[Vec<u8>]) -> Result<Loaded, TlsError> {
        let (own, files) = (self.own, &self.files);
        let certificate = Certificate::read(&files.certificate, &bytes[0])?;
        if certificate.name != own {
            let path = files.certificate.clone();
            return Err(TlsError::OtherName { path, found: certificate.name, expected: own });
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let crl = files.crl.as_deref().zip(bytes.get(3).map(Vec::as_slice));
        let algorithms = provider.signature_verification_algorithms;
        let chain = Arc::new(Chain::read((&files.ca, &bytes[2]), crl, algorithms)?);
        let dialled = DialledReplica { cluster: own.cluster, chain: Arc::clone(&chain) };
        let refused = |error: rustls::Error| TlsError::Refused {
            path: files.certificate.clone(),
            by: "peers",
            why: told(&error),
        };
        let (leaf, more) = certificate.chain.split_first().expect("a chain is never empty");
        dialled.verify(leaf, more, UnixTime::now()).map_err(refused)?;
        let key = || private_key(&files.key, &bytes[1]);
        let mismatch = |error: rustls::Error| TlsError::Mismatch {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            why: error.to_string(),
        };
        let cryptography = |error: rustls::Error| TlsError::Cryptography(error.to_string());
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(cryptography)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(dialled))
            .with_client_auth_cert(certificate.chain.clone(), key()?)
            .map_err(mismatch)?;
        // A resumed link would prove nothing anew: neither that a certificate is still good nor that
        // its CA is still believed.
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(cryptography)?
            .with_client_cert_verifier(Arc::new(DiallingReplica::new(own.cluster, chain)))
            .with_single_cert(certificate.chain, key()?)
            .map_err(mismatch)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let expires_at_s = certificate.expires_at_s;
        Ok(Loaded { expires_at_s, client: Arc::new(client), server: Arc::new(server) })
    }
}
