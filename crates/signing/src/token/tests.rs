//! Tokens that are believed, and every kind that is not.

use proptest::prelude::*;

use super::*;
use crate::decode;
use crate::key::{SEED_BYTES, SigningAlgorithm};

const NOW: u64 = 1_767_225_590;

fn pair(byte: u8) -> KeyPair {
    KeyPair::from_seed(SigningAlgorithm::EdDsa, &[byte; SEED_BYTES]).unwrap()
}

fn claims() -> Claims {
    Claims {
        cluster: "main".to_owned(),
        group: "billing".to_owned(),
        term: 101,
        node: "web-1".to_owned(),
        session: session_digest(SessionId::new(7).unwrap()),
        not_after: NOW + 10,
        exp: NOW + 10,
        iat: NOW,
    }
}

fn keys(pairs: &[&KeyPair]) -> PublicKeys {
    PublicKeys::new(pairs.iter().map(|pair| pair.public().clone()))
}

fn signed(claims: &Claims, pair: &KeyPair) -> String {
    sign(claims, &pair.public().id(), pair).unwrap()
}

fn judged(token: &str, keys: &PublicKeys, now: u64) -> Result<Claims, WhyNot> {
    let group = Group::new("billing").unwrap();
    verify(token, keys, Expected { group: &group, cluster: Some("main") }, now)
}

#[test]
fn a_signed_term_is_believed_until_it_is_over() {
    let pair = pair(1);
    let (token, keys) = (signed(&claims(), &pair), keys(&[&pair]));
    assert_eq!(judged(&token, &keys, NOW), Ok(claims()));
    assert_eq!(judged(&token, &keys, NOW + 9), Ok(claims()));
    let over = WhyNot::Over { not_after: NOW + 10, now: NOW + 10 };
    assert_eq!(judged(&token, &keys, NOW + 10), Err(over));
    assert_eq!(judged(&token, &keys, NOW - SKEW_SECONDS), Ok(claims()));
    let early = judged(&token, &keys, NOW - SKEW_SECONDS - 1);
    assert!(matches!(early, Err(WhyNot::NotYet { .. })), "{early:?}");
}

#[test]
fn a_term_of_another_group_or_cluster_or_key_is_refused() {
    let (pair, other) = (pair(1), pair(2));
    let keys = keys(&[&pair]);
    let elsewhere = Claims { group: "shipping".to_owned(), ..claims() };
    let refused = judged(&signed(&elsewhere, &pair), &keys, NOW);
    assert!(matches!(refused, Err(WhyNot::OtherGroup { .. })), "{refused:?}");
    let elsewhere = Claims { cluster: "other".to_owned(), ..claims() };
    let refused = judged(&signed(&elsewhere, &pair), &keys, NOW);
    assert!(matches!(refused, Err(WhyNot::OtherCluster { .. })), "{refused:?}");
    let refused = judged(&signed(&claims(), &other), &keys, NOW);
    assert!(matches!(refused, Err(WhyNot::UnknownKey { .. })), "{refused:?}");
    // Signed by another key under the name of the one that is trusted.
    let token = sign(&claims(), &pair.public().id(), &other).unwrap();
    assert_eq!(judged(&token, &keys, NOW), Err(WhyNot::Signature));
}

