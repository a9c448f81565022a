//! What is signed: the head of a chain.
//!
//! A checkpoint is a line of the chain that it covers, and covers every line before it. It is a compact JWS of a type
//! of its own, so that no signed term can pass for one.

use regent_signing::{KeyPair, PublicKeys, WhyNot, statement};
use serde::{Deserialize, Serialize};

/// What a checkpoint says it is.
const TYPE: &str = "regent-audit+jwt";

/// The head of a chain: the line before the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The id of the chain.
    pub chain: String,
    /// The number of its last line.
    pub seq: u64,
    /// The SHA-256 of that line.
    pub hash: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

impl Checkpoint {
    /// Signs it.
    #[must_use]
    pub fn sign(&self, kid: &str, key: &KeyPair) -> Option<String> {
        statement::sign(TYPE, self, kid, key)
    }

    /// The checkpoint that one of these keys signed, and the name of that key.
    pub(crate) fn open(signed: &str, keys: &PublicKeys) -> Result<(Self, String), WhyNot> {
        statement::open(TYPE, signed, keys)
    }
}
