//! An offline CA in a directory: made once, and asked for one certificate per replica, server, node or user.
//!
//! | file | what | who needs it |
//! |---|---|---|
//! | `ca.key` | the CA's key | the operator only, never a server |
//! | `ca.crt` | the CA's certificate | every replica (`peer_ca`); every server (`tls_client_ca`) and client (`--ca`) |
//! | `ca.crl` | what was revoked, nothing at first | whoever has `ca.crt` (`peer_crl`, `tls_crl`) |
//! | `revoked` | the same as lines of text, from which `ca.crl` is made | the operator only |
//! | `issued` | every certificate that is not over, a line each: to revoke all of one owner | the operator only |
//! | `WHAT.key` | a key | its owner only |
//! | `WHAT.crt` | its certificate | its owner only |
//!
//! `WHAT` is `replica-N`, `server-HOST`, `node-NAME` or `user-NAME`.

use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber,
};
use regent_election::{Account, Node};
use time::OffsetDateTime;

use crate::certificate::chain;
use crate::error::TlsError;
use crate::facts::Facts;
use crate::files::{Secrecy, create, read, replace};
use crate::limits::{DAYS_MAX, HOST_BYTES_MAX, VALID_SINCE_S};
use crate::name::ReplicaName;

const DAY_S: u64 = 24 * 3600;

/// For whom a certificate is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A replica, on its peer links.
    Replica(ReplicaName),
    /// A server that clients reach under these names; the first one names the files.
    Server(Vec<Host>),
    /// A client that stands for leadership.
    Node { cluster: u128, name: Node },
    /// A person, or a client that does not stand.
    User { cluster: u128, name: Account },
}

/// A name or an address under which a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    Name(String),
    Address(IpAddr),
}

/// Whose files are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    Replica(u64),
    Server(Host),
    Node(Node),
    User(Account),
}

impl std::str::FromStr for Host {
    type Err = TlsError;

    fn from_str(text: &str) -> Result<Self, TlsError> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.*".contains(c);
        let labels = text.strip_prefix("*.").unwrap_or(text);
        let is_host = text.len() <= HOST_BYTES_MAX
            && text.chars().all(is_plain)
            && !labels.contains('*')
            && !labels
                .split('.')
                .any(|label| label.is_empty() || label.starts_with('-') || label.ends_with('-'));
        if is_host {
            return Ok(Self::Name(text.to_owned()));
        }
        Err(TlsError::Host { name: text.chars().take(80).collect() })
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.pad(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl std::fmt::Display for Subject {
    /// The names as the certificate has them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Replica(name) => name.fmt(f),
            Self::Server(hosts) => {
                let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
                f.write_str(&hosts.join(", "))
            }
            Self::Node { cluster, name } => write!(f, "regent://{cluster:032x}/node/{name}"),
            Self::User { cluster, name } => write!(f, "regent://{cluster:032x}/user/{name}"),
        }
    }
}

impl Owner {
    /// How the files begin. A name that is no plain word is written so that two never meet.
    fn stem(&self) -> String {
        let plain = |text: &str| {
            text.bytes().fold(String::new(), |mut stem, byte| {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                        stem.push(char::from(byte));
                    }
                    _ => {
                        let _ = write!(stem, "%{byte:02x}");
                    }
                }
                stem
            })
        };
        match self {
            Self::Replica(number) => format!("replica-{number}"),
            Self::Server(host) => format!("server-{}", plain(&host.to_string())),
            Self::Node(name) => format!("node-{}", plain(name.as_str())),
            Self::User(name) => format!("user-{}", plain(name.as_str())),
        }
    }
}

impl Subject {
    /// Whose files these are; none if a server has no name.
    #[must_use]
    pub fn owner(&self) -> Option<Owner> {
        Some(match self {
            Self::Replica(name) => Owner::Replica(name.replica),
            Self::Server(hosts) => Owner::Server(hosts.first()?.clone()),
            Self::Node { name, .. } => Owner::Node(name.clone()),
            Self::User { name, .. } => Owner::User(name.clone()),
        })
    }

    /// For whom a certificate of this directory was issued.
    fn of(facts: &Facts) -> Result<Self, String> {
        let hosts = facts.hosts.iter().map(|name| Host::Name(name.clone()));
        let hosts: Vec<Host> =
            hosts.chain(facts.addresses.iter().copied().map(Host::Address)).collect();
        match (facts.uris.as_slice(), hosts.is_empty()) {
            ([], false) => Ok(Self::Server(hosts)),
            ([uri], true) => of_uri(uri),
            _ => Err("it was not issued here".to_owned()),
        }
    }
}

