//! What both ends of a link demand of a certificate: the chain, and a name in our own cluster.
//!
//! Chains are verified by rustls. What is added is the name, within the handshake: a certificate of
//! the same CA for another cluster is refused like one of another CA.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, VerifierBuilderError};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
    RootCertStore, SignatureScheme,
};

use crate::certificate::name_of;

/// The methods that both verifier traits of rustls share by name and signature: TLS 1.3 only, with the
/// algorithms of the field `algorithms`.
macro_rules! tls13_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _certificate: &CertificateDer<'_>,
            _signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(PeerIncompatible::Tls12NotOffered.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, certificate, signature, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }
    };
}

/// Refuses a certificate that names no replica of this cluster.
fn of_cluster(certificate: &CertificateDer<'_>, cluster: u128) -> Result<(), Error> {
    let refuse = |why: String| Error::General(why);
    let name = name_of(certificate).map_err(refuse)?;
    if name.cluster == cluster {
        return Ok(());
    }
    Err(refuse(format!("{name} belongs to another cluster than {cluster:032x}")))
}

/// Verifies whom we dialled. Names of hosts do not count, so rustls' own verifier does not fit.
#[derive(Debug)]
pub(crate) struct DialledReplica {
    pub(crate) cluster: u128,
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

impl DialledReplica {
    /// Whether a peer would believe this chain now.
    pub(crate) fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        of_cluster(certificate, self.cluster)
    }
}

impl ServerCertVerifier for DialledReplica {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(certificate, intermediates, now)?;
        Ok(ServerCertVerified::assertion())
    }

    tls13_signatures!();
}

/// Verifies who dialled us.
#[derive(Debug)]
pub(crate) struct DiallingReplica {
    cluster: u128,
    chain: Arc<dyn ClientCertVerifier>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl DiallingReplica {
    pub(crate) fn new(
        cluster: u128,
        roots: Arc<RootCertStore>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let algorithms = provider.signature_verification_algorithms;
        let chain = WebPkiClientVerifier::builder_with_provider(roots, provider).build()?;
        Ok(Self { cluster, chain, algorithms })
    }
}

impl ClientCertVerifier for DiallingReplica {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.chain.verify_client_cert(certificate, intermediates, now)?;
        of_cluster(certificate, self.cluster)?;
        Ok(verified)
    }

    tls13_signatures!();
}

/// Why a certificate is refused, in words for people.
pub(crate) fn told(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "it has expired".to_owned(),
        Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "it is not valid yet".to_owned(),
        // All CAs that are made here have one name; a stranger's is told by its signature.
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => "no CA that is believed here has issued it".to_owned(),
        Error::General(why) => why.clone(),
        other => other.to_string(),
    }
}