/// The ways in which verifiers of this format were broken.
#[test]
fn a_token_is_judged_by_its_key_and_not_by_what_it_says_of_itself() {
    let pair = pair(1);
    let (keys, kid) = (keys(&[&pair]), pair.public().id());
    let payload = encode(&serde_json::to_vec(&claims()).unwrap());
    let with_header = |header: &str| {
        let input = format!("{}.{payload}", encode(header.as_bytes()));
        let signature = encode(&pair.sign(input.as_bytes()).unwrap());
        (
            judged(&format!("{input}.{signature}"), &keys, NOW),
            judged(&format!("{input}."), &keys, NOW),
        )
    };
    for alg in ["none", "None", "HS256", "ES256", "EdDSA+ML-DSA-65", "Ed25519", ""] {
        let header = format!(r#"{{"alg":"{alg}","kid":"{kid}","typ":"{TYPE}"}}"#);
        let (with, without) = with_header(&header);
        assert_eq!(with, Err(WhyNot::Algorithm), "{alg}");
        assert_eq!(without, Err(WhyNot::Algorithm), "{alg}");
    }
    for header in [
        format!(r#"{{"alg":"EdDSA","typ":"{TYPE}"}}"#),
        format!(r#"{{"alg":"EdDSA","kid":"{kid}"}}"#),
        format!(r#"{{"alg":"EdDSA","kid":"{kid}","typ":"JWT"}}"#),
        format!(r#"{{"alg":"EdDSA","kid":"{kid}","typ":"{TYPE}","crit":["x"]}}"#),
        format!(r#"{{"alg":"EdDSA","kid":"{kid}","typ":"{TYPE}","jwk":{{}}}}"#),
        format!(r#"{{"alg":"none","alg":"EdDSA","kid":"{kid}","typ":"{TYPE}"}}"#),
        "[]".to_owned(),
    ] {
        let (with, _) = with_header(&header);
        assert!(matches!(with, Err(WhyNot::Malformed(_))), "{header}: {with:?}");
    }
    let good = format!(r#"{{"alg":"EdDSA","kid":"{kid}","typ":"{TYPE}"}}"#);
    let (with, without) = with_header(&good);
    assert_eq!((with, without), (Ok(claims()), Err(WhyNot::Signature)));
}

#[test]
fn a_payload_that_contradicts_itself_is_refused_though_it_is_signed() {
    let pair = pair(1);
    let keys = keys(&[&pair]);
    for wrong in [
        Claims { term: 0, ..claims() },
        Claims { term: TERM_MAX + 1, ..claims() },
        Claims { exp: NOW + 99, ..claims() },
    ] {
        let refused = judged(&signed(&wrong, &pair), &keys, NOW);
        assert!(matches!(refused, Err(WhyNot::Malformed(_))), "{wrong:?}: {refused:?}");
    }
}

#[test]
fn texts_that_are_no_tokens_are_refused() {
    let keys = keys(&[&pair(1)]);
    let long = "x".repeat(crate::statement::STATEMENT_BYTES_MAX + 1);
    for text in ["", ".", "..", "...", "a.b.c", "a.b.c.d", "🙂.🙂.🙂", long.as_str()] {
        let refused = judged(text, &keys, NOW);
        assert!(matches!(refused, Err(WhyNot::Malformed(_))), "{refused:?}");
    }
}

#[test]
fn a_session_is_told_by_a_digest() {
    let session = SessionId::new(0x1234).unwrap();
    let digest = session_digest(session);
    assert!(!digest.contains(&session.reveal()));
    assert_eq!(digest.len(), 43);
    assert_ne!(digest, session_digest(SessionId::new(0x1235).unwrap()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Not one byte of a token may be another.
    #[test]
    fn a_token_with_any_byte_changed_is_refused(at in any::<prop::sample::Index>(), to in 0x21_u8..0x7f) {
        let pair = pair(1);
        let (token, keys) = (signed(&claims(), &pair), keys(&[&pair]));
        let mut bytes = token.clone().into_bytes();
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != to);
        bytes[at] = to;
        let changed = String::from_utf8(bytes).unwrap();
        prop_assert!(judged(&changed, &keys, NOW).is_err(), "{changed} was believed");
    }

    /// Nor may anything be cut off or put on.
    #[test]
    fn a_token_that_was_cut_or_lengthened_is_refused(at in any::<prop::sample::Index>(), more in "[A-Za-z0-9_.=-]{1,4}") {
        let pair = pair(1);
        let (token, keys) = (signed(&claims(), &pair), keys(&[&pair]));
        prop_assert!(judged(&token[..at.index(token.len())], &keys, NOW).is_err());
        for changed in [format!("{token}{more}"), format!("{more}{token}")] {
            prop_assert!(judged(&changed, &keys, NOW).is_err());
        }
    }

    #[test]
    fn whatever_is_signed_is_read_back(term in 1..=TERM_MAX, node in "[a-z0-9.-]{1,40}", for_seconds in 1_u64..100_000) {
        let pair = pair(3);
        let claims = Claims { term, node, not_after: NOW + for_seconds, exp: NOW + for_seconds, ..claims() };
        prop_assert_eq!(judged(&signed(&claims, &pair), &keys(&[&pair]), NOW), Ok(claims));
    }
}

#[cfg(feature = "hybrid")]
mod hybrid {
    use super::*;

    #[test]
    fn both_signatures_of_a_hybrid_key_must_fit() {
        let seed: Vec<u8> = (0..64).collect();
        let pair = KeyPair::from_seed(SigningAlgorithm::Hybrid, &seed).unwrap();
        let (token, keys) = (signed(&claims(), &pair), keys(&[&pair]));
        assert_eq!(judged(&token, &keys, NOW), Ok(claims()));
        let (input, signature) = token.rsplit_once('.').unwrap();
        let whole = decode(signature).unwrap();
        assert_eq!(whole.len(), 64 + 3309);
        for at in [0, 63, 64, 2000, whole.len() - 1] {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            let token = format!("{input}.{}", encode(&changed));
            assert_eq!(judged(&token, &keys, NOW), Err(WhyNot::Signature), "byte {at}");
        }
        for length in [0, 64, whole.len() - 1] {
            let token = format!("{input}.{}", encode(&whole[..length]));
            assert_eq!(judged(&token, &keys, NOW), Err(WhyNot::Signature), "{length} bytes");
        }
        // The other half of another key.
        let mut seed = seed;
        seed[32] ^= 1;
        let other = KeyPair::from_seed(SigningAlgorithm::Hybrid, &seed).unwrap();
        let token = sign(&claims(), &pair.public().id(), &other).unwrap();
        assert_eq!(judged(&token, &keys, NOW), Err(WhyNot::Signature));
    }
}