fn of_uri(uri: &str) -> Result<Subject, String> {
    if let Ok(name) = uri.parse() {
        return Ok(Subject::Replica(name));
    }
    let read = || {
        let (cluster, rest) = uri.strip_prefix("regent://")?.split_once('/')?;
        let cluster = u128::from_str_radix(cluster, 16).ok()?;
        let (kind, name) = rest.split_once('/')?;
        match kind {
            "node" => Some(Subject::Node { cluster, name: Node::new(name).ok()? }),
            "user" => Some(Subject::User { cluster, name: Account::new(name).ok()? }),
            _ => None,
        }
    };
    read().filter(|subject| subject.to_string() == uri).ok_or("it was not issued here".to_owned())
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Whether the key was made, too.
    pub is_key_new: bool,
    /// The CA's certificate.
    pub ca: PathBuf,
    /// For whom the certificate is; none for the CA's own.
    pub subject: Option<Subject>,
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
    let expires_at_s = end_of(days, now_s)?;
    set_time(&mut params, expires_at_s, now_s)?;
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
    // An empty list, so that servers can be set up with one before anything is revoked.
    let list = Ca::open(directory)?.revocation_list(Vec::new(), now_s)?;
    create(&directory.join("ca.crl"), &list, Secrecy::Public)?;
    let certificate = ca.clone();
    Ok(Made { certificate, key: key_path, is_key_new: true, ca, subject: None, expires_at_s })
}

/// Looks whether a certificate could be issued to somebody, without issuing one.
///
/// # Errors
/// If there is one in this directory, there is no CA, or the CA ends before the certificate would.
pub fn may_issue(directory: &Path, owner: &Owner, days: u32, now_s: u64) -> Result<(), TlsError> {
    Ca::open(directory)?.end_of(days, now_s)?;
    let paths = Paths::of(directory, owner);
    match [paths.key, paths.certificate].into_iter().find(|path| path.exists()) {
        Some(path) => Err(TlsError::Exists { path }),
        None => Ok(()),
    }
}

/// Makes a key and a certificate for somebody who has none in this directory yet.
///
/// # Errors
/// If there is one, there is no CA, or the CA ends before the certificate would.
pub fn issue(directory: &Path, subject: &Subject, days: u32, now_s: u64) -> Result<Made, TlsError> {
    let ca = Ca::open(directory)?;
    let owner = subject.owner().ok_or_else(|| TlsError::Host { name: String::new() })?;
    may_issue(directory, &owner, days, now_s)?;
    let paths = Paths::of(directory, &owner);
    let key = KeyPair::generate().map_err(cryptography)?;
    let (pem, expires_at_s) = ca.sign(subject, &key, days, now_s)?;
    note_issued(&paths, subject, &pem, now_s)?;
    create(&paths.key, &key.serialize_pem(), Secrecy::Secret)?;
    create(&paths.certificate, &pem, Secrecy::Public)?;
    Ok(paths.made(subject.clone(), true, expires_at_s))
}

/// Makes another certificate for somebody who has one in this directory, for the same key or for
/// a new one.
///
/// # Errors
/// If there is none, there is no CA, or the CA ends before the certificate would.
pub fn renew(
    directory: &Path,
    owner: &Owner,
    days: u32,
    has_new_key: bool,
    now_s: u64,
) -> Result<Made, TlsError> {
    let ca = Ca::open(directory)?;
    let paths = Paths::of(directory, owner);
    let subject = paths.subject(&paths.facts()?)?;
    let key =
        if has_new_key { KeyPair::generate().map_err(cryptography)? } else { key_in(&paths.key)? };
    let (pem, expires_at_s) = ca.sign(&subject, &key, days, now_s)?;
    note_issued(&paths, &subject, &pem, now_s)?;
    if has_new_key {
        replace(&paths.key, &key.serialize_pem(), Secrecy::Secret)?;
    }
    replace(&paths.certificate, &pem, Secrecy::Public)?;
    Ok(paths.made(subject, has_new_key, expires_at_s))
}

/// What was revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// For whom the certificate was.
    pub subject: Subject,
    /// The list to copy to servers.
    pub crl: PathBuf,
    /// How many certificates are in it.
    pub count: usize,
}

