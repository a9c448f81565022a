//! TLS to other people's servers: one place that reads the files, builds the configuration and shakes hands.
//!
//! Every engine speaks it through here, so that all of them trust, verify and prefer the same: TLS 1.2 or 1.3 with
//! rustls and aws-lc-rs, X25519MLKEM768 first, and the names of certificates in `subjectAltName` alone. What differs
//! between ecosystems is what things are called (`options`).
//!
//! Files are looked at again whenever a connection is made: a certificate that was renewed is used without a restart.
//! If what is there then cannot be used, the last good ones are, and the log says so.

#[cfg(any(feature = "consul", feature = "etcd"))]
pub(crate) mod dial;
pub(crate) mod options;
#[allow(dead_code, reason = "each engine uses what it needs")]
pub(crate) mod stream;
mod verify;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use regent_files::Trust;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};

use super::UrlError;
use super::limits::TLS_FILE_BYTES_MAX;
use crate::register::Encryption;
use options::{Ca, TlsOptions, Verify};
use stream::TlsIo;
use verify::Nameless;

/// Our end of the connections to one store.
pub(crate) struct ClientTls {
    options: TlsOptions,
    /// What is spoken inside, as ALPN names it; none to say nothing.
    protocol: Option<&'static str>,
    /// The CAs of this system, if those are trusted: read once.
    system: Option<Arc<RootCertStore>>,
    current: Mutex<Loaded>,
}

/// What the files held, and what was built of them.
struct Loaded {
    files: Files,
    config: Arc<ClientConfig>,
}

#[derive(PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) ca: Option<Vec<u8>>,
    /// Certificate and key.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("options", &self.options).finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Reads the files, or says which of them cannot be used.
    pub(crate) fn open(
        options: TlsOptions,
        protocol: Option<&'static str>,
    ) -> Result<Self, UrlError> {
        if let Some(name) = &options.server_name {
            server_name(name).map_err(UrlError::new)?;
        }
        let system = match (&options.ca, options.verify) {
            (Ca::System, Verify::Name | Verify::Chain) => Some(Arc::new(system_roots()?)),
            (Ca::System, Verify::Nothing) | (Ca::File(_), _) => None,
        };
        let files = read(&options).map_err(UrlError::new)?;
        let config = config(&options, system.as_ref(), &files, protocol).map_err(UrlError::new)?;
        let current = Mutex::new(Loaded { files, config: Arc::new(config) });
        Ok(Self { options, protocol, system, current })
    }

    /// The configuration for the next connection.
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = read(&self.options).and_then(|files| {
            if files == current.files {
                return Ok(None);
            }
            let config = config(&self.options, self.system.as_ref(), &files, self.protocol)?;
            Ok(Some(Loaded { files, config: Arc::new(config) }))
        });
        match changed {
            Ok(Some(loaded)) => *current = loaded,
            Ok(None) => {}
            Err(why) => tracing::warn!(
                why,
                "certificates for a store cannot be read again; the last good ones are used"
            ),
        }
        Arc::clone(&current.config)
    }

    /// Makes a connection to a host an encrypted one, if the host is who it must be.
    pub(crate) async fn shake_hands<S>(&self, host: &str, stream: S) -> io::Result<TlsIo<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = self.options.server_name.as_deref().unwrap_or(host);
        let name = server_name(name).map_err(io::Error::other)?;
        let connector = tokio_rustls::TlsConnector::from(self.config());
        let stream = connector.connect(name, stream).await.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "TLS: the server has closed the connection; does it speak TLS on this port?",
            ),
            _ => plainer(error),
        })?;
        Ok(TlsIo(stream))
    }
}

/// How connections are protected, if there is a way to.
pub(crate) fn encryption(tls: Option<&ClientTls>) -> Encryption {
    tls.map_or(Encryption::Plaintext, |tls| tls.options.verify.encryption())
}

/// A host as certificates name it; an address of version 6 has brackets in a URL and none there.
fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned())
        .map_err(|_| format!("{host:?} is no name that a certificate could have"))
}

