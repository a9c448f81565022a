//! Links: both ends of a handshake, with certificates that can be changed while it runs.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use rustls::{ClientConfig, CommonState, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::certificate::{Certificate, certificates, name_of};
use crate::error::TlsError;
use crate::files::{PeerFiles, Secrecy, read};
use crate::name::ReplicaName;
use crate::verify::{DialledReplica, DiallingReplica, told};

/// What a look at the files found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// The same as before.
    Same,
    /// Others, which new links use from now on.
    Changed {
        /// When the certificate ends, in seconds since 1970.
        expires_at_s: u64,
    },
}

/// A replica's end of its links. New links use the certificates that were last read and found good;
/// links that are there keep theirs.
#[derive(Debug)]
pub struct PeerTls {
    own: ReplicaName,
    files: PeerFiles,
    current: RwLock<Arc<Loaded>>,
    /// The files in use. What was refused is not remembered: a certificate that is not valid yet will be.
    in_use: Mutex<Bytes>,
}

#[derive(Clone, PartialEq, Eq)]
struct Bytes {
    certificate: Vec<u8>,
    key: Vec<u8>,
    ca: Vec<u8>,
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the key.
        f.debug_struct("Bytes").finish_non_exhaustive()
    }
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
        let bytes = files.read()?;
        let loaded = Loaded::new(own, &files, &bytes)?;
        Ok(Self { own, files, current: RwLock::new(Arc::new(loaded)), in_use: Mutex::new(bytes) })
    }

    /// Looks at the files again. If they changed and are good, new links use them; if they are not,
    /// everything stays as it is.
    ///
    /// # Errors
    /// If what is there now cannot be used.
    pub fn reload(&self) -> Result<Reloaded, TlsError> {
        let bytes = self.files.read()?;
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        if *in_use == bytes {
            return Ok(Reloaded::Same);
        }
        let loaded = Loaded::new(self.own, &self.files, &bytes)?;
        *in_use = bytes;
        let expires_at_s = loaded.expires_at_s;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
        Ok(Reloaded::Changed { expires_at_s })
    }

    /// When the certificate in use ends, in seconds since 1970.
    #[must_use]
    pub fn expires_at_s(&self) -> u64 {
        self.current().expires_at_s
    }

    fn current(&self) -> Arc<Loaded> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes a connection that we opened a link, and says which replica is at its other end.
    ///
    /// # Errors
    /// If the other end is no replica of this cluster.
    pub async fn connect<S>(&self, stream: S) -> io::Result<(TlsStream<S>, ReplicaName)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let connector = TlsConnector::from(Arc::clone(&self.current().client));
        // Certificates name replicas, and the verifier looks at no host; rustls wants one all the same.
        let host = ServerName::try_from("replica.invalid").map_err(io::Error::other)?;
        let stream = connector.connect(host, stream).await.map_err(plainer)?;
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
        let acceptor = TlsAcceptor::from(Arc::clone(&self.current().server));
        let stream = acceptor.accept(stream).await.map_err(plainer)?;
        let name = peer(stream.get_ref().1)?;
        Ok((TlsStream::Server(stream), name))
    }
}

/// Whom the verified certificate of the other end names.
fn peer(connection: &CommonState) -> io::Result<ReplicaName> {
    let shown = connection.peer_certificates().and_then(<[_]>::first);
    let shown = shown.ok_or_else(|| io::Error::other("the peer has shown no certificate"))?;
    name_of(shown).map_err(io::Error::other)
}

/// The reason for people, where rustls gives one for programs.
fn plainer(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(inner) => {
            io::Error::new(error.kind(), format!("the TLS handshake failed: {}", told(inner)))
        }
        None => error,
    }
}

impl PeerFiles {
    fn read(&self) -> Result<Bytes, TlsError> {
        Ok(Bytes {
            certificate: read(&self.certificate, Secrecy::Public)?,
            key: read(&self.key, Secrecy::Secret)?,
            ca: read(&self.ca, Secrecy::Public)?,
        })
    }
}

impl Loaded {
    /// Everything that new links need, or the first reason why they cannot have it.
    fn new(own: ReplicaName, files: &PeerFiles, bytes: &Bytes) -> Result<Self, TlsError> {
        let certificate = Certificate::read(&files.certificate, &bytes.certificate)?;
        if certificate.name != own {
            let path = files.certificate.clone();
            return Err(TlsError::OtherName { path, found: certificate.name, expected: own });
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let roots = Arc::new(roots(files, bytes)?);
        let dialled = DialledReplica {
            cluster: own.cluster,
            roots: Arc::clone(&roots),
            algorithms: provider.signature_verification_algorithms,
        };
        let refused = |error: rustls::Error| TlsError::Refused {
            path: files.certificate.clone(),
            why: told(&error),
        };
        let (leaf, more) = certificate.chain.split_first().expect("a chain is never empty");
        dialled.verify(leaf, more, UnixTime::now()).map_err(refused)?;
        let key = || {
            PrivateKeyDer::from_pem_slice(&bytes.key).map_err(|error| TlsError::Malformed {
                path: files.key.clone(),
                why: format!("no key in PEM: {error}"),
            })
        };
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
        let mut server = server(own, roots, provider)
            .map_err(TlsError::Cryptography)?
            .with_single_cert(certificate.chain, key()?)
            .map_err(mismatch)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let expires_at_s = certificate.expires_at_s;
        Ok(Self { expires_at_s, client: Arc::new(client), server: Arc::new(server) })
    }
}

/// A server that asks every client for its certificate.
fn server(
    own: ReplicaName,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ServerConfig, rustls::server::WantsServerCert>, String> {
    let dialling = DiallingReplica::new(own.cluster, roots, Arc::clone(&provider))
        .map_err(|error| error.to_string())?;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| error.to_string())?;
    Ok(builder.with_client_cert_verifier(Arc::new(dialling)))
}

fn roots(files: &PeerFiles, bytes: &Bytes) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&files.ca, &bytes.ca)? {
        roots.add(certificate).map_err(|error| TlsError::Malformed {
            path: files.ca.clone(),
            why: format!("a certificate that cannot be a CA's: {error}"),
        })?;
    }
    Ok(roots)
}
