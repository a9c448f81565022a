//! The public keys: as a service publishes them (RFC 7517), and as a resource knows them.
//!
//! An Ed25519 key is a JWK of type `OKP` that any JOSE library reads. A hybrid key has a type of its own, which
//! the others pass over, as the format asks of them.

use serde::{Deserialize, Serialize};

use crate::key::{PublicKey, SigningAlgorithm};
use crate::{decode, encode};

/// Most keys that are taken from one place.
pub const KEYS_MAX: usize = 64;

/// A set of public keys on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jwks {
    pub keys: Vec<Jwk>,
}

/// One public key on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jwk {
    /// `OKP`, or `regent-hybrid`.
    pub kty: String,
    /// `Ed25519`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crv: Option<String>,
    /// The Ed25519 key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<String>,
    /// The ML-DSA-65 key of a hybrid one.
    #[serde(default, rename = "pub", skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alg: Option<String>,
    /// `sig`.
    #[serde(default, rename = "use", skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
}

/// The keys that somebody trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicKeys {
    keys: Vec<(String, PublicKey)>,
}

impl PublicKeys {
    /// These keys, each under its own name.
    pub fn new(keys: impl IntoIterator<Item = PublicKey>) -> Self {
        Self { keys: keys.into_iter().map(|key| (key.id(), key)).take(KEYS_MAX).collect() }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key of this name.
    #[must_use]
    pub fn find(&self, kid: &str) -> Option<&PublicKey> {
        self.keys.iter().find(|(name, _)| name == kid).map(|(_, key)| key)
    }

    /// The keys as they are published.
    #[must_use]
    pub fn to_jwks(&self) -> Jwks {
        Jwks { keys: self.keys.iter().map(|(_, key)| Jwk::from(key)).collect() }
    }
}

impl From<&PublicKey> for Jwk {
    fn from(key: &PublicKey) -> Self {
        let (ed25519, ml_dsa) = key.parts();
        let (kty, crv) = match key.algorithm() {
            SigningAlgorithm::EdDsa => ("OKP", Some("Ed25519".to_owned())),
            SigningAlgorithm::Hybrid => ("regent-hybrid", None),
        };
        Self {
            kty: kty.to_owned(),
            crv,
            x: Some(encode(ed25519)),
            other: ml_dsa.map(encode),
            kid: Some(key.id()),
            alg: Some(key.algorithm().word().to_owned()),
            purpose: Some("sig".to_owned()),
        }
    }
}

impl From<&Jwks> for PublicKeys {
    /// The keys that can be used here. A name is computed and not believed, so that no published name can
    /// stand for another key.
    fn from(published: &Jwks) -> Self {
        let key = |jwk: &Jwk| {
            let x = decode(jwk.x.as_deref()?)?;
            let other = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
                ("OKP", Some("Ed25519")) => None,
                ("regent-hybrid", None) => Some(decode(jwk.other.as_deref()?)?),
                _ => return None,
            };
            PublicKey::from_parts(&x, other).ok()
        };
        Self::new(published.keys.iter().filter_map(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyPair;

    #[test]
    fn published_keys_are_read_back_under_names_of_their_own() {
        let pair = KeyPair::from_seed(SigningAlgorithm::EdDsa, &[1; 32]).unwrap();
        let keys = PublicKeys::new([pair.public().clone()]);
        let text = serde_json::to_string(&keys.to_jwks()).unwrap();
        let mut published: Jwks = serde_json::from_str(&text).unwrap();
        assert_eq!(PublicKeys::from(&published), keys);
        published.keys[0].kid = Some("another".to_owned());
        assert_eq!(PublicKeys::from(&published), keys, "the name is computed");
    }

    /// The key and its thumbprint of RFC 8037, appendices A.2 and A.3.
    #[test]
    fn the_name_of_a_key_is_its_thumbprint() {
        let text = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
        let keys = PublicKeys::from(&serde_json::from_str::<Jwks>(text).unwrap());
        assert!(keys.find("kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k").is_some());
    }

    #[test]
    fn keys_of_other_kinds_are_passed_over() {
        let text = r#"{"keys":[
            {"kty":"RSA","n":"AQAB","e":"AQAB"},
            {"kty":"OKP","crv":"X25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
            {"kty":"OKP","crv":"Ed25519","x":"AAAA"},
            {"kty":"OKP","crv":"Ed25519","x":"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]}"#;
        let keys = PublicKeys::from(&serde_json::from_str::<Jwks>(text).unwrap());
        assert!(keys.is_empty(), "{keys:?}");
    }
}
