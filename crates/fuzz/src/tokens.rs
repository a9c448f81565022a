//! What proves who somebody is: tokens, signed terms, certificates.

use regent_audit::Checkpoint;
use regent_election::Group;
use regent_election::access::BearerToken;
use regent_jwt::issuers::Issuer;
use regent_jwt::token::{Unverified, verify as verify_jwt};
use regent_jwt::{KeySet, issuers};
use regent_signing::{
    Claims, Expected, Jwks, KeyPair, PublicKeys, Ring, SigningAlgorithm, statement, verify,
};

use crate::with_text;

/// The time of every judgement.
const NOW_S: u64 = 1_700_000_000;

/// A key that signs whatever the fuzzer says.
fn pair() -> KeyPair {
    let seed = vec![7; SigningAlgorithm::EdDsa.seed_bytes()];
    KeyPair::from_seed(SigningAlgorithm::EdDsa, &seed).expect("the seed has the right length")
}

/// What is trusted.
pub(crate) fn keys() -> PublicKeys {
    PublicKeys::new([pair().public().clone()])
}

/// Bearer tokens of our own and of others, and the keys of these.
pub(crate) fn token(bytes: &[u8]) {
    let _ = KeySet::read(bytes);
    with_text(bytes, |text| {
        if let Ok(token) = text.parse::<BearerToken>() {
            let shown = token.reveal();
            assert_eq!(shown, text, "a token has one spelling");
        }
        // The first line may be a set of keys, the rest a token that one of them signed.
        let (set, jwt) = text.split_once('\n').unwrap_or((KEYS, text));
        let keys = KeySet::read(set.as_bytes()).or_else(|_| KeySet::read(KEYS.as_bytes()));
        let (Ok(keys), Ok(token)) = (keys, Unverified::read(jwt.trim())) else { return };
        let issuers: Vec<Issuer> = issuers::fuzz(ISSUERS).unwrap_or_default();
        if let Ok(issuer) = token.issuer(&issuers) {
            let _ = verify_jwt(&token, issuer, &keys, NOW_S);
        }
    });
}

const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
const ISSUERS: &str = r#"
[[issuer]]
issuer = "https://example.org"
audience = ["regent"]
keys = "keys.json"
principal = "node"
"#;

/// Signed terms, checkpoints, rings and published keys: as they are, and as payloads that a trusted key has signed.
pub(crate) fn signed(bytes: &[u8]) {
    let group = Group::new("billing").expect("the name is short and plain");
    let expected = Expected { group: &group, cluster: Some("c") };
    let keys = keys();
    with_text(bytes, |text| {
        let _ = verify(text, &keys, expected, NOW_S);
    });
    if let Ok(published) = serde_json::from_slice::<Jwks>(bytes) {
        let known = PublicKeys::from(&published);
        assert_eq!(PublicKeys::from(&known.to_jwks()), known, "keys are not read as published");
    }
    if let Ok(ring) = serde_json::from_slice::<Ring>(bytes) {
        let _ = (ring.signer(NOW_S).map(|entry| entry.pair().is_ok()), ring.published(NOW_S));
    }
    let Ok(payload) = serde_json::from_slice::<serde_json::Value>(bytes) else { return };
    let (pair, kid) = (pair(), pair().public().id());
    for typ in ["regent-term+jwt", "regent-audit+jwt"] {
        let Some(text) = statement::sign(typ, &payload, &kid, &pair) else { continue };
        if let Ok(claims) = verify(&text, &keys, expected, NOW_S) {
            assert!(claims.term().is_some() && claims.group == group.as_str());
        }
        let _ = statement::open::<Claims>(typ, &text, &keys);
        let _ = statement::open::<Checkpoint>(typ, &text, &keys);
    }
}

/// Certificates.
pub(crate) fn certificate(bytes: &[u8]) {
    regent_tls::fuzz(bytes);
}
