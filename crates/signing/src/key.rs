//! One key and its one algorithm.
//!
//! | algorithm | signature |
//! |---|---|
//! | `EdDSA` | Ed25519 (RFC 8037), 64 bytes |
//! | `EdDSA+ML-DSA-65` | 64 bytes of Ed25519, then 3309 bytes of ML-DSA-65 (FIPS 204), both over the same input; both must verify |
//!
//! The name of the algorithm stands in the header, which is signed: cutting one half off and renaming the rest
//! breaks what is left, and a key of the one kind is never used for the other.

use std::fmt;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::encode;

/// Bytes of a secret of either kind.
pub const SEED_BYTES: usize = 32;
const ED25519_BYTES: usize = 64;

/// How something is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SigningAlgorithm {
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
    /// Ed25519 and ML-DSA-65, both.
    #[serde(rename = "EdDSA+ML-DSA-65")]
    Hybrid,
}

impl SigningAlgorithm {
    /// The word in a token's header.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::EdDsa => "EdDSA",
            Self::Hybrid => "EdDSA+ML-DSA-65",
        }
    }

    /// Bytes of its secret: one seed after the other.
    #[must_use]
    pub const fn seed_bytes(self) -> usize {
        match self {
            Self::EdDsa => SEED_BYTES,
            Self::Hybrid => 2 * SEED_BYTES,
        }
    }
}

impl fmt::Display for SigningAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It is no key of this kind.
    #[error("these are no {0} key's bytes")]
    Malformed(SigningAlgorithm),
    /// It cannot be had in this build.
    #[error("{0} is not in this build; build with the feature \"hybrid\"")]
    NotBuiltIn(SigningAlgorithm),
}

/// A key that signs. Its `Debug` shows nothing secret.
pub struct KeyPair {
    ed25519: SigningKey,
    #[cfg(feature = "hybrid")]
    ml_dsa: Option<aws_lc_rs::signature::PqdsaKeyPair>,
    public: PublicKey,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair").field("public", &self.public).finish_non_exhaustive()
    }
}

/// A key that verifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    ed25519: VerifyingKey,
    /// The other half of a hybrid key.
    ml_dsa: Option<Vec<u8>>,
}

impl KeyPair {
    /// The key of a secret: [`SigningAlgorithm::seed_bytes`] bytes that nobody can guess.
    pub fn from_seed(algorithm: SigningAlgorithm, seed: &[u8]) -> Result<Self, KeyError> {
        if seed.len() != algorithm.seed_bytes() {
            return Err(KeyError::Malformed(algorithm));
        }
        let first: &[u8; SEED_BYTES] =
            seed[..SEED_BYTES].try_into().map_err(|_| KeyError::Malformed(algorithm))?;
        let ed25519 = SigningKey::from_bytes(first);
        match algorithm {
            SigningAlgorithm::EdDsa => {
                let public = PublicKey { ed25519: ed25519.verifying_key(), ml_dsa: None };
                Ok(Self {
                    ed25519,
                    #[cfg(feature = "hybrid")]
                    ml_dsa: None,
                    public,
                })
            }
            #[cfg(feature = "hybrid")]
            SigningAlgorithm::Hybrid => {
                use aws_lc_rs::signature::{KeyPair as _, ML_DSA_65_SIGNING, PqdsaKeyPair};
                let ml_dsa = PqdsaKeyPair::from_seed(&ML_DSA_65_SIGNING, &seed[SEED_BYTES..])
                    .map_err(|_| KeyError::Malformed(algorithm))?;
                let public = PublicKey {
                    ed25519: ed25519.verifying_key(),
                    ml_dsa: Some(ml_dsa.public_key().as_ref().to_vec()),
                };
                Ok(Self { ed25519, ml_dsa: Some(ml_dsa), public })
            }
            #[cfg(not(feature = "hybrid"))]
            SigningAlgorithm::Hybrid => Err(KeyError::NotBuiltIn(algorithm)),
        }
    }

    /// The public half.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs. `None` if the library refuses, which it does for want of memory only.
    pub(crate) fn sign(&self, input: &[u8]) -> Option<Vec<u8>> {
        let signature = self.ed25519.sign(input).to_bytes().to_vec();
        #[cfg(feature = "hybrid")]
        if let Some(ml_dsa) = &self.ml_dsa {
            let mut both = signature;
            both.resize(ED25519_BYTES + ml_dsa.algorithm().signature_len(), 0);
            let length = ml_dsa.sign(input, &mut both[ED25519_BYTES..]).ok()?;
            both.truncate(ED25519_BYTES + length);
            return Some(both);
        }
        Some(signature)
    }
}

impl PublicKey {
    /// A key from its published parts.
    pub fn from_parts(ed25519: &[u8], ml_dsa: Option<Vec<u8>>) -> Result<Self, KeyError> {
        let algorithm =
            if ml_dsa.is_some() { SigningAlgorithm::Hybrid } else { SigningAlgorithm::EdDsa };
        let malformed = KeyError::Malformed(algorithm);
        let bytes: &[u8; 32] = ed25519.try_into().map_err(|_| malformed)?;
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| malformed)?;
        // A weak key verifies what nobody signed.
        if key.is_weak() {
            return Err(malformed);
        }
        Ok(Self { ed25519: key, ml_dsa })
    }

    /// What it verifies.
    #[must_use]
    pub const fn algorithm(&self) -> SigningAlgorithm {
        match self.ml_dsa {
            None => SigningAlgorithm::EdDsa,
            Some(_) => SigningAlgorithm::Hybrid,
        }
    }

    pub(crate) fn parts(&self) -> (&[u8; 32], Option<&[u8]>) {
        (self.ed25519.as_bytes(), self.ml_dsa.as_deref())
    }

    /// The name of the key: a digest of it. For Ed25519 it is the thumbprint of RFC 7638.
    #[must_use]
    pub fn id(&self) -> String {
        let x = encode(self.ed25519.as_bytes());
        let text = match &self.ml_dsa {
            None => format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#),
            Some(other) => {
                let other = encode(other);
                format!(r#"{{"kty":"regent-hybrid","pub":"{other}","x":"{x}"}}"#)
            }
        };
        encode(&Sha256::digest(text.as_bytes()))
    }

    /// Whether this signature is this key's.
    pub(crate) fn verifies(&self, input: &[u8], signature: &[u8]) -> bool {
        let Some((first, rest)) = signature.split_at_checked(ED25519_BYTES) else { return false };
        let Ok(first) = Signature::from_slice(first) else { return false };
        if self.ed25519.verify_strict(input, &first).is_err() {
            return false;
        }
        match &self.ml_dsa {
            None => rest.is_empty(),
            Some(key) => verifies_ml_dsa(key, input, rest),
        }
    }
}

#[cfg(feature = "hybrid")]
fn verifies_ml_dsa(key: &[u8], input: &[u8], signature: &[u8]) -> bool {
    use aws_lc_rs::signature::{ML_DSA_65, UnparsedPublicKey};
    UnparsedPublicKey::new(&ML_DSA_65, key).verify(input, signature).is_ok()
}

/// What cannot be verified is not believed.
#[cfg(not(feature = "hybrid"))]
fn verifies_ml_dsa(_: &[u8], _: &[u8], _: &[u8]) -> bool {
    false
}