/// Revokes whatever this directory has issued to somebody and is not over, renewed certificates too: it gets into the
/// list that servers read. The files are renamed, so that another one can be issued.
///
/// # Errors
/// If there is none, or there is no CA.
pub fn revoke(directory: &Path, owner: &Owner, now_s: u64) -> Result<Revoked, TlsError> {
    let ca = Ca::open(directory)?;
    let paths = Paths::of(directory, owner);
    let facts = paths.facts()?;
    let subject = paths.subject(&facts)?;
    let (list, crl) = (directory.join("revoked"), directory.join("ca.crl"));
    let mut lines = lines_of(&list)?;
    let serial = hexadecimal(&facts.serial);
    let issued = lines_of(&directory.join("issued"))?;
    let whose = subject.to_string();
    let others = issued.lines().filter_map(|line| {
        let (serial, rest) = line.split_once(' ')?;
        let (_, name) = rest.split_once(' ')?;
        (name == whose).then_some(serial)
    });
    for serial in others.chain([serial.as_str()]) {
        if !lines.lines().any(|line| line.split(' ').next() == Some(serial)) {
            let _ = writeln!(lines, "{serial} {now_s} {subject}");
        }
    }
    let entries = entries(&list, &lines)?;
    let count = entries.len();
    let pem = ca.revocation_list(entries, now_s)?;
    // The lines first: a list is made of them again the next time.
    replace(&list, &lines, Secrecy::Public)?;
    replace(&crl, &pem, Secrecy::Public)?;
    for path in [&paths.certificate, &paths.key] {
        let aside = path.with_added_extension(format!("revoked-{serial}"));
        std::fs::rename(path, &aside).map_err(|source| TlsError::File {
            what: "rename",
            path: path.clone(),
            source,
        })?;
    }
    Ok(Revoked { subject, crl, count })
}

/// Writes down a certificate before it is handed out, and forgets those that are over.
fn note_issued(paths: &Paths, subject: &Subject, pem: &str, now_s: u64) -> Result<(), TlsError> {
    let list = paths.ca.with_file_name("issued");
    let (facts, _) = chain(&paths.certificate, pem.as_bytes())?;
    let is_good = |line: &&str| {
        let ends_at_s = line.split(' ').nth(1).and_then(|at_s| at_s.parse::<u64>().ok());
        ends_at_s.is_none_or(|at_s| at_s > now_s)
    };
    let before = lines_of(&list)?;
    let mut lines: String = before.lines().filter(is_good).flat_map(|line| [line, "\n"]).collect();
    let (serial, ends_at_s) = (hexadecimal(&facts.serial), facts.expires_at_s);
    let _ = writeln!(lines, "{serial} {ends_at_s} {subject}");
    replace(&list, &lines, Secrecy::Public)
}

