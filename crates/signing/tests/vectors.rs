//! A token that another implementation made (Python's `cryptography`): believed here, and made alike here.

#![allow(clippy::unwrap_used, reason = "a test may")]

use regent_election::Group;
use regent_signing::{Claims, Expected, Jwks, KeyPair, PublicKeys, SigningAlgorithm, sign, verify};

/// The public key of the secret 00 01 02 … 1f, its thumbprint, and what it signed.
const X: &str = "A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg";
const KID: &str = "1IG2tMH7J2wbJZnOf8LJzQitKf7LMvoAElsuDMVM54Y";
const TOKEN: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6IjFJRzJ0TUg3SjJ3Ykpabk9mOExKelFpdEtmN0xNdm9BRWxzdURNVk01NFkiLCJ0eXAiOiJyZWdlbnQtdGVybStqd3QifQ.eyJjbHVzdGVyIjoibWFpbiIsImdyb3VwIjoiYmlsbGluZyIsInRlcm0iOjEwMSwibm9kZSI6IndlYi0xIiwic2Vzc2lvbiI6ImMyVnpjMmx2YmciLCJub3RfYWZ0ZXIiOjE3NjcyMjU2MDAsImV4cCI6MTc2NzIyNTYwMCwiaWF0IjoxNzY3MjI1NTkwfQ.YctdXNjuoRI37zdCMhMRClZTOhA5aE7ikOpaelZQVdm5Z_h-UfH_RjeH9oSL3MEZRB-eqWagwBaVEl00YTw9Bw";

fn claims() -> Claims {
    Claims {
        cluster: "main".to_owned(),
        group: "billing".to_owned(),
        term: 101,
        node: "web-1".to_owned(),
        session: "c2Vzc2lvbg".to_owned(),
        not_after: 1_767_225_600,
        exp: 1_767_225_600,
        iat: 1_767_225_590,
    }
}

#[test]
fn a_token_of_another_implementation_is_believed() {
    let text = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","x":"{X}"}}]}}"#);
    let keys = PublicKeys::from(&serde_json::from_str::<Jwks>(&text).unwrap());
    assert!(keys.find(KID).is_some());
    let group = Group::new("billing").unwrap();
    let expected = Expected { group: &group, cluster: Some("main") };
    assert_eq!(verify(TOKEN, &keys, expected, 1_767_225_595), Ok(claims()));
}

/// Ed25519 has no dice: the same key and the same words give the same token everywhere.
#[test]
fn the_same_token_is_made_here() {
    let seed: Vec<u8> = (0..32).collect();
    let pair = KeyPair::from_seed(SigningAlgorithm::EdDsa, &seed).unwrap();
    assert_eq!(sign(&claims(), KID, &pair).as_deref(), Some(TOKEN));
}
