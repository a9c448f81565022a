//! Signed terms: whoever holds one can show it to a resource, and the resource refuses a forged one without
//! asking anybody.
//!
//! A term is a number, and anybody can write a number. A signed term is a compact JWS (RFC 7515) that any JOSE
//! library verifies: the service says that this node held this term of this group, and until when the
//! signature is good. It does not say that the term is still in office: a fence still has to compare it.
//!
//! - [`token`]: what is signed, and how it is judged. Pure functions; time is an argument.
//! - [`statement`]: how anything is signed and opened; checkpoints of the audit log use it, too.
//! - [`key`]: the algorithms. Ed25519; with the feature `hybrid` also Ed25519 and ML-DSA-65 together.
//! - [`ring`]: the keys of a service, and which of them signs when.
//! - [`mod@file`]: the ring on disk, shared by all instances of a service.
//! - [`jwks`]: the public keys, as they are published and as a resource knows them.
//!
//! The road not taken is a general JOSE library: the freedoms of that format (a dozen algorithms, keys named by
//! the token itself, `none`) are where its verifiers were broken. Here a key has one algorithm, and a token is
//! judged by that and not by what it says of itself.

pub mod file;
pub mod jwks;
pub mod key;
pub mod ring;
pub mod rotation;
pub mod statement;
pub mod token;

pub use file::{KeyFile, KeyFileError};
pub use jwks::{Jwks, PublicKeys};
pub use key::{KeyError, KeyPair, PublicKey, SigningAlgorithm};
pub use ring::{KeyEntry, Ring, RingError};
pub use token::{Claims, Expected, WhyNot, session_digest, sign, verify};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Bytes as JOSE writes them.
pub(crate) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What JOSE wrote; one spelling only.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}
