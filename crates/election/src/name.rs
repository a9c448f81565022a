//! Checked names. A value of these types is well-formed; nothing downstream checks again.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::limits::{
    DIGEST_BYTES_MAX, GROUP_BYTES_MAX, HOME_BYTES_MAX, METADATA_BYTES_MAX, METADATA_ENTRIES_MAX,
    NODE_BYTES_MAX, REASON_BYTES_MAX, REQUEST_NONCE_BYTES_MAX, RESOURCE_BYTES_MAX,
    SESSION_DISTINCT_BYTES_MIN,
};
use crate::term::Revision;

/// Why a text is not a name of its kind. The message is a clause for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("a {kind} must not be empty")]
    Empty {
        /// What was being named.
        kind: &'static str,
    },
    /// More bytes than the limit.
    #[error("a {kind} has at most {max} bytes; this one has {bytes}")]
    TooLong {
        /// What was being named.
        kind: &'static str,
        bytes: usize,
        max: usize,
    },
    /// A character that names cannot hold.
    #[error(
        "a {kind} is made of letters, digits and - _ . : @ / ; {character:?} at byte {at} is none of these"
    )]
    Character {
        /// What was being named.
        kind: &'static str,
        character: char,
        /// Where it stands.
        at: usize,
    },
    /// `/a`, `a/`, `a//b`, `.`, `..`: proxies rewrite these in a URL, so two names would meet.
    #[error("a {kind} has no empty, `.` or `..` part between slashes")]
    Part {
        /// What was being named.
        kind: &'static str,
    },
    /// Not 32 hexadecimal digits, or all zero.
    #[error(
        "a session id is 32 hexadecimal digits, not all zero, and as random as you can make it"
    )]
    SessionId,
    /// Not `revision-nonce`.
    #[error(
        "a request id is the highest revision you have seen (or 0), a dash, and 1 to {REQUEST_NONCE_BYTES_MAX} letters or digits of your own, like 17-8c1f0a"
    )]
    RequestId,
    /// Too many or too large entries.
    #[error(
        "metadata holds at most {METADATA_ENTRIES_MAX} entries and {METADATA_BYTES_MAX} bytes; this has {entries} and {bytes}"
    )]
    Metadata {
        /// How many entries.
        entries: usize,
        /// How many bytes in all keys and values.
        bytes: usize,
    },
    /// A key that is no plain word.
    #[error("a metadata key is 1 to 64 letters, digits and - _ . ; {key:?} is not")]
    MetadataKey { key: String },
    /// A value with control characters.
    #[error("a {kind} holds no control characters")]
    Control {
        /// What was being given.
        kind: &'static str,
    },
}

fn check_name(kind: &'static str, text: &str, max: usize) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { kind });
    }
    if text.len() > max {
        return Err(NameError::TooLong { kind, bytes: text.len(), max });
    }
    for (at, character) in text.char_indices() {
        if !(character.is_ascii_alphanumeric() || "-_.:@/".contains(character)) {
            return Err(NameError::Character { kind, character, at });
        }
    }
    if text.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(NameError::Part { kind });
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            #[doc = concat!("Checks that `text` is a ", $kind, " and keeps it.")]
            pub fn new(text: &str) -> Result<Self, NameError> {
                check_name($kind, text, $max)?;
                Ok(Self(text.into()))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

name!(
    /// A named election.
    Group, "group name", GROUP_BYTES_MAX
);
name!(
    /// A participant's stable label. It grants nothing: two processes may share one.
    Node, "node id", NODE_BYTES_MAX
);
name!(
    /// Something that leaders of a group write to, and that refuses terms lower than it has seen.
    Resource, "resource name", RESOURCE_BYTES_MAX
);

name!(
    /// A person or a program, as an authority outside of this store names it.
    Account, "account name", NODE_BYTES_MAX
);

name!(
    /// What an application's state looks like: equal states have equal digests, such as `sha256:` and its digits.
    Digest, "digest", DIGEST_BYTES_MAX
);

/// The secret of one session: who knows it may renew, resign and transfer.
///
/// Never shown in reads, events, history or logs, so its `Debug` hides it. [`SessionId::reveal`]
/// is the one way to its text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u128);

impl SessionId {
    /// The session with this number; zero is refused, since nobody chose it.
    pub const fn new(number: u128) -> Result<Self, NameError> {
        if number == 0 { Err(NameError::SessionId) } else { Ok(Self(number)) }
    }

    /// The plain number, for codecs.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }

    /// The name by which a store knows the session of this secret: half of its SHA-256, which nobody can turn
    /// back. What a store writes, sends to its replicas or backs up holds this, and gives no secret away.
    #[must_use]
    pub fn digest(self) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"regent session ");
        hash.update(self.0.to_be_bytes());
        let bytes = hash.finalize();
        let number = bytes[..16].iter().fold(0, |number, byte| number << 8 | u128::from(*byte));
        // Zero names no session; it comes up once in 2^128.
        Self(number.max(1))
    }

    /// Whether this may have come out of a source of chance. It cannot be known; but a counter, a repeated pattern
    /// and a rising row of bytes did not, and whoever guesses the id acts for the session. Of random ids less than
    /// one in 10^11 is taken for one of these.
    #[must_use]
    pub fn looks_random(self) -> bool {
        let bytes = self.0.to_be_bytes();
        let mut seen = [0_u128; 2];
        for byte in bytes {
            seen[usize::from(byte >> 7)] |= 1 << (byte & 127);
        }
        let distinct = seen[0].count_ones() + seen[1].count_ones();
        let step = bytes[1].wrapping_sub(bytes[0]);
        let is_row = bytes.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == step);
        distinct >= SESSION_DISTINCT_BYTES_MIN && !is_row && bytes[..8] != bytes[8..]
    }

    /// The secret's text, for its owner only.
    #[must_use]
    pub fn reveal(self) -> String {
        format!("{:032x}", self.0)
    }
}

