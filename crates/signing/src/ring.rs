//! The keys of a service, and which of them signs when.
//!
//! A key is published before it signs (`sign_from`), so that resources that fetch keys now and then know it in
//! time; and it is published after it has signed for the last time (`retire_at`), so that what it signed is
//! believed to its end. Between the two, the youngest key signs.

use serde::{Deserialize, Serialize};

use crate::jwks::{KEYS_MAX, PublicKeys};
use crate::key::{KeyError, KeyPair, SigningAlgorithm};
use crate::{decode, encode};

/// One key of the ring, as it is stored. Times are seconds since 1970.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyEntry {
    /// Its name: a digest of the public key.
    pub kid: String,
    pub algorithm: SigningAlgorithm,
    /// When it was made.
    pub created_at: u64,
    /// From when on it signs.
    pub sign_from: u64,
    /// From when on nobody believes it; it signs nothing from when this is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retire_at: Option<u64>,
    secret: String,
}

impl std::fmt::Debug for KeyEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyEntry")
            .field("kid", &self.kid)
            .field("algorithm", &self.algorithm)
            .field("sign_from", &self.sign_from)
            .field("retire_at", &self.retire_at)
            .finish_non_exhaustive()
    }
}

/// What a key does at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyStanding {
    /// It is published and does not sign yet.
    Coming,
    Signs,
    /// It is believed, and another one signs.
    Believed,
    /// It is believed by nobody any more.
    Retired,
}

/// Why a ring cannot be used or changed so. The messages are clauses for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// A key is not one.
    #[error("key {kid}: {why}")]
    Key { kid: String, why: KeyError },
    /// A key is not what its name says.
    #[error("key {kid} is another one than its name says")]
    Name { kid: String },
    /// There is no such key.
    #[error("there is no key {kid}; `regent fence keys list` shows them")]
    Unknown { kid: String },
    /// The last key that signs cannot be retired.
    #[error(
        "key {kid} is the only one that signs; rotate first, and retire it when the new one signs"
    )]
    Last { kid: String },
    /// There are as many as there may be.
    #[error("there are {KEYS_MAX} keys already; retire some")]
    Full,
}

/// The keys of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ring {
    version: u32,
    keys: Vec<KeyEntry>,
}

/// The version that is written.
const VERSION: u32 = 1;

impl KeyEntry {
    /// A key from a secret that nobody can guess.
    pub fn new(
        algorithm: SigningAlgorithm,
        seed: &[u8],
        created_at: u64,
        sign_from: u64,
    ) -> Result<Self, KeyError> {
        let kid = KeyPair::from_seed(algorithm, seed)?.public().id();
        let secret = encode(seed);
        Ok(Self { kid, algorithm, created_at, sign_from, retire_at: None, secret })
    }

    /// The key itself.
    pub fn pair(&self) -> Result<KeyPair, RingError> {
        let seed = decode(&self.secret).ok_or(KeyError::Malformed(self.algorithm));
        let pair = seed
            .and_then(|seed| KeyPair::from_seed(self.algorithm, &seed))
            .map_err(|why| RingError::Key { kid: self.kid.clone(), why })?;
        if pair.public().id() != self.kid {
            return Err(RingError::Name { kid: self.kid.clone() });
        }
        Ok(pair)
    }

    fn is_retired(&self, now: u64) -> bool {
        self.retire_at.is_some_and(|at| at <= now)
    }
}

impl Ring {
    /// A ring without keys.
    #[must_use]
    pub const fn empty() -> Self {
        Self { version: VERSION, keys: Vec::new() }
    }

