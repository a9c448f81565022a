//! What is read from files of certificates.

use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use webpki::{CertRevocationList, OwnedCertRevocationList};

use crate::error::TlsError;
use crate::facts::Facts;
use crate::name::ReplicaName;

/// A replica's certificate with those that lead to its CA.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Whom it names.
    pub name: ReplicaName,
    /// When it ends, in seconds since 1970.
    pub expires_at_s: u64,
    pub(crate) chain: Vec<CertificateDer<'static>>,
}

impl Certificate {
    /// The certificate in a file that was read: PEM, the replica's own one first.
    ///
    /// # Errors
    /// If there is none, or it names no replica.
    pub fn read(path: &Path, bytes: &[u8]) -> Result<Self, TlsError> {
        let (facts, chain) = chain(path, bytes)?;
        let name = replica(&facts).map_err(|why| TlsError::Malformed {
            path: path.to_owned(),
            why: format!("a certificate, but {why}"),
        })?;
        Ok(Self { name, expires_at_s: facts.expires_at_s, chain })
    }
}

/// A certificate with those that lead to its CA, and what the first one says.
pub(crate) fn chain(
    path: &Path,
    bytes: &[u8],
) -> Result<(Facts, Vec<CertificateDer<'static>>), TlsError> {
    let chain = certificates(path, bytes)?;
    let facts = Facts::of(&chain[0]).map_err(|why| TlsError::Malformed {
        path: path.to_owned(),
        why: format!("a certificate, but {why}"),
    })?;
    Ok((facts, chain))
}

/// All certificates of a PEM file; at least one.
pub(crate) fn certificates(
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let malformed = |why: String| TlsError::Malformed { path: path.to_owned(), why };
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let read = read.map_err(|error| malformed(format!("no readable PEM: {error}")))?;
    if read.is_empty() {
        return Err(malformed("no certificate in PEM".to_owned()));
    }
    Ok(read)
}

/// The key in a PEM file.
pub(crate) fn private_key(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| TlsError::Malformed {
        path: path.to_owned(),
        why: format!("no key in PEM: {error}"),
    })
}

/// All revocation lists of a PEM file; at least one.
pub(crate) fn revocation_lists(
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<CertRevocationList<'static>>, TlsError> {
    let malformed = |why: String| TlsError::Malformed { path: path.to_owned(), why };
    let read: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(bytes).collect();
    let read = read.map_err(|error| malformed(format!("no readable PEM: {error}")))?;
    if read.is_empty() {
        return Err(malformed("no certificate revocation list in PEM".to_owned()));
    }
    let parsed = read.iter().map(|list| {
        let parsed = OwnedCertRevocationList::from_der(list);
        parsed.map(Into::into).map_err(|error| malformed(format!("a list, but {error}")))
    });
    parsed.collect()
}

/// The one replica that a certificate names.
pub(crate) fn name_of(certificate: &CertificateDer<'_>) -> Result<ReplicaName, String> {
    replica(&Facts::of(certificate)?)
}

/// Another name beside it would be one that somebody else may rely on, so there must be none.
fn replica(facts: &Facts) -> Result<ReplicaName, String> {
    match facts.uris.as_slice() {
        [] => Err("it names no replica (a URI like regent://CLUSTER/replica/1)".to_owned()),
        [one] => one.parse(),
        _ => Err("it has several URIs; a replica's certificate has one".to_owned()),
    }
}
