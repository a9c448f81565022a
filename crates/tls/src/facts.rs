//! What a certificate says of itself, read from its DER: names, serial number, end.
//!
//! Chains and signatures are judged elsewhere (`chain.rs`); this only reads. It reads strictly: whatever it does not
//! understand refuses the certificate, so that no name is overlooked.

use std::net::IpAddr;

use rustls::pki_types::CertificateDer;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OBJECT: u8 = 0x06;
const OCTETS: u8 = 0x04;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// `id-ce-subjectAltName`, 2.5.29.17.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
/// `id-at-commonName`, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// The texts a common name may be written as: UTF-8, printable, IA5.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
/// General names that count here.
const DNS: u8 = 0x82;
const URI: u8 = 0x86;
const ADDRESS: u8 = 0x87;

/// What one certificate says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) serial: Vec<u8>,
    /// When it ends, in seconds since 1970.
    pub(crate) expires_at_s: u64,
    pub(crate) common_names: Vec<String>,
    pub(crate) uris: Vec<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) addresses: Vec<IpAddr>,
}

impl Facts {
    /// Reads a certificate.
    ///
    /// ```text
    /// Certificate { TBSCertificate { [0] version?, serial, algorithm, issuer, Validity { from, to }, subject, key, …, [3] extensions? }, … }
    /// ```
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let unreadable = || "it cannot be read".to_owned();
        let (outer, _) = expect(SEQUENCE, certificate).ok_or_else(unreadable)?;
        let (body, _) = expect(SEQUENCE, outer).ok_or_else(unreadable)?;
        Self::of_body(body).ok_or_else(unreadable)?
    }

    /// None if the shape is wrong, an error if a name is.
    fn of_body(mut rest: &[u8]) -> Option<Result<Self, String>> {
        let mut facts = Self::default();
        if rest.first() == Some(&VERSION) {
            rest = element(rest)?.2;
        }
        let (serial, rest) = expect(INTEGER, rest)?;
        facts.serial = serial.to_vec();
        let (_, rest) = expect(SEQUENCE, rest)?;
        let (_, rest) = expect(SEQUENCE, rest)?;
        let (validity, rest) = expect(SEQUENCE, rest)?;
        let (tag, to, _) = element(element(validity)?.2)?;
        facts.expires_at_s = seconds(tag, std::str::from_utf8(to).ok()?)?;
        let (subject, rest) = expect(SEQUENCE, rest)?;
        facts.common_names = common_names(subject)?;
        let (_, mut rest) = expect(SEQUENCE, rest)?;
        while !rest.is_empty() {
            let (tag, content, after) = element(rest)?;
            rest = after;
            if tag == EXTENSIONS {
                let (extensions, _) = expect(SEQUENCE, content)?;
                if let Err(why) = facts.add_extensions(extensions)? {
                    return Some(Err(why));
                }
            }
        }
        Some(Ok(facts))
    }

    fn add_extensions(&mut self, mut extensions: &[u8]) -> Option<Result<(), String>> {
        let mut is_named = false;
        while !extensions.is_empty() {
            let (extension, after) = expect(SEQUENCE, extensions)?;
            extensions = after;
            let (id, rest) = expect(OBJECT, extension)?;
            if id != ALTERNATIVE_NAMES {
                continue;
            }
            if std::mem::replace(&mut is_named, true) {
                return Some(Err("it has two lists of alternative names".to_owned()));
            }
            // Whether it is critical stands before its value, if it is.
            let (tag, mut value, after) = element(rest)?;
            if tag != OCTETS {
                value = expect(OCTETS, after)?.0;
            }
            let (names, _) = expect(SEQUENCE, value)?;
            if let Err(why) = self.add_names(names)? {
                return Some(Err(why));
            }
        }
        Some(Ok(()))
    }

    fn add_names(&mut self, mut names: &[u8]) -> Option<Result<(), String>> {
        while !names.is_empty() {
            let (tag, content, after) = element(names)?;
            names = after;
            let text = || match std::str::from_utf8(content) {
                Ok(text) if text.is_ascii() => Ok(text.to_owned()),
                Ok(_) | Err(_) => Err("one of its names is no plain text".to_owned()),
            };
            match tag {
                DNS | URI => match text() {
                    Ok(text) if tag == DNS => self.hosts.push(text),
                    Ok(text) => self.uris.push(text),
                    Err(why) => return Some(Err(why)),
                },
                ADDRESS => self.addresses.push(match content.len() {
                    4 => IpAddr::from(<[u8; 4]>::try_from(content).ok()?),
                    16 => IpAddr::from(<[u8; 16]>::try_from(content).ok()?),
                    _ => return Some(Err("one of its addresses is none".to_owned())),
                }),
                // Mail addresses, directory names and the like name nobody here.
                _ => {}
            }
        }
        Some(Ok(()))
    }
}

/// The common names of a subject, a list of sets of attributes.
fn common_names(mut subject: &[u8]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    while !subject.is_empty() {
        let (mut attributes, after) = expect(SET, subject)?;
        subject = after;
        while !attributes.is_empty() {
            let (attribute, after) = expect(SEQUENCE, attributes)?;
            attributes = after;
            let (id, rest) = expect(OBJECT, attribute)?;
            if id != COMMON_NAME {
                continue;
            }
            let (tag, content, _) = element(rest)?;
            // One that is written otherwise is still one: it must not be overlooked.
            let text = if TEXTS.contains(&tag) { std::str::from_utf8(content).ok() } else { None };
            names.push(text.unwrap_or("\u{fffd}").to_owned());
        }
    }
    Some(names)
}

/// The content of the first element if it has this tag, and what follows it.
fn expect(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(bytes)?;
    (found == tag).then_some((content, rest))
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
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

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

    #[test]
    fn every_name_of_a_certificate_is_read_and_bytes_that_are_none_are_refused() {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, "regent");
        params.distinguished_name.push(DnType::CommonName, "web 1");
        params.subject_alt_names = vec![
            SanType::URI("spiffe://a/b".try_into().unwrap()),
            SanType::DnsName("web-1".try_into().unwrap()),
            SanType::IpAddress("10.0.0.1".parse().unwrap()),
            SanType::IpAddress("::1".parse().unwrap()),
            SanType::Rfc822Name("a@b".try_into().unwrap()),
            SanType::URI("https://x".try_into().unwrap()),
        ];
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let facts = Facts::of(made.der()).unwrap();
        assert_eq!(facts.uris, ["spiffe://a/b", "https://x"]);
        assert_eq!(facts.hosts, ["web-1"]);
        assert_eq!(facts.common_names, ["rcgen self signed cert", "web 1"][1..]);
        assert_eq!(facts.addresses.len(), 2);
        // Cut or changed anywhere, it is read or refused, and nothing panics.
        for cut in 0..made.der().len() {
            let _ = Facts::of(&made.der()[..cut].into());
            let mut changed = made.der().to_vec();
            changed[cut] ^= 0xff;
            let _ = Facts::of(&changed.into());
        }
    }
}
