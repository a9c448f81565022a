//! What is read from a certificate: whom it names, and until when it is good.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use webpki::EndEntityCert;

use crate::error::TlsError;
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
        let chain = certificates(path, bytes)?;
        let malformed = |why| TlsError::Malformed { path: path.to_owned(), why };
        let name =
            name_of(&chain[0]).map_err(|why| malformed(format!("a certificate, but {why}")))?;
        let expires_at_s = expiry(&chain[0])
            .ok_or_else(|| malformed("a certificate whose end cannot be read".to_owned()))?;
        Ok(Self { name, expires_at_s, chain })
    }
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

/// The one replica that a certificate names. Another name beside it would be one that somebody else
/// may rely on, so there must be none.
pub(crate) fn name_of(certificate: &CertificateDer<'_>) -> Result<ReplicaName, String> {
    let parsed = EndEntityCert::try_from(certificate).map_err(|error| error.to_string())?;
    let mut names = parsed.valid_uri_names();
    let first =
        names.next().ok_or("it names no replica (a URI like regent://CLUSTER/replica/1)")?;
    if names.next().is_some() {
        return Err("it has several URIs; a replica's certificate has one".to_owned());
    }
    first.parse()
}

/// When a certificate ends, in seconds since 1970.
///
/// ```text
/// Certificate { TBSCertificate { [0] version, serial, algorithm, issuer, Validity { from, to }, … }, … }
/// ```
pub(crate) fn expiry(certificate: &CertificateDer<'_>) -> Option<u64> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let (_, outer, _) = element(certificate)?;
    let (SEQUENCE, mut rest, _) = element(outer)? else { return None };
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    for _ in ["serial", "algorithm", "issuer"] {
        rest = element(rest)?.2;
    }
    let (SEQUENCE, validity, _) = element(rest)? else { return None };
    let (tag, to, _) = element(element(validity)?.2)?;
    seconds(tag, std::str::from_utf8(to).ok()?)
}

/// The first DER element: its tag, its content, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// UTCTime (`YYMMDDhhmmssZ`, 1950 to 2049) or GeneralizedTime (`YYYYMMDDhhmmssZ`).
fn seconds(tag: u8, text: &str) -> Option<u64> {
    let text = match tag {
        0x17 => format!("{}{text}", if text < "50" { "20" } else { "19" }),
        0x18 => text.to_owned(),
        _ => return None,
    };
    let digits = text.strip_suffix('Z').filter(|digits| digits.len() == 14)?;
    let number = |from: usize, to: usize| digits.get(from..to)?.parse::<u8>().ok();
    let year = digits.get(..4)?.parse().ok()?;
    let month = time::Month::try_from(number(4, 6)?).ok()?;
    let date = time::Date::from_calendar_date(year, month, number(6, 8)?).ok()?;
    let time = time::Time::from_hms(number(8, 10)?, number(10, 12)?, number(12, 14)?).ok()?;
    u64::try_from(date.with_time(time).assume_utc().unix_timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_time_are_read() {
        assert_eq!(seconds(0x17, "700101000001Z"), Some(1));
        assert_eq!(seconds(0x17, "261117223800Z"), seconds(0x18, "20261117223800Z"));
        assert_eq!(seconds(0x18, "20500101000000Z"), Some(2_524_608_000));
        for bad in ["", "Z", "261117223800", "261317223800Z", "26111722380Z", "261117223860Z"] {
            assert_eq!(seconds(0x17, bad), None, "{bad}");
        }
    }
}
