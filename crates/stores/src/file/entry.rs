//! An entry as a file: a head that people can read, a blank line, the bytes.
//!
//! ```text
//! regent entry 1
//! key groups/billing
//! version 17-8f3a61c09b2d4e55
//! leader a
//! term 3
//! ttl_ms 10000
//! bytes 123 crc32 9ab4f01c
//!
//! …
//! ```
//!
//! The lines of the summary (`leader`, `term`, `ttl_ms`) are there if there is something to say; nothing
//! is read from them. The checksum is over key, version and bytes.

use std::fmt::Write;

use crate::register::{Found, HumanSummary, Key, Record, RegisterError, RegisterResult, Version};

/// The first line, with the version of the format.
const FIRST: &str = "regent entry 1";

/// The bytes of the file.
pub(super) fn encode(key: &Key, version: &Version, record: &Record) -> Vec<u8> {
    let Record { value, summary: HumanSummary { leader, term, ttl } } = record;
    let mut head = format!("{FIRST}\nkey {key}\nversion {}\n", version.0);
    // Writing to a text cannot fail.
    if let Some(leader) = leader {
        let _ = writeln!(head, "leader {leader}");
    }
    if let Some(term) = term {
        let _ = writeln!(head, "term {term}");
    }
    if let Some(ttl) = ttl {
        let _ = writeln!(head, "ttl_ms {}", ttl.as_millis());
    }
    let sum = checksum(key, &version.0, value);
    let _ = write!(head, "bytes {} crc32 {sum:08x}\n\n", value.len());
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(value);
    bytes
}

/// What [`encode`] wrote under this key, or why these bytes are nothing of ours.
pub(super) fn decode(key: &Key, bytes: &[u8]) -> RegisterResult<Found> {
    parse(key, bytes).map_err(|why| RegisterError::corrupt(format!("the file of {key}: {why}")))
}

fn parse(key: &Key, bytes: &[u8]) -> Result<Found, String> {
    let blank = bytes.windows(2).position(|pair| pair == b"\n\n").ok_or("it has no head")?;
    let (head, value) = (&bytes[..blank], &bytes[blank + 2..]);
    let head = std::str::from_utf8(head).map_err(|_| "its head is no text")?;
    let mut lines = head.lines();
    if lines.next() != Some(FIRST) {
        return Err(format!("it does not open with {FIRST:?}"));
    }
    let line = |name: &str| {
        let words = head.lines().filter_map(|line| line.split_once(' '));
        words.filter(|(word, _)| *word == name).map(|(_, rest)| rest).next()
    };
    if line("key") != Some(key.to_string().as_str()) {
        return Err("it belongs to another key".into());
    }
    let version = line("version").ok_or("it has no version")?;
    let (length, sum) = line("bytes")
        .and_then(|rest| rest.split_once(" crc32 "))
        .ok_or("it does not say how many bytes it has")?;
    if length.parse() != Ok(value.len()) {
        return Err(format!("it has {} bytes and should have {length}", value.len()));
    }
    if u32::from_str_radix(sum, 16) != Ok(checksum(key, version, value)) {
        return Err("its checksum is wrong".into());
    }
    Ok(Found { value: value.to_vec(), version: Version(version.to_owned()) })
}

fn checksum(key: &Key, version: &str, value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key.to_string().as_bytes());
    hasher.update(b"\n");
    hasher.update(version.as_bytes());
    hasher.update(b"\n");
    hasher.update(value);
    hasher.finalize()
}

/// The version after this one. It counts, so that people see which is newer, and ends in a number that
/// nobody else has drawn, so that a file that was deleted by hand does not begin again with the same.
pub(super) fn after(version: Option<&Version>, drawn: u64) -> Version {
    let count = version
        .and_then(|version| version.0.split_once('-')?.0.parse::<u64>().ok())
        .map_or(1, |count| count.saturating_add(1));
    Version(format!("{count}-{drawn:016x}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use regent_election::{Group, Node, Term};

    use super::*;

    fn key() -> Key {
        Key::group(&Group::new("team/billing").unwrap())
    }

    fn record(value: Vec<u8>) -> Record {
        let summary = HumanSummary {
            leader: Some(Node::new("a").unwrap()),
            term: Term::new(3),
            ttl: Some(Duration::from_secs(10)),
        };
        Record { value, summary }
    }

    #[test]
    fn people_can_read_the_head() {
        let version = Version("17-8f3a61c09b2d4e55".into());
        let bytes = encode(&key(), &version, &record(b"\0\n\nx".to_vec()));
        let text = String::from_utf8_lossy(&bytes);
        let head = "regent entry 1\nkey groups/team/billing\nversion 17-8f3a61c09b2d4e55\nleader a\nterm 3\nttl_ms 10000\nbytes 4 crc32 ";
        assert!(text.starts_with(head), "{text}");
    }

    #[test]
    fn a_version_counts_and_never_begins_again() {
        let first = after(None, 7);
        assert_eq!(first.0, "1-0000000000000007");
        assert_eq!(after(Some(&first), 8).0, "2-0000000000000008");
        assert_ne!(after(None, 9), first);
    }

    #[test]
    fn a_file_under_a_wrong_name_is_refused() {
        let other = Key::group(&Group::new("team/Billing").unwrap());
        let bytes = encode(&other, &after(None, 1), &record(Vec::new()));
        assert!(decode(&key(), &bytes).unwrap_err().to_string().contains("another key"));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(value: Vec<u8>, drawn: u64) {
            let version = after(None, drawn);
            let bytes = encode(&key(), &version, &record(value.clone()));
            prop_assert_eq!(decode(&key(), &bytes), Ok(Found { value, version }));
        }

        #[test]
        fn a_cut_or_a_changed_byte_is_an_error(
            value in prop::collection::vec(any::<u8>(), 0..100),
            at: prop::sample::Index,
            cuts: bool,
        ) {
            let version = after(None, 5);
            let record = Record::bare(value);
            let mut bytes = encode(&key(), &version, &record);
            let at = at.index(bytes.len());
            if cuts {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 0x01;
            }
            prop_assert!(decode(&key(), &bytes).is_err());
        }

        #[test]
        fn anything_at_all_is_read_without_a_panic(bytes: Vec<u8>) {
            let _ = decode(&key(), &bytes);
        }
    }
}
