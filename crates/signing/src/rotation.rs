//! What an operator does with a file of keys: make it, rotate its keys, retire one, look at them.
//!
//! Dates are seconds since 1970 and an argument: keys are read on other machines, so the caller reads the wall
//! clock.

use std::path::Path;

use serde::Serialize;

use crate::file::{KeyFile, KeyFileError};
use crate::key::{KeyError, SigningAlgorithm};
use crate::ring::{KeyEntry, KeyStanding, Ring, RingError};

/// Why keys were not changed.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// The system gives no random numbers, so no key can be made.
    #[error("this machine gives no random numbers")]
    NoRandomness,
    /// There is no key of that kind in this build.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The ring refuses the change.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] KeyFileError),
}

/// Makes a file with one key that signs at once.
pub fn create(
    path: &Path,
    algorithm: SigningAlgorithm,
    now: u64,
) -> Result<KeyFile, RotationError> {
    let mut ring = Ring::empty();
    ring.add(fresh(algorithm, now, now)?, now)?;
    Ok(KeyFile::create(path, &ring)?)
}

/// Adds a key that signs from `sign_from` on, and is published until then.
pub fn rotate(
    path: &Path,
    algorithm: SigningAlgorithm,
    now: u64,
    sign_from: u64,
) -> Result<KeyFile, RotationError> {
    let mut file = KeyFile::open(path)?;
    let mut ring = file.ring().clone();
    ring.add(fresh(algorithm, now, sign_from)?, now)?;
    file.replace(ring)?;
    Ok(file)
}

/// Lets a key sign nothing any more, and be believed until `at`.
pub fn retire(path: &Path, kid: &str, now: u64, at: u64) -> Result<KeyFile, RotationError> {
    let mut file = KeyFile::open(path)?;
    let mut ring = file.ring().clone();
    ring.retire(kid, at, now)?;
    file.replace(ring)?;
    Ok(file)
}

/// One key without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    pub kid: String,
    pub algorithm: SigningAlgorithm,
    /// What it does now.
    pub standing: KeyStanding,
    /// When it was made.
    pub created_at: u64,
    /// From when on it signs.
    pub sign_from: u64,
    /// From when on nobody believes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retire_at: Option<u64>,
}

impl Listed {
    /// What the key does, in words; `show` writes a number of seconds.
    pub fn told(&self, now: u64, show: impl Fn(u64) -> String) -> String {
        let until = |at: u64| show(at.saturating_sub(now));
        match (self.standing, self.retire_at) {
            (KeyStanding::Coming, _) => format!("signs in {}", until(self.sign_from)),
            (KeyStanding::Signs, _) => "signs".to_owned(),
            (KeyStanding::Believed, Some(at)) => format!("believed for {}", until(at)),
            (KeyStanding::Believed, None) => "believed".to_owned(),
            (KeyStanding::Retired, _) => "retired".to_owned(),
        }
    }
}

/// The keys and what each does now, oldest first.
#[must_use]
pub fn list(ring: &Ring, now: u64) -> Vec<Listed> {
    let listed = ring.entries().iter().map(|entry| Listed {
        kid: entry.kid.clone(),
        algorithm: entry.algorithm,
        standing: ring.standing(entry, now),
        created_at: entry.created_at,
        sign_from: entry.sign_from,
        retire_at: entry.retire_at,
    });
    listed.collect()
}

/// A key that nobody can guess.
fn fresh(algorithm: SigningAlgorithm, now: u64, sign_from: u64) -> Result<KeyEntry, RotationError> {
    let mut seed = vec![0; algorithm.seed_bytes()];
    loop {
        getrandom::fill(&mut seed).map_err(|_| RotationError::NoRandomness)?;
        let entry = KeyEntry::new(algorithm, &seed, now, sign_from)?;
        // One name in 64 begins with a hyphen, which a command line takes for a flag.
        if !entry.kid.starts_with('-') {
            return Ok(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a thousand names about sixteen would, if nobody looked.
    #[test]
    fn no_key_has_a_name_that_a_command_line_takes_for_a_flag() {
        for _ in 0..1_000 {
            assert!(!fresh(SigningAlgorithm::EdDsa, 0, 0).unwrap().kid.starts_with('-'));
        }
    }
}
