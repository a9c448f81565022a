//! The keys of an issuer: a JSON Web Key Set (RFC 7517), of which only public keys for signatures are read.

use std::collections::BTreeMap;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use crate::limits::{KEYS_BYTES_MAX, KEYS_MAX};

/// How a token may be signed. Nothing else is believed: no shared secrets, and not `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenAlgorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Es256,
    Es384,
    EdDsa,
}

impl TokenAlgorithm {
    pub const ALL: [Self; 7] =
        [Self::Rs256, Self::Rs384, Self::Rs512, Self::Ps256, Self::Es256, Self::Es384, Self::EdDsa];
    /// What issuers use if an entry does not say.
    pub const DEFAULT: [Self; 3] = [Self::Rs256, Self::Es256, Self::EdDsa];

    /// Its name in JOSE.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn find(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.word() == word)
    }

    const fn rsa(self) -> Option<&'static RsaParameters> {
        match self {
            Self::Rs256 => Some(&RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => Some(&RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => Some(&RSA_PKCS1_2048_8192_SHA512),
            Self::Ps256 => Some(&RSA_PSS_2048_8192_SHA256),
            Self::Es256 | Self::Es384 | Self::EdDsa => None,
        }
    }
}

/// Why a set of keys is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the set of keys has more than {KEYS_BYTES_MAX} bytes")]
    TooLarge,
    #[error("it is no JSON Web Key Set: {0}")]
    Malformed(String),
    #[error("the set has {0} keys, and at most {KEYS_MAX} are read")]
    TooMany(usize),
    #[error("the set has no public key for signatures that can be used")]
    Empty,
}

/// A public key.
#[derive(Clone, PartialEq, Eq)]
enum Public {
    /// Its modulus and exponent.
    Rsa(Vec<u8>, Vec<u8>),
    /// A point or a string of bytes, for exactly one algorithm.
    Bytes(TokenAlgorithm, Vec<u8>),
}

/// One key, and what its owner says it is for.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    public: Public,
    /// If the set says it: the key verifies nothing else.
    algorithm: Option<TokenAlgorithm>,
}

/// The keys of an issuer, by name.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct KeySet {
    keys: BTreeMap<String, Key>,
}

impl std::fmt::Debug for KeySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.keys.keys()).finish()
    }
}

#[derive(Deserialize)]
struct Page {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Row {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Reads a set. Keys of other kinds, and those without a name, are left out: a set may hold what others need.
    ///
    /// # Errors
    /// If nothing in it can be used.
    pub fn read(bytes: &[u8]) -> Result<Self, KeyError> {
        if bytes.len() > KEYS_BYTES_MAX {
            return Err(KeyError::TooLarge);
        }
        let page: Page = serde_json::from_slice(bytes)
            .map_err(|error| KeyError::Malformed(error.to_string()))?;
        if page.keys.len() > KEYS_MAX {
            return Err(KeyError::TooMany(page.keys.len()));
        }
        let is_empty = page.keys.is_empty();
        let mut keys = BTreeMap::new();
        for row in page.keys {
            let row: Option<Row> = serde_json::from_value(row).ok();
            if let Some((kid, key)) = row.and_then(Row::key) {
                // Of two keys of one name neither can be meant: the set is broken.
                if keys.insert(kid.clone(), key).is_some() {
                    return Err(KeyError::Malformed(format!("two keys are called {kid:?}")));
                }
            }
        }
        // An issuer that withdraws its only key publishes none; a set of which nothing can be used is a mistake.
        if keys.is_empty() && !is_empty { Err(KeyError::Empty) } else { Ok(Self { keys }) }
    }

    /// Whether there is a key of this name.
    #[must_use]
    pub fn knows(&self, kid: &str) -> bool {
        self.keys.contains_key(kid)
    }

    /// Whether the key of this name is the same here as in another set.
    #[must_use]
    pub fn agrees(&self, other: &Self, kid: &str) -> bool {
        self.keys.get(kid).is_some_and(|key| other.keys.get(kid) == Some(key))
    }

    /// Whether the key of this name has made this signature by this algorithm.
    pub(crate) fn verifies(
        &self,
        kid: &str,
        algorithm: TokenAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let Some(key) = self.keys.get(kid) else { return false };
        if key.algorithm.is_some_and(|only| only != algorithm) {
            return false;
        }
        match (&key.public, algorithm.rsa()) {
            (Public::Rsa(n, e), Some(parameters)) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
            }
            (Public::Bytes(of, bytes), None) if *of == algorithm => {
                let how: &'static dyn VerificationAlgorithm = match of {
                    TokenAlgorithm::Es256 => &ECDSA_P256_SHA256_FIXED,
                    TokenAlgorithm::Es384 => &ECDSA_P384_SHA384_FIXED,
                    TokenAlgorithm::EdDsa => &ED25519,
                    TokenAlgorithm::Rs256
                    | TokenAlgorithm::Rs384
                    | TokenAlgorithm::Rs512
                    | TokenAlgorithm::Ps256 => return false,
                };
                UnparsedPublicKey::new(how, bytes).verify(message, signature).is_ok()
            }
            (Public::Rsa(..), None) | (Public::Bytes(..), Some(_) | None) => false,
        }
    }
}

impl Row {
    /// Its name and the key, if it is one that can be used.
    fn key(self) -> Option<(String, Key)> {
        if self.usage.as_deref().is_some_and(|usage| usage != "sig") {
            return None;
        }
        let algorithm = match &self.alg {
            // A key for something that is never believed.
            Some(word) => Some(TokenAlgorithm::find(word)?),
            None => None,
        };
        let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_ref()?).ok();
        let point = |algorithm, size: usize| {
            let (x, y) = (bytes(&self.x)?, bytes(&self.y)?);
            let fits = x.len() == size && y.len() == size;
            fits.then(|| Public::Bytes(algorithm, [&[4][..], &x, &y].concat()))
        };
        let public = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", None) => Public::Rsa(bytes(&self.n)?, bytes(&self.e)?),
            ("EC", Some("P-256")) => point(TokenAlgorithm::Es256, 32)?,
            ("EC", Some("P-384")) => point(TokenAlgorithm::Es384, 48)?,
            ("OKP", Some("Ed25519")) => {
                let key = bytes(&self.x).filter(|key| key.len() == 32)?;
                Public::Bytes(TokenAlgorithm::EdDsa, key)
            }
            _ => return None,
        };
        Some((self.kid.filter(|kid| !kid.is_empty())?, Key { public, algorithm }))
    }
}
