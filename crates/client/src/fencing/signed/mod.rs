//! Signed terms, verified: a term that is believed because its service signed it, and for no other reason.
//!
//! A number can be written by anybody. Whoever stands before a resource and holds its credentials (a gateway,
//! a service with handlers, a worker that writes for others) can ask for the token that the service signed,
//! and gets a [`Verified`] term out of it, which every adapter takes as it takes a permit. There is no other way
//! to make one:
//!
//! ```no_run
//! use regent::fencing::file::FencedFile;
//! use regent::fencing::signed::Verifier;
//!
//! # async fn example(token: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let keys = "https://regent.example/.well-known/regent-keys";
//! let verifier = Verifier::fetching(keys, "billing".parse()?).await?.of_cluster("main");
//! let leader = verifier.verify(token).await?; // forged, over, of another group: refused here
//! FencedFile::at("ledger.json").replace(&leader, b"paid")?; // stale: refused there
//! # Ok(())
//! # }
//! ```
//!
//! **What this is not.** A verified token says that a node *held* the term; the fence still compares it. And what is
//! verified is verified in this process: a storage that compares numbers (PostgreSQL, Redis, DynamoDB, objects,
//! files) believes the number of whoever has its credentials.
//!
//! - `keys`: where public keys come from, and when they are looked at again.
//! - here: how a token is judged by them.

mod keys;

use std::time::{SystemTime, UNIX_EPOCH};

use regent_election::{FenceError, Group, Term};
pub use regent_signing::{Claims, Jwks, PublicKeys, WhyNot};
use regent_signing::{Expected, verify};

use self::keys::Keys;
pub use self::keys::KeysError;
use super::{Proof, sealed};

/// Why a token gives no term. The messages are clauses for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unbelieved {
    /// It is not to be believed: by these keys, for this group, at this time.
    #[error(transparent)]
    Not(#[from] WhyNot),
    /// Nobody can say: the keys at hand are too old to be trusted, and others are not to be had.
    #[error(
        "the keys are {age_s} s old and cannot be fetched anew: a key that was retired since would be believed"
    )]
    KeysTooOld {
        /// How old they are.
        age_s: u64,
    },
}

/// Judges tokens for one group. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct Verifier {
    group: Group,
    cluster: Option<String>,
    keys: Keys,
}

impl Verifier {
    /// Terms of this group, signed by one of these keys, which stay as they are.
    #[must_use]
    pub fn of_keys(keys: PublicKeys, group: Group) -> Self {
        Self { group, cluster: None, keys: Keys::given(keys) }
    }

    /// Terms of this group, signed by a key of this file: a JWKS, as `regent fence keys publish` prints it. The file
    /// is looked at again at most once a second; one that cannot be read then leaves the keys as they were.
    pub fn reading(path: impl Into<std::path::PathBuf>, group: Group) -> Result<Self, KeysError> {
        Ok(Self { group, cluster: None, keys: Keys::read(path.into())? })
    }

    /// Terms of this group, signed by a key that is published at this address, `http://` or (with the feature
    /// `tls`) `https://`. Without a path it is `/.well-known/regent-keys`.
    ///
    /// Keys are fetched now, or this fails; again after five minutes, and for a token by a key that is not
    /// known; never more often than once in ten seconds, however many such tokens come. When they
    /// could not be fetched for an hour, nothing is believed any more.
    pub async fn fetching(url: &str, group: Group) -> Result<Self, KeysError> {
        Ok(Self { group, cluster: None, keys: Keys::fetch(url).await? })
    }

    /// The same, for terms of this cluster alone. Where several clusters share keys, their terms are not the
    /// same terms.
    #[must_use]
    pub fn of_cluster(self, cluster: impl Into<String>) -> Self {
        Self { cluster: Some(cluster.into()), ..self }
    }

    /// The group whose terms these are.
    #[must_use]
    pub const fn group(&self) -> &Group {
        &self.group
    }

    /// The term of a token, if it is to be believed now.
    pub async fn verify(&self, token: &str) -> Result<Verified, Unbelieved> {
        let keys = self.keys.at_hand().await?;
        match self.judge(token, &keys) {
            Err(WhyNot::UnknownKey { .. }) => {
                let keys = self.keys.looked_at_again().await?;
                Ok(self.judge(token, &keys)?)
            }
            judged => Ok(judged?),
        }
    }

    fn judge(&self, token: &str, keys: &PublicKeys) -> Result<Verified, WhyNot> {
        let expected = Expected { group: &self.group, cluster: self.cluster.as_deref() };
        let claims = verify(token, keys, expected, wall_seconds())?;
        let term = claims.term().ok_or(WhyNot::Malformed("it has no term"))?;
        Ok(Verified { term, claims })
    }
}

/// A term that was verified. Only [`Verifier::verify`] makes one.
///
/// It is good for the write that brought the token. Whoever keeps it and writes again later should verify
/// again: the token may be over by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    term: Term,
    claims: Claims,
}

impl Verified {
    /// The term.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
    }

    /// Everything that was signed.
    #[must_use]
    pub const fn claims(&self) -> &Claims {
        &self.claims
    }
}

impl sealed::Sealed for Verified {}

impl Proof for Verified {
    fn term(&self) -> Term {
        self.term
    }

    /// Nothing: the office is somebody else's, in another process, which is told by the answer.
    fn refused(&self, _: &FenceError) {}
}

/// The wall clock, which a token's end is compared with. It bounds how long a stolen token is of use, and decides
/// nothing between leaders.
fn wall_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
pub(super) mod tests;