/// Reads the files that are named.
pub(crate) fn read(options: &TlsOptions) -> Result<Files, String> {
    let read = |path: &Path, trust| {
        regent_files::read(path, TLS_FILE_BYTES_MAX, trust).map_err(|error| error.to_string())
    };
    let ca = match (&options.ca, options.verify) {
        // Whoever can change the CAs decides who is believed.
        (Ca::File(path), Verify::Name | Verify::Chain) => Some(read(path, Trust::Own)?),
        (Ca::File(_), Verify::Nothing) | (Ca::System, _) => None,
    };
    let identity = match &options.identity {
        Some(it) => Some((read(&it.certificate, Trust::Own)?, read(&it.key, Trust::Secret)?)),
        None => None,
    };
    Ok(Files { ca, identity })
}

/// The CAs that this system trusts, as far as they can be read; never none.
pub(crate) fn system_certificates() -> Result<Vec<CertificateDer<'static>>, UrlError> {
    let found = rustls_native_certs::load_native_certs();
    let is_readable = |certificate: &CertificateDer<'static>| {
        RootCertStore::empty().add(certificate.clone()).is_ok()
    };
    let certificates: Vec<_> = found.certs.into_iter().filter(is_readable).collect();
    if certificates.is_empty() {
        let reasons: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
        return Err(UrlError::new(format_args!(
            "this system trusts no CA {}; name a file of certificates in the URL",
            reasons.join(", ")
        )));
    }
    Ok(certificates)
}

/// The same, to verify by.
fn system_roots() -> Result<RootCertStore, UrlError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(system_certificates()?);
    Ok(roots)
}

/// All certificates of a file.
fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| format!("{} holds no PEM: {error}", path.display()))?;
    if found.is_empty() {
        return Err(format!("{} holds no certificate in PEM", path.display()));
    }
    Ok(found)
}

fn config(
    options: &TlsOptions,
    system: Option<&Arc<RootCertStore>>,
    files: &Files,
    protocol: Option<&'static str>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let mut roots = system.cloned().unwrap_or_else(|| Arc::new(RootCertStore::empty()));
    if let (Ca::File(path), Some(pem)) = (&options.ca, &files.ca) {
        let mut own = RootCertStore::empty();
        for certificate in certificates(path, pem)? {
            own.add(certificate).map_err(|error| {
                format!("{} holds what cannot be the certificate of a CA: {error}", path.display())
            })?;
        }
        roots = Arc::new(own);
    }
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match options.verify {
        Verify::Name => builder.with_root_certificates(roots),
        Verify::Chain => {
            let verifier = Arc::new(Nameless { roots: Some(roots), algorithms });
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
        Verify::Nothing => {
            let verifier = Arc::new(Nameless { roots: None, algorithms });
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
    };
    let mut config = match (&options.identity, &files.identity) {
        (Some(paths), Some((certificate, key))) => {
            let chain = certificates(&paths.certificate, certificate)?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|error| format!("{} holds no key in PEM: {error}", paths.key.display()))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| {
                let (certificate, key) = (paths.certificate.display(), paths.key.display());
                format!("{certificate} does not fit the key in {key}: {error}")
            })?
        }
        (None, _) | (_, None) => builder.with_no_client_auth(),
    };
    config.alpn_protocols = protocol.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(config)
}

/// The reason for people, where rustls gives one for programs.
pub(crate) fn plainer(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(inner) => io::Error::new(error.kind(), told(inner)),
        None => error,
    }
}

/// What went wrong with TLS below an error of a driver that shakes hands by itself; none if it is about something else.
pub(crate) fn told_below(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut below = Some(error);
    while let Some(error) = below {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let ours = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(error) = ours.or_else(|| error.downcast_ref()) {
            return Some(told(error));
        }
        below = error.source();
    }
    None
}

/// What went wrong, and where to look.
fn told(error: &rustls::Error) -> String {
    use rustls::{CertificateError, Error, InvalidMessage};
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "TLS: the server's certificate is from a CA that is not trusted; name the right CA"
                .to_owned()
        }
        Error::InvalidCertificate(why) => {
            format!("TLS: the server's certificate is refused: {why}")
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "TLS: the server asks for a client certificate; name one with its key".to_owned()
        }
        Error::AlertReceived(
            alert @ (AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::AccessDenied
            | AlertDescription::HandshakeFailure),
        ) => format!(
            "TLS: the server refuses us ({alert:?}); is a client certificate of its CA named?"
        ),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "TLS: the server does not speak TLS on this port".to_owned()
        }
        error => format!("TLS: {error}"),
    }
}

#[cfg(test)]
mod tests;