/// Digests of secrets, of which the last one is remembered: a command and the question that goes with it name the
/// same session.
#[derive(Debug, Default)]
pub struct Digests(Option<(SessionId, SessionId)>);

impl Digests {
    /// The digest of a secret.
    pub fn of(&mut self, secret: SessionId) -> SessionId {
        match self.0 {
            Some((known, digest)) if known == secret => digest,
            Some(_) | None => {
                let digest = secret.digest();
                self.0 = Some((secret, digest));
                digest
            }
        }
    }
}

impl FromStr for SessionId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NameError::SessionId);
        }
        Self::new(u128::from_str_radix(text, 16).map_err(|_| NameError::SessionId)?)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(secret)")
    }
}

/// The public handle of a session: the revision that opened it.
///
/// Safe to log and to store in history: knowing it grants nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionNo(pub u64);

impl fmt::Display for SessionNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// Names one request, so that repeating it takes effect once.
///
/// It opens with the highest revision its sender had seen. A store that has forgotten ids up to a
/// later revision cannot know whether this one ran, and refuses it instead of running it again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// The highest revision the sender had seen when it first sent the request.
    pub seen: Revision,
    nonce: Box<str>,
}

impl RequestId {
    /// An id from its two parts.
    pub fn new(seen: Revision, nonce: &str) -> Result<Self, NameError> {
        let fits = (1..=REQUEST_NONCE_BYTES_MAX).contains(&nonce.len())
            && nonce.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if fits { Ok(Self { seen, nonce: nonce.into() }) } else { Err(NameError::RequestId) }
    }

    /// The sender's own part.
    #[must_use]
    pub fn nonce(&self) -> &str {
        &self.nonce
    }
}

impl FromStr for RequestId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (seen, nonce) = text.split_once('-').ok_or(NameError::RequestId)?;
        if seen.is_empty() || !seen.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NameError::RequestId);
        }
        let seen = Revision(seen.parse().map_err(|_| NameError::RequestId)?);
        Self::new(seen, nonce)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.seen, self.nonce)
    }
}

/// Where a group lives: the URL of a store, as its participants reach it. It is told to whoever asks, so it
/// should hold no password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home(Box<str>);

impl Home {
    /// Checks and keeps a URL; whether anything can be reached there is not asked.
    pub fn new(url: &str) -> Result<Self, NameError> {
        let kind = "place of a group";
        if url.is_empty() {
            return Err(NameError::Empty { kind });
        }
        if url.len() > HOME_BYTES_MAX {
            return Err(NameError::TooLong { kind, bytes: url.len(), max: HOME_BYTES_MAX });
        }
        if url.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
            return Err(NameError::Control { kind });
        }
        Ok(Self(url.into()))
    }

    /// The URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Home {
    type Err = NameError;

    fn from_str(url: &str) -> Result<Self, NameError> {
        Self::new(url)
    }
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A sentence of an administrator, kept in the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reason(Box<str>);

