//! A client's end of its connections to servers.
//!
//! Files are looked at with every handshake, so a program that runs for months uses a renewed certificate, or another
//! CA, from its next connection on. What cannot be used leaves the old ones in use, with one warning.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::certificate::{chain, private_key};
use crate::error::TlsError;
use crate::files::{ClientFiles, Secrecy};
use crate::kept::{Kept, Source};
use crate::told::told;
use crate::verify::roots;

/// How a client with these files speaks TLS. Without a file of CAs it believes those given, which are the system's.
///
/// # Errors
/// If a file cannot be used, the certificate is over, or it does not fit its key.
pub fn client_config(
    files: ClientFiles,
    system: Option<RootCertStore>,
) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let system = Arc::new(system.unwrap_or_else(RootCertStore::empty));
    let kept = Kept::open(Client { files, system, provider: Arc::clone(&provider) })?;
    let end = Arc::new(End { kept, warned_of: Mutex::new(None) });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Cryptography(error.to_string()))?
        .dangerous()
        // Judges as rustls itself does, with CAs that can be changed.
        .with_custom_certificate_verifier(Arc::clone(&end) as _)
        .with_client_cert_resolver(end);
    // A resumed connection would not look at the server's certificate again.
    config.resumption = Resumption::disabled();
    Ok(config)
}

#[derive(Debug)]
struct Client {
    files: ClientFiles,
    system: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
struct Loaded {
    servers: Arc<WebPkiServerVerifier>,
    own: Option<Arc<CertifiedKey>>,
}

#[derive(Debug)]
struct End {
    kept: Kept<Client>,
    /// What was last warned of.
    warned_of: Mutex<Option<String>>,
}

impl End {
    /// What the files hold now, or what they held last if that cannot be used.
    fn fresh(&self) -> Arc<Loaded> {
        let why = self.kept.reload().err().map(|error| error.to_string());
        let mut warned_of = self.warned_of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = &why
            && warned_of.as_ref() != Some(why)
        {
            tracing::warn!(%why, "the files of TLS were not read again; the old ones stay in use");
        }
        *warned_of = why;
        self.kept.current()
    }
}

impl Source for Client {
    type Loaded = Loaded;

    fn files(&self) -> Vec<(&Path, Secrecy)> {
        let ClientFiles { ca, certificate } = &self.files;
        let mut all: Vec<(&Path, Secrecy)> = Vec::new();
        if let Some((certificate, key)) = certificate {
            all.extend([(certificate.as_path(), Secrecy::Public), (key, Secrecy::Secret)]);
        }
        all.extend(ca.iter().map(|ca| (ca.as_path(), Secrecy::Public)));
        all
    }

    fn load(&self, bytes: &[Vec<u8>]) -> Result<Loaded, TlsError> {
        let mut bytes = bytes.iter();
        let mut next = || bytes.next().map(Vec::as_slice).unwrap_or_default();
        let own = match &self.files.certificate {
            None => None,
            Some((path, key_path)) => {
                let (facts, chain) = chain(path, next())?;
                if facts.expires_at_s <= UnixTime::now().as_secs() {
                    let why = "it has expired".to_owned();
                    return Err(TlsError::Refused { path: path.clone(), by: "servers", why });
                }
                let key = private_key(key_path, next())?;
                let own = CertifiedKey::from_der(chain, key, &self.provider);
                Some(Arc::new(own.map_err(|error| TlsError::Mismatch {
                    certificate: path.clone(),
                    key: key_path.clone(),
                    why: told(&error),
                })?))
            }
        };
        let believed = match &self.files.ca {
            Some(path) => Arc::new(roots(path, next())?),
            None => Arc::clone(&self.system),
        };
        let servers = WebPkiServerVerifier::builder_with_provider(believed, self.provider.clone())
            .build()
            .map_err(|error| TlsError::Cryptography(error.to_string()))?;
        Ok(Loaded { servers, own })
    }
}

impl ServerCertVerifier for End {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.fresh().servers.verify_server_cert(certificate, intermediates, host, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.kept.current().servers.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.kept.current().servers.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.kept.current().servers.supported_verify_schemes()
    }
}

impl ResolvesClientCert for End {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        // The server's certificate was verified a moment ago, and the files were looked at then.
        let own = self.kept.current().own.clone()?;
        own.key.choose_scheme(schemes).is_some().then_some(own)
    }

    fn has_certs(&self) -> bool {
        self.kept.current().own.is_some()
    }
}
