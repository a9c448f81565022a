//! An offline CA in a directory: made once, and asked for one certificate per replica.
//!
//! | file | what | who needs it |
//! |---|---|---|
//! | `ca.key` | the CA's key | the operator only, never a server |
//! | `ca.crt` | the CA's certificate | every replica (`peer_ca`) |
//! | `replica-N.key` | a replica's key | that replica only (`peer_key`) |
//! | `replica-N.crt` | its certificate | that replica only (`peer_cert`) |

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use time::OffsetDateTime;

use crate::certificate::{Certificate, certificates, expiry};
use crate::error::TlsError;
use crate::files::{Secrecy, create, read, replace};
use crate::limits::{DAYS_MAX, VALID_SINCE_S};
use crate::name::ReplicaName;

const DAY_S: u64 = 24 * 3600;

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Whether the key was made, too.
    pub is_key_new: bool,
    /// The CA's certificate.
    pub ca: PathBuf,
    /// The replica that the certificate names; none for the CA's own.
    pub name: Option<ReplicaName>,
    /// When it ends, in seconds since 1970.
    pub expires_at_s: u64,
}

/// Makes a CA in a directory, which is made if it is not there.
///
/// # Errors
/// If there is one already, or it cannot be written.
pub fn init(directory: &Path, days: u32, now_s: u64) -> Result<Made, TlsError> {
    let key = KeyPair::generate().map_err(cryptography)?;
    let mut params = ca_params();
    let expires_at_s = set_time(&mut params, days, now_s)?;
    let certificate = params.self_signed(&key).map_err(cryptography)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|source| TlsError::File { what: "make", path: directory.to_owned(), source })?;
    let (key_path, ca) = (directory.join("ca.key"), directory.join("ca.crt"));
    // The key first: it is what must never be written over.
    create(&key_path, &key.serialize_pem(), Secrecy::Secret)?;
    create(&ca, &certificate.pem(), Secrecy::Public)?;
    let certificate = ca.clone();
    Ok(Made { certificate, key: key_path, is_key_new: true, ca, name: None, expires_at_s })
}

/// Makes a key and a certificate for a replica that has none in this directory yet.
///
/// # Errors
/// If it has, there is no CA, or the CA ends before the certificate would.
pub fn issue(directory: &Path, name: ReplicaName, days: u32, now_s: u64) -> Result<Made, TlsError> {
    let ca = Ca::open(directory)?;
    let paths = Paths::of(directory, name.replica);
    for path in [&paths.key, &paths.certificate] {
        if path.exists() {
            return Err(TlsError::Exists { path: path.clone() });
        }
    }
    let key = KeyPair::generate().map_err(cryptography)?;
    let (pem, expires_at_s) = ca.sign(name, &key, days, now_s)?;
    create(&paths.key, &key.serialize_pem(), Secrecy::Secret)?;
    create(&paths.certificate, &pem, Secrecy::Public)?;
    Ok(paths.made(name, true, expires_at_s))
}

/// Makes another certificate for a replica that has one in this directory, for the same key or for
/// a new one.
///
/// # Errors
/// If it has none, there is no CA, or the CA ends before the certificate would.
pub fn renew(
    directory: &Path,
    replica: u64,
    days: u32,
    has_new_key: bool,
    now_s: u64,
) -> Result<Made, TlsError> {
    let ca = Ca::open(directory)?;
    let paths = Paths::of(directory, replica);
    let name =
        Certificate::read(&paths.certificate, &read(&paths.certificate, Secrecy::Public)?)?.name;
    let key =
        if has_new_key { KeyPair::generate().map_err(cryptography)? } else { key_in(&paths.key)? };
    let (pem, expires_at_s) = ca.sign(name, &key, days, now_s)?;
    if has_new_key {
        replace(&paths.key, &key.serialize_pem(), Secrecy::Secret)?;
    }
    replace(&paths.certificate, &pem, Secrecy::Public)?;
    Ok(paths.made(name, has_new_key, expires_at_s))
}

/// The files of one replica.
struct Paths {
    key: PathBuf,
    certificate: PathBuf,
    ca: PathBuf,
}

impl Paths {
    fn of(directory: &Path, replica: u64) -> Self {
        Self {
            key: directory.join(format!("replica-{replica}.key")),
            certificate: directory.join(format!("replica-{replica}.crt")),
            ca: directory.join("ca.crt"),
        }
    }

    fn made(self, name: ReplicaName, is_key_new: bool, expires_at_s: u64) -> Made {
        let Self { key, certificate, ca } = self;
        Made { certificate, key, is_key_new, ca, name: Some(name), expires_at_s }
    }
}

/// The CA of a directory.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    expires_at_s: u64,
}

impl Ca {
    fn open(directory: &Path) -> Result<Self, TlsError> {
        let (key, path) = (key_in(&directory.join("ca.key"))?, directory.join("ca.crt"));
        let own = certificates(&path, &read(&path, Secrecy::Public)?)?;
        let expires_at_s = expiry(&own[0]).ok_or_else(|| TlsError::Malformed {
            path,
            why: "a certificate whose end cannot be read".to_owned(),
        })?;
        Ok(Self { issuer: Issuer::new(ca_params(), key), expires_at_s })
    }

    /// A certificate in PEM, and when it ends.
    fn sign(
        &self,
        name: ReplicaName,
        key: &KeyPair,
        days: u32,
        now_s: u64,
    ) -> Result<(String, u64), TlsError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = called(&format!("regent replica {}", name.replica));
        let uri = name.to_string().try_into().map_err(cryptography)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Every replica dials and is dialled.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let expires_at_s = set_time(&mut params, days, now_s)?;
        if expires_at_s > self.expires_at_s {
            let left_days = self.expires_at_s.saturating_sub(now_s) / DAY_S;
            return Err(TlsError::OutlivesCa { days, left_days });
        }
        let certificate = params.signed_by(key, &self.issuer).map_err(cryptography)?;
        Ok((certificate.pem(), expires_at_s))
    }
}

/// What every CA made here is. Its name is the same in each, so that a CA is opened by its key alone;
/// two of them are told apart by their keys.
fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = called("regent peer CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn called(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// Sets from when to when a certificate is good, and a serial number of its own; returns the end.
fn set_time(params: &mut CertificateParams, days: u32, now_s: u64) -> Result<u64, TlsError> {
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(TlsError::Days { days });
    }
    let expires_at_s = now_s + u64::from(days) * DAY_S;
    let date = |at_s: u64| {
        let at_s = i64::try_from(at_s).unwrap_or(i64::MAX);
        OffsetDateTime::from_unix_timestamp(at_s).map_err(cryptography)
    };
    params.not_before = date(now_s.saturating_sub(VALID_SINCE_S))?;
    params.not_after = date(expires_at_s)?;
    let mut serial = [0; 16];
    getrandom::fill(&mut serial).map_err(cryptography)?;
    // A serial number is positive.
    serial[0] &= 0x7f;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(expires_at_s)
}

fn key_in(path: &Path) -> Result<KeyPair, TlsError> {
    let bytes = read(path, Secrecy::Secret)?;
    let malformed = |why| TlsError::Malformed { path: path.to_owned(), why };
    let text = String::from_utf8(bytes).map_err(|_| malformed("no PEM".to_owned()))?;
    KeyPair::from_pem(&text).map_err(|error| malformed(format!("no key in PEM: {error}")))
}

fn cryptography(error: impl std::fmt::Display) -> TlsError {
    TlsError::Cryptography(error.to_string())
}