/// A file of lines; one that is not there has none.
fn lines_of(path: &Path) -> Result<String, TlsError> {
    match read(path, Secrecy::Public) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(TlsError::Unfit(error)) if error.is_missing() => Ok(String::new()),
        Err(error) => Err(error),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Serial numbers and moments, one a line, with a note for people behind them.
fn entries(path: &Path, lines: &str) -> Result<Vec<RevokedCertParams>, TlsError> {
    let read = |line: &str| {
        let mut words = line.split(' ');
        let (serial, at_s) = (words.next()?, words.next()?.parse().ok()?);
        let digits = (0..serial.len()).step_by(2).map(|at| serial.get(at..at + 2));
        let serial: Vec<u8> =
            digits.map(|two| u8::from_str_radix(two?, 16).ok()).collect::<Option<_>>()?;
        Some(RevokedCertParams {
            serial_number: SerialNumber::from_slice(&serial),
            revocation_time: date(at_s).ok()?,
            reason_code: None,
            invalidity_date: None,
        })
    };
    let malformed = |line: &str| TlsError::Malformed {
        path: path.to_owned(),
        why: format!("a line that is no revocation: {line:?}"),
    };
    lines.lines().map(|line| read(line).ok_or_else(|| malformed(line))).collect()
}

/// The files of one owner.
struct Paths {
    key: PathBuf,
    certificate: PathBuf,
    ca: PathBuf,
}

impl Paths {
    fn of(directory: &Path, owner: &Owner) -> Self {
        let stem = owner.stem();
        Self {
            key: directory.join(format!("{stem}.key")),
            certificate: directory.join(format!("{stem}.crt")),
            ca: directory.join("ca.crt"),
        }
    }

    /// What the certificate says.
    fn facts(&self) -> Result<Facts, TlsError> {
        let path = &self.certificate;
        let bytes = read(path, Secrecy::Public).map_err(|error| match error {
            TlsError::Unfit(error) if error.is_missing() => {
                TlsError::Unknown { path: path.clone() }
            }
            error => error,
        })?;
        Ok(chain(path, &bytes)?.0)
    }

    /// For whom it was issued.
    fn subject(&self, facts: &Facts) -> Result<Subject, TlsError> {
        Subject::of(facts).map_err(|why| TlsError::Malformed {
            path: self.certificate.clone(),
            why: format!("a certificate, but {why}"),
        })
    }

    fn made(self, subject: Subject, is_key_new: bool, expires_at_s: u64) -> Made {
        let Self { key, certificate, ca } = self;
        Made { certificate, key, is_key_new, ca, subject: Some(subject), expires_at_s }
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
        let (facts, _) = chain(&path, &read(&path, Secrecy::Public)?)?;
        let expires_at_s = facts.expires_at_s;
        Ok(Self { issuer: Issuer::new(ca_params(), key), expires_at_s })
    }

    /// When a certificate of so many days would end.
    fn end_of(&self, days: u32, now_s: u64) -> Result<u64, TlsError> {
        let expires_at_s = end_of(days, now_s)?;
        if expires_at_s > self.expires_at_s {
            let left_days = self.expires_at_s.saturating_sub(now_s) / DAY_S;
            return Err(TlsError::OutlivesCa { days, left_days });
        }
        Ok(expires_at_s)
    }

    /// A certificate in PEM, and when it ends.
    fn sign(
        &self,
        subject: &Subject,
        key: &KeyPair,
        days: u32,
        now_s: u64,
    ) -> Result<(String, u64), TlsError> {
        let mut params = CertificateParams::default();
        let (server, client) =
            (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
        // Names are alternative names; this one is for people.
        let (called_so, usages) = match subject {
            // Every replica dials and is dialled.
            Subject::Replica(name) => {
                (format!("regent replica {}", name.replica), vec![server, client])
            }
            Subject::Server(_) => ("regent server".to_owned(), vec![server]),
            Subject::Node { .. } => ("regent node".to_owned(), vec![client]),
            Subject::User { .. } => ("regent user".to_owned(), vec![client]),
        };
        params.distinguished_name = called(&called_so);
        params.subject_alt_names = match subject {
            Subject::Server(hosts) => {
                hosts.iter().map(alternative).collect::<Result<_, TlsError>>()?
            }
            Subject::Replica(_) | Subject::Node { .. } | Subject::User { .. } => {
                vec![SanType::URI(subject.to_string().try_into().map_err(cryptography)?)]
            }
        };
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages;
        params.use_authority_key_identifier_extension = true;
        let expires_at_s = self.end_of(days, now_s)?;
        set_time(&mut params, expires_at_s, now_s)?;
        let certificate = params.signed_by(key, &self.issuer).map_err(cryptography)?;
        Ok((certificate.pem(), expires_at_s))
    }

    /// The list of all that was revoked, in PEM. It is good as long as the CA: another one takes its place when
    /// something is revoked, and not by a calendar.
    fn revocation_list(
        &self,
        revoked_certs: Vec<RevokedCertParams>,
        now_s: u64,
    ) -> Result<String, TlsError> {
        let params = CertificateRevocationListParams {
            this_update: date(now_s)?,
            next_update: date(self.expires_at_s)?,
            crl_number: SerialNumber::from(now_s),
            issuing_distribution_point: None,
            revoked_certs,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).and_then(|list| list.pem()).map_err(cryptography)
    }
}

fn alternative(host: &Host) -> Result<SanType, TlsError> {
    Ok(match host {
        Host::Name(name) => SanType::DnsName(name.clone().try_into().map_err(cryptography)?),
        Host::Address(address) => SanType::IpAddress(*address),
    })
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

/// When something ends that is good for so many days.
fn end_of(days: u32, now_s: u64) -> Result<u64, TlsError> {
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(TlsError::Days { days });
    }
    Ok(now_s + u64::from(days) * DAY_S)
}

/// Sets from when to when a certificate is good, and a serial number of its own.
fn set_time(params: &mut CertificateParams, expires_at_s: u64, now_s: u64) -> Result<(), TlsError> {
    params.not_before = date(now_s.saturating_sub(VALID_SINCE_S))?;
    params.not_after = date(expires_at_s)?;
    let mut serial = [0; 16];
    getrandom::fill(&mut serial).map_err(cryptography)?;
    // A serial number is positive.
    serial[0] &= 0x7f;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(())
}

fn date(at_s: u64) -> Result<OffsetDateTime, TlsError> {
    let at_s = i64::try_from(at_s).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(at_s).map_err(cryptography)
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