impl Reason {
    /// Checks and keeps a reason; it may be empty.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.len() > REASON_BYTES_MAX {
            return Err(NameError::TooLong {
                kind: "reason",
                bytes: text.len(),
                max: REASON_BYTES_MAX,
            });
        }
        if text.chars().any(char::is_control) {
            return Err(NameError::Control { kind: "reason" });
        }
        Ok(Self(text.into()))
    }

    /// The sentence.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether nothing was said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What a candidate tells the world about itself (address, version, zone), sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(Option<Arc<[MetadataEntry]>>);

type MetadataEntry = (Box<str>, Box<str>);

impl Metadata {
    /// Nothing told.
    pub const NONE: Self = Self(None);

    /// Checks and keeps the entries; a key given twice keeps its last value.
    pub fn new<K: AsRef<str>, V: AsRef<str>>(
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, NameError> {
        let mut sorted = std::collections::BTreeMap::<Box<str>, Box<str>>::new();
        let mut bytes = 0;
        for (key, value) in entries {
            let (key, value) = (key.as_ref(), value.as_ref());
            let is_word = (1..=64).contains(&key.len())
                && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
            if !is_word {
                return Err(NameError::MetadataKey { key: key.chars().take(80).collect() });
            }
            if value.chars().any(char::is_control) {
                return Err(NameError::Control { kind: "metadata value" });
            }
            bytes += key.len() + value.len();
            sorted.insert(key.into(), value.into());
            if sorted.len() > METADATA_ENTRIES_MAX || bytes > METADATA_BYTES_MAX {
                return Err(NameError::Metadata { entries: sorted.len(), bytes });
            }
        }
        if sorted.is_empty() {
            return Ok(Self::NONE);
        }
        Ok(Self(Some(sorted.into_iter().collect())))
    }

    /// The entries, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|entries| entries.iter()).map(|(key, value)| (&**key, &**value))
    }

    /// Whether nothing was told.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_refused_with_the_place() {
        for text in
            ["", "a b", "a\0", "ä", "../etc", "a/../b", "/a", "a/", "a//b", ".", "a%2f", "<b>"]
        {
            assert!(Group::new(text).is_err(), "{text:?}");
        }
        assert!(Group::new(&"a".repeat(GROUP_BYTES_MAX + 1)).is_err());
        let error = Node::new("web 1").unwrap_err().to_string();
        assert!(error.contains("' ' at byte 3"), "{error}");
    }

    #[test]
    fn ordinary_names_are_kept() {
        for text in ["billing", "team/svc-1", "a.b:c@d_e", "shard/0", "...x"] {
            assert_eq!(Group::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_session_id_never_shows_itself() {
        let session: SessionId = "00000000000000000000000000abcdef".parse().unwrap();
        assert!(!format!("{session:?}").contains("abcdef"));
        assert_eq!(session.reveal(), "00000000000000000000000000abcdef");
        for text in
            ["", "abc", "00000000000000000000000000000000", "+0000000000000000000000000abcdef"]
        {
            assert!(text.parse::<SessionId>().is_err(), "{text}");
        }
    }

    #[test]
    fn request_ids_carry_the_revision_they_were_made_at() {
        let id: RequestId = "17-8c1f0a".parse().unwrap();
        assert_eq!((id.seen, id.nonce()), (Revision(17), "8c1f0a"));
        assert_eq!(id.to_string(), "17-8c1f0a");
        for text in ["17", "-a", "17-", "x-a", "17-a b", "+1-a", "99999999999999999999-a"] {
            assert!(text.parse::<RequestId>().is_err(), "{text}");
        }
    }

    #[test]
    fn metadata_is_bounded() {
        let many = (0..=METADATA_ENTRIES_MAX).map(|n| (format!("k{n}"), "v"));
        assert!(Metadata::new(many).is_err());
        assert!(Metadata::new([("k", "v".repeat(METADATA_BYTES_MAX))]).is_err());
        assert!(Metadata::new([("k", "line\nbreak")]).is_err());
        assert!(Metadata::new([("", "v")]).is_err());
        let told = Metadata::new([("zone", "b"), ("address", "10.0.0.1:80")]).unwrap();
        assert_eq!(told.iter().next(), Some(("address", "10.0.0.1:80")));
    }
}
