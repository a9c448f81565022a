//! What is signed, and how it is judged.
//!
//! ```text
//! header   {"alg":"EdDSA","kid":"…","typ":"regent-term+jwt"}
//! payload  {"cluster":"…","group":"billing","term":101,"node":"web-1","session":"…",
//!           "not_after":1767225600,"exp":1767225600,"iat":1767225590}
//! ```
//!
//! `session` is a digest: the session's id is a secret. `exp` says `not_after` once more, because that is the
//! name by which JOSE libraries refuse what is over. Times are seconds of the wall clock. They bound how long a
//! stolen token is of use and nothing else: which leader may write is decided by the term.

use regent_election::limits::TERM_MAX;
use regent_election::{Group, SessionId, Term};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::jwks::PublicKeys;
use crate::key::KeyPair;
use crate::{encode, statement};

/// What a token says it is.
pub const TYPE: &str = "regent-term+jwt";
/// By how much the clock of whoever signed may be ahead.
pub const SKEW_SECONDS: u64 = 60;

/// What is signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The service that granted the term.
    pub cluster: String,
    pub group: String,
    pub term: u64,
    /// The node that holds it.
    pub node: String,
    /// A digest of the session that holds it.
    pub session: String,
    /// Until when the signature is good, in seconds since 1970.
    pub not_after: u64,
    /// The same, for JOSE libraries.
    pub exp: u64,
    /// When it was signed.
    pub iat: u64,
}

/// What a resource expects of a token.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Whose terms it compares.
    pub group: &'a Group,
    /// The service whose terms they are; `None` takes any that its keys sign for.
    pub cluster: Option<&'a str>,
}

/// Why a token is not believed. The messages are clauses for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhyNot {
    /// It is not what it should be at all.
    #[error("this is no signed term: {0}")]
    Malformed(&'static str),
    /// Its key is not known: it may have been retired, or be newer than the keys at hand.
    #[error("key {kid} is not known here")]
    UnknownKey {
        /// The key's name, as far as it is shown.
        kid: String,
    },
    /// It names another algorithm than its key's.
    #[error("its algorithm is not that of its key")]
    Algorithm,
    /// It was not signed by this key, or was changed since.
    #[error("its signature does not fit")]
    Signature,
    /// It is over.
    #[error("it was good until {not_after} and now is {now}")]
    Over {
        /// Until when it was good.
        not_after: u64,
        now: u64,
    },
    /// It was signed in the future.
    #[error("it was signed at {iat} and now is {now}; compare the clocks")]
    NotYet {
        /// When it was signed.
        iat: u64,
        now: u64,
    },
    /// It is for another group.
    #[error("it is for group {found}, not for {wanted}")]
    OtherGroup {
        found: String,
        /// The group that is guarded.
        wanted: Group,
    },
    /// It is from another service.
    #[error("it is from cluster {found}, not from {wanted}")]
    OtherCluster {
        found: String,
        /// The cluster that is expected.
        wanted: String,
    },
}

impl Claims {
    /// The term, if it is one.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        Term::new(self.term).filter(|term| *term != Term::NONE)
    }
}

/// What a token says of a session: enough to compare two, and nothing to act with.
#[must_use]
pub fn session_digest(session: SessionId) -> String {
    encode(&Sha256::digest(format!("regent session {}", session.reveal()).as_bytes()))
}

/// Signs a term with a key.
#[must_use]
pub fn sign(claims: &Claims, kid: &str, key: &KeyPair) -> Option<String> {
    statement::sign(TYPE, claims, kid, key)
}

/// Judges a token by the keys at hand, at `now` in seconds since 1970.
pub fn verify(
    token: &str,
    keys: &PublicKeys,
    expected: Expected<'_>,
    now: u64,
) -> Result<Claims, WhyNot> {
    let (claims, _) = statement::open(TYPE, token, keys)?;
    judge(claims, expected, now)
}

/// Judges what a key that is trusted has signed.
fn judge(claims: Claims, expected: Expected<'_>, now: u64) -> Result<Claims, WhyNot> {
    if !(1..=TERM_MAX).contains(&claims.term) || claims.exp != claims.not_after {
        return Err(WhyNot::Malformed("its payload contradicts itself"));
    }
    if claims.group != expected.group.as_str() {
        let wanted = expected.group.clone();
        return Err(WhyNot::OtherGroup { found: claims.group, wanted });
    }
    if let Some(wanted) = expected.cluster
        && claims.cluster != wanted
    {
        return Err(WhyNot::OtherCluster { found: claims.cluster, wanted: wanted.to_owned() });
    }
    if now >= claims.not_after {
        return Err(WhyNot::Over { not_after: claims.not_after, now });
    }
    if claims.iat > now.saturating_add(SKEW_SECONDS) {
        return Err(WhyNot::NotYet { iat: claims.iat, now });
    }
    Ok(claims)
}

#[cfg(test)]
mod tests;