    /// All keys, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[KeyEntry] {
        &self.keys
    }

    /// Whether the version is one that can be read, and every key is what it says.
    pub(crate) fn check(&self) -> Result<(), RingError> {
        if self.keys.len() > KEYS_MAX {
            return Err(RingError::Full);
        }
        for entry in &self.keys {
            entry.pair()?;
        }
        Ok(())
    }

    pub(crate) const fn is_of_this_version(&self) -> bool {
        self.version == VERSION
    }

    /// Takes a key in; those that nobody believes any more go.
    pub fn add(&mut self, entry: KeyEntry, now: u64) -> Result<(), RingError> {
        self.keys.retain(|old| !old.is_retired(now));
        if self.keys.len() >= KEYS_MAX {
            return Err(RingError::Full);
        }
        self.keys.push(entry);
        Ok(())
    }

    /// A key signs nothing any more, and is believed until `at`.
    pub fn retire(&mut self, kid: &str, at: u64, now: u64) -> Result<(), RingError> {
        let unknown = || RingError::Unknown { kid: kid.to_owned() };
        let index = self.keys.iter().position(|entry| entry.kid == kid).ok_or_else(unknown)?;
        let another_signs = self.keys.iter().enumerate().any(|(other, entry)| {
            other != index && entry.retire_at.is_none() && entry.sign_from <= now
        });
        if !another_signs {
            return Err(RingError::Last { kid: kid.to_owned() });
        }
        self.keys[index].retire_at = Some(at);
        Ok(())
    }

    /// The key that signs now: the youngest that may.
    #[must_use]
    pub fn signer(&self, now: u64) -> Option<&KeyEntry> {
        self.keys
            .iter()
            .filter(|entry| entry.retire_at.is_none() && entry.sign_from <= now)
            .max_by_key(|entry| (entry.sign_from, entry.created_at))
    }

    /// What a key does now.
    #[must_use]
    pub fn standing(&self, entry: &KeyEntry, now: u64) -> KeyStanding {
        if entry.is_retired(now) {
            KeyStanding::Retired
        } else if self.signer(now).is_some_and(|signer| signer.kid == entry.kid) {
            KeyStanding::Signs
        } else if entry.retire_at.is_none() && entry.sign_from > now {
            KeyStanding::Coming
        } else {
            KeyStanding::Believed
        }
    }

    /// The keys that are published now.
    #[must_use]
    pub fn published(&self, now: u64) -> PublicKeys {
        let believed = self.keys.iter().filter(|entry| !entry.is_retired(now));
        PublicKeys::new(believed.filter_map(|entry| Some(entry.pair().ok()?.public().clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(byte: u8, sign_from: u64) -> KeyEntry {
        KeyEntry::new(SigningAlgorithm::EdDsa, &[byte; 32], 0, sign_from).unwrap()
    }

    #[test]
    fn a_key_is_published_before_it_signs_and_after_it_has_signed() {
        let mut ring = Ring::empty();
        assert!(ring.signer(0).is_none());
        let (old, new) = (entry(1, 0), entry(2, 100));
        ring.add(old.clone(), 0).unwrap();
        ring.add(new.clone(), 10).unwrap();
        let standing = |ring: &Ring, now| {
            [&old, &new].map(|key| {
                let entry = ring.entries().iter().find(|entry| entry.kid == key.kid).unwrap();
                ring.standing(entry, now)
            })
        };
        assert_eq!(standing(&ring, 99), [KeyStanding::Signs, KeyStanding::Coming]);
        assert_eq!(ring.published(99).len(), 2);
        assert_eq!(standing(&ring, 100), [KeyStanding::Believed, KeyStanding::Signs]);
        ring.retire(&old.kid, 200, 150).unwrap();
        assert_eq!(standing(&ring, 199), [KeyStanding::Believed, KeyStanding::Signs]);
        assert_eq!(ring.published(199).len(), 2);
        assert_eq!(standing(&ring, 200), [KeyStanding::Retired, KeyStanding::Signs]);
        assert!(ring.published(200).find(&old.kid).is_none());
        ring.add(entry(3, 300), 250).unwrap();
        assert_eq!(ring.entries().len(), 2, "who is believed by nobody goes");
    }

    #[test]
    fn the_last_key_that_signs_stays() {
        let mut ring = Ring::empty();
        let (first, second) = (entry(1, 0), entry(2, 100));
        ring.add(first.clone(), 0).unwrap();
        ring.add(second, 0).unwrap();
        assert!(matches!(ring.retire(&first.kid, 60, 50), Err(RingError::Last { .. })));
        assert!(matches!(ring.retire("nobody", 60, 50), Err(RingError::Unknown { .. })));
        ring.retire(&first.kid, 160, 100).unwrap();
    }

    #[test]
    fn a_secret_is_not_shown() {
        let entry = entry(1, 0);
        let shown = format!("{entry:?} {:?} {:?}", Ring::empty(), entry.pair().unwrap());
        assert!(!shown.contains(&entry.secret), "{shown}");
        assert!(!shown.contains("secret"), "{shown}");
    }
}
