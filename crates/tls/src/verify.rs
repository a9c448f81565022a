//! What is demanded of a certificate: the chain, no revocation, and a name that counts.
//!
//! Chains are verified by webpki, the same way for replicas and for clients. What is added is the name, within the
//! handshake: a certificate of the same CA for another cluster is refused like one of another CA, and one for a
//! client opens no peer link, nor the other way round.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
    RootCertStore, SignatureScheme,
};
use webpki::{
    CertRevocationList, EndEntityCert, KeyUsage, RevocationCheckDepth, RevocationOptionsBuilder,
};

use crate::certificate::{certificates, name_of, revocation_lists};
use crate::error::TlsError;
use crate::facts::Facts;
use crate::principal::{ClientNames, principal};

/// What a certificate is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    Server,
    Client,
}

/// Whose certificates are believed, and which of them are not any more.
#[derive(Debug)]
pub(crate) struct Chain {
    roots: RootCertStore,
    /// None: nothing is known to be revoked. With some, every certificate must be covered by one of them: a list that
    /// is missing would let a revoked one in.
    revoked: Vec<CertRevocationList<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Chain {
    /// The CAs in one file, and the revocation lists in another.
    pub(crate) fn read(
        ca: (&Path, &[u8]),
        revoked: Option<(&Path, &[u8])>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Result<Self, TlsError> {
        let revoked = match revoked {
            Some((path, bytes)) => revocation_lists(path, bytes)?,
            None => Vec::new(),
        };
        Ok(Self { roots: roots(ca.0, ca.1)?, revoked, algorithms })
    }

    /// Whether this certificate is to be believed now. A revocation counts for the certificate itself; the CAs above
    /// it are the operator's own choice.
    pub(crate) fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        usage: Usage,
    ) -> Result<(), Error> {
        let parsed = EndEntityCert::try_from(certificate).map_err(refused)?;
        let usage = match usage {
            Usage::Server => KeyUsage::server_auth(),
            Usage::Client => KeyUsage::client_auth(),
        };
        let lists: Vec<&CertRevocationList<'_>> = self.revoked.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&lists)
            .ok()
            .map(|options| options.with_depth(RevocationCheckDepth::EndEntity).build());
        let (roots, algorithms) = (&self.roots.roots, self.algorithms.all);
        parsed
            .verify_for_usage(algorithms, roots, intermediates, now, usage, revocation, None)
            .map(|_| ())
            .map_err(refused)
    }

    fn subjects(&self) -> Vec<DistinguishedName> {
        self.roots.subjects()
    }
}

/// All CAs of a file.
pub(crate) fn roots(path: &Path, bytes: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, bytes)? {
        roots.add(certificate).map_err(|error| TlsError::Malformed {
            path: path.to_owned(),
            why: format!("a certificate that cannot be a CA's: {error}"),
        })?;
    }
    Ok(roots)
}

/// The same reason in the words of rustls, which chooses the alert by it.
fn refused(error: webpki::Error) -> Error {
    use webpki::Error as Why;
    let why = match error {
        Why::CertExpired { .. } => CertificateError::Expired,
        Why::CertNotValidYet { .. } => CertificateError::NotValidYet,
        // All CAs that are made here have one name; a stranger's is told by its signature.
        Why::UnknownIssuer | Why::InvalidSignatureForPublicKey => CertificateError::UnknownIssuer,
        Why::CertRevoked => CertificateError::Revoked,
        Why::UnknownRevocationStatus => CertificateError::UnknownRevocationStatus,
        Why::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        other => return Error::General(format!("it cannot be verified: {other}")),
    };
    why.into()
}

/// The methods that both verifier traits of rustls share by name and signature: TLS 1.3 only, with the
/// algorithms of the field `chain`.
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

        tls13_signatures!(shared);
    };
    (shared) => {
        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, certificate, signature, &self.chain.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.chain.algorithms.supported_schemes()
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
    pub(crate) chain: Arc<Chain>,
}

impl DialledReplica {
    /// Whether a peer would believe this chain now.
    pub(crate) fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        self.chain.verify(certificate, intermediates, now, Usage::Server)?;
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
    chain: Arc<Chain>,
    subjects: Vec<DistinguishedName>,
}

impl DiallingReplica {
    pub(crate) fn new(cluster: u128, chain: Arc<Chain>) -> Self {
        let subjects = chain.subjects();
        Self { cluster, chain, subjects }
    }
}

impl ClientCertVerifier for DiallingReplica {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.chain.verify(certificate, intermediates, now, Usage::Client)?;
        of_cluster(certificate, self.cluster)?;
        Ok(ClientCertVerified::assertion())
    }

    tls13_signatures!();
}

/// Verifies clients of a server: each is one principal.
#[derive(Debug)]
pub(crate) struct KnownClient {
    chain: Arc<Chain>,
    subjects: Vec<DistinguishedName>,
    names: ClientNames,
    is_required: bool,
}

impl KnownClient {
    pub(crate) fn new(chain: Arc<Chain>, names: ClientNames, is_required: bool) -> Self {
        let subjects = chain.subjects();
        Self { chain, subjects, names, is_required }
    }

    /// Whether this chain is to be believed now.
    pub(crate) fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        self.chain.verify(certificate, intermediates, now, Usage::Client)?;
        let facts = Facts::of(certificate).map_err(Error::General)?;
        principal(&facts, self.names).map(|_| ()).map_err(Error::General)
    }
}

impl ClientCertVerifier for KnownClient {
    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(certificate, intermediates, now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.chain.algorithms)
    }

    tls13_signatures!(shared);
}
