//! The port of clients: TLS 1.2 and 1.3, with or without client certificates.
//!
//! No session is resumed: a resumed one would bring back a client whose certificate was revoked since, and clients
//! keep their connections anyway. A connection outlives no certificate: whoever serves it asks [`ClientIdentity`] with
//! every request whether the certificate is still good, by the files that are in use then.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use regent_election::access::{CredentialFlaw, Principal, Voucher};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certificate::{chain, private_key};
use crate::error::TlsError;
use crate::facts::Facts;
use crate::files::{Secrecy, ServerFiles};
use crate::kept::{Kept, Reload, Reloaded, Source};
use crate::limits::{LINGER_BYTES_MAX, LINGER_FOR};
use crate::principal::{ClientNames, principal};
use crate::told::{handshake, told};
use crate::verify::{Chain, KnownClient};

/// A server's end of its connections.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<Kept<Port>>);

#[derive(Debug)]
struct Port {
    files: ServerFiles,
    names: ClientNames,
    protocols: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Loaded {
    expires_at_s: u64,
    config: Arc<ServerConfig>,
    clients: Option<Arc<KnownClient>>,
}

/// Who a client is, by the certificate that it has shown.
#[derive(Debug)]
pub struct ClientIdentity {
    who: Principal,
    expires_at_s: u64,
    /// When the first of those shown ends: from then on the chain is judged again.
    chain_expires_at_s: u64,
    shown: Vec<CertificateDer<'static>>,
    port: Arc<Kept<Port>>,
    judged: Mutex<Judged>,
}

/// By which files a client was judged last, when, and how.
#[derive(Debug)]
struct Judged {
    generation: u64,
    at_s: u64,
    flaw: Option<CredentialFlaw>,
}

impl ServerTls {
    /// The port with the certificates in these files, which speaks the protocols named, the best first.
    ///
    /// # Errors
    /// If a file cannot be used, or every client would refuse the certificate.
    pub fn open(
        files: ServerFiles,
        names: ClientNames,
        protocols: &[&str],
    ) -> Result<Self, TlsError> {
        let protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Self(Arc::new(Kept::open(Port { files, names, protocols })?)))
    }

    /// The handshake with a client, and who that is, if it has shown a certificate.
    ///
    /// # Errors
    /// If there is none, or the certificate is refused.
    pub async fn accept<S>(&self, stream: S) -> io::Result<(TlsStream<S>, Option<ClientIdentity>)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (generation, loaded) = self.0.generation();
        let acceptor = TlsAcceptor::from(Arc::clone(&loaded.config));
        let stream = match acceptor.accept(stream).into_fallible().await {
            Ok(stream) => stream,
            Err((error, stream)) => {
                linger(stream).await;
                return Err(handshake(error));
            }
        };
        let Some(shown) = stream.get_ref().1.peer_certificates() else { return Ok((stream, None)) };
        let shown: Vec<_> = shown.iter().map(|one| one.clone().into_owned()).collect();
        let first = shown.first().ok_or_else(|| io::Error::other("an empty chain"))?;
        let facts = Facts::of(first).map_err(io::Error::other)?;
        // The handshake has verified this very name.
        let who = principal(&facts, self.0.source().names).map_err(io::Error::other)?;
        let ends = shown.iter().map(|one| Facts::of(one).map_or(0, |facts| facts.expires_at_s));
        let at_s = UnixTime::now().as_secs();
        let identity = ClientIdentity {
            who,
            expires_at_s: facts.expires_at_s,
            chain_expires_at_s: ends.min().unwrap_or_default(),
            shown,
            port: Arc::clone(&self.0),
            judged: Mutex::new(Judged { generation, at_s, flaw: None }),
        };
        Ok((stream, Some(identity)))
    }
}

impl Voucher for ClientIdentity {
    fn who(&self) -> &Principal {
        &self.who
    }

    fn flaw(&self) -> Option<CredentialFlaw> {
        let now = UnixTime::now();
        if self.expires_at_s <= now.as_secs() {
            return Some(CredentialFlaw::Expired);
        }
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        // An issuer's certificate may end before the client's own, and not every one shown is needed.
        let is_late = self.chain_expires_at_s <= now.as_secs() && judged.at_s != now.as_secs();
        // A judgement ends with the files it was made by: other ones may hold a list on which the certificate stands.
        if judged.generation != self.port.number() || is_late {
            let (generation, loaded) = self.port.generation();
            let (first, more) = self.shown.split_first()?;
            let is_good =
                loaded.clients.as_ref().is_some_and(|it| it.verify(first, more, now).is_ok());
            let flaw = (!is_good).then_some(CredentialFlaw::Revoked);
            *judged = Judged { generation, at_s: now.as_secs(), flaw };
        }
        judged.flaw
    }
}

impl Reload for ServerTls {
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

impl Source for Port {
    type Loaded = Loaded;

    fn files(&self) -> Vec<(&Path, Secrecy)> {
        let ServerFiles { certificate, key, clients } = &self.files;
        let mut all = vec![(certificate.as_path(), Secrecy::Public), (key, Secrecy::Secret)];
        if let Some(clients) = clients {
            all.push((&clients.ca, Secrecy::Public));
            all.extend(clients.crl.iter().map(|crl| (crl.as_path(), Secrecy::Public)));
        }
        all
    }

    fn load(&self, bytes: &[Vec<u8>]) -> Result<Loaded, TlsError> {
        let files = &self.files;
        let (facts, chain) = chain(&files.certificate, &bytes[0])?;
        check(files, &facts)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let clients = match &files.clients {
            None => None,
            Some(of) => {
                let crl = of.crl.as_deref().zip(bytes.get(3).map(Vec::as_slice));
                let believed = Arc::new(Chain::read((&of.ca, &bytes[2]), crl, algorithms)?);
                Some(Arc::new(KnownClient::new(believed, self.names, of.is_required)))
            }
        };
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| TlsError::Cryptography(error.to_string()))?;
        let builder = match &clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let verifier: Arc<dyn ClientCertVerifier> = Arc::clone(clients) as _;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = private_key(&files.key, &bytes[1])?;
        let mut config =
            builder.with_single_cert(chain, key).map_err(|error| TlsError::Mismatch {
                certificate: files.certificate.clone(),
                key: files.key.clone(),
                why: told(&error),
            })?;
        config.alpn_protocols.clone_from(&self.protocols);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        // Without it, a connection of TLS 1.2 can be passed off as another one.
        config.require_ems = true;
        let expires_at_s = facts.expires_at_s;
        Ok(Loaded { expires_at_s, config: Arc::new(config), clients })
    }
}

/// Listens a little longer after a handshake that failed: closing with unread bytes, such as the client's first
/// request, makes the kernel take back the alert that says why.
async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let swallow = async {
        let _ = stream.shutdown().await;
        let _ = tokio::io::copy(&mut stream.take(LINGER_BYTES_MAX), &mut tokio::io::sink()).await;
    };
    let _ = timeout(LINGER_FOR, swallow).await;
}

/// Refuses a certificate that every client would refuse.
fn check(files: &ServerFiles, facts: &Facts) -> Result<(), TlsError> {
    let why = if facts.hosts.is_empty() && facts.addresses.is_empty() {
        "it names no host (a DNS name or an address)"
    } else if facts.expires_at_s <= UnixTime::now().as_secs() {
        "it has expired"
    } else {
        return Ok(());
    };
    let path = files.certificate.clone();
    Err(TlsError::Refused { path, by: "clients", why: why.to_owned() })
}
