//! Who is believed, by keys that were given, read and fetched.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use regent_signing::{KeyPair, SigningAlgorithm, sign};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::keys::Due;
use super::*;
use crate::fencing::WriteError;
use crate::fencing::file::FencedFile;

pub(crate) fn group() -> Group {
    Group::new("billing").unwrap()
}

fn pair(seed: u8) -> KeyPair {
    KeyPair::from_seed(SigningAlgorithm::EdDsa, &[seed; 32]).unwrap()
}

pub(crate) fn published(seeds: &[u8]) -> PublicKeys {
    PublicKeys::new(seeds.iter().map(|seed| pair(*seed).public().clone()))
}

pub(crate) fn claims(term: u64) -> Claims {
    let now = wall_seconds();
    Claims {
        cluster: "main".to_owned(),
        group: "billing".to_owned(),
        term,
        node: "web-1".to_owned(),
        session: "digest".to_owned(),
        not_after: now + 600,
        exp: now + 600,
        iat: now,
    }
}

pub(crate) fn signed(claims: &Claims, seed: u8) -> String {
    let pair = pair(seed);
    sign(claims, &pair.public().id(), &pair).unwrap()
}

/// Every way in which a token is none, with the words of the refusal.
pub(crate) fn unbelievable() -> Vec<(String, &'static str)> {
    let (good, now) = (signed(&claims(7), 1), wall_seconds());
    let forged = {
        // Claims of our own under somebody else's signature.
        let (head, tail) = (good.split('.').next().unwrap(), good.rsplit('.').next().unwrap());
        let other = signed(&claims(9), 2);
        format!("{head}.{}.{tail}", other.split('.').nth(1).unwrap())
    };
    let by_another = {
        // Signed by a key of our own that takes the name of one that is trusted.
        sign(&claims(7), &pair(1).public().id(), &pair(2)).unwrap()
    };
    vec![
        (forged, "signature"),
        (by_another, "signature"),
        (signed(&claims(7), 2), "not known here"),
        (signed(&Claims { group: "shipping".to_owned(), ..claims(7) }, 1), "for group shipping"),
        (signed(&Claims { cluster: "other".to_owned(), ..claims(7) }, 1), "from cluster other"),
        (signed(&Claims { not_after: now, exp: now, ..claims(7) }, 1), "it was good until"),
        (signed(&Claims { iat: now + 3600, ..claims(7) }, 1), "compare the clocks"),
        (signed(&claims(0), 1), "contradicts itself"),
        ("7".to_owned(), "three parts"),
        (String::new(), "three parts"),
        ("none".to_owned(), "three parts"),
    ]
}

#[tokio::test]
async fn a_term_is_believed_if_its_service_signed_it_and_for_no_other_reason() {
    let verifier = Verifier::of_keys(published(&[1]), group()).of_cluster("main");
    let leader = verifier.verify(&signed(&claims(7), 1)).await.unwrap();
    assert_eq!((leader.term().get(), leader.claims().node.as_str()), (7, "web-1"));
    for (token, words) in unbelievable() {
        let why = verifier.verify(&token).await.unwrap_err();
        assert!(why.to_string().contains(words), "{words}: {why}");
    }
}

#[tokio::test]
async fn an_adapter_takes_a_verified_term_and_compares_it() {
    let room = tempfile::tempdir().unwrap();
    let file = FencedFile::at(room.path().join("ledger"));
    let verifier = Verifier::of_keys(published(&[1]), group());
    let of = async |term| verifier.verify(&signed(&claims(term), 1)).await.unwrap();
    file.replace(&of(7).await, b"first").unwrap();
    file.replace(&of(8).await, b"second").unwrap();
    let stale = file.replace(&of(7).await, b"late").unwrap_err();
    assert!(matches!(stale, WriteError::Refused(FenceError::Stale { .. })), "{stale}");
    assert_eq!(std::fs::read(room.path().join("ledger")).unwrap(), b"second");
}

#[tokio::test]
async fn a_file_of_keys_is_read_and_nothing_else_is_taken_for_one() {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("keys.json");
    let missing = Verifier::reading(&path, group()).unwrap_err();
    assert!(matches!(missing, KeysError::Io { .. }), "{missing}");
    for text in ["", "{}", r#"{"keys":[]}"#] {
        std::fs::write(&path, text).unwrap();
        let empty = Verifier::reading(&path, group()).unwrap_err();
        assert!(matches!(empty, KeysError::Empty { .. }), "{text}: {empty}");
    }
    std::fs::write(&path, serde_json::to_vec(&published(&[1]).to_jwks()).unwrap()).unwrap();
    let verifier = Verifier::reading(&path, group()).unwrap();
    assert_eq!(verifier.verify(&signed(&claims(7), 1)).await.unwrap().term().get(), 7);
}

/// Publishes what it is told, and counts who asks.
#[derive(Clone, Default)]
struct Publisher {
    body: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
}

impl Publisher {
    fn publish(&self, keys: &PublicKeys) {
        *self.body.lock().unwrap() = serde_json::to_string(&keys.to_jwks()).unwrap();
    }

    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let publisher = self.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 4096];
                let read = stream.read(&mut head).await.unwrap_or(0);
                let is_there = head[..read].starts_with(b"GET /.well-known/regent-keys ");
                let status = if is_there { "200 OK" } else { "404 Not Found" };
                publisher.asked.fetch_add(1, Ordering::SeqCst);
                let body = publisher.body.lock().unwrap().clone();
                let answer = format!(
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        url
    }
}

#[tokio::test]
async fn keys_are_fetched_before_anybody_is_believed_or_there_is_no_verifier() {
    let publisher = Publisher::default();
    publisher.publish(&published(&[1]));
    let url = publisher.start().await;
    let verifier = Verifier::fetching(&url, group()).await.unwrap();
    assert_eq!(verifier.verify(&signed(&claims(7), 1)).await.unwrap().term().get(), 7);
    let elsewhere = Verifier::fetching(&format!("{url}/other"), group()).await.unwrap_err();
    assert!(elsewhere.to_string().contains("404"), "{elsewhere}");
    "nothing of the kind".clone_into(&mut publisher.body.lock().unwrap());
    let none = Verifier::fetching(&url, group()).await.unwrap_err();
    assert!(matches!(none, KeysError::Empty { .. }), "{none}");
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let away = Verifier::fetching(&url, group()).await.unwrap_err();
    assert!(matches!(away, KeysError::Fetch { .. }), "{away}");
}

#[tokio::test]
async fn a_key_that_is_not_known_is_looked_for_and_one_that_is_gone_is_not_believed() {
    let publisher = Publisher::default();
    publisher.publish(&published(&[1]));
    let url = publisher.start().await;
    let mut verifier = Verifier::fetching(&url, group()).await.unwrap();
    verifier.keys.due = Some(Due { again_after: Duration::ZERO, ..Due::URL });
    assert!(verifier.verify(&signed(&claims(7), 2)).await.is_err());
    publisher.publish(&published(&[2]));
    assert!(verifier.verify(&signed(&claims(7), 1)).await.is_ok(), "kept for five minutes");
    assert!(verifier.verify(&signed(&claims(7), 2)).await.is_ok(), "looked for");
    assert!(verifier.verify(&signed(&claims(7), 1)).await.is_err(), "retired");
    // What cannot be fetched is no reason to forget what is known.
    "broken".clone_into(&mut publisher.body.lock().unwrap());
    assert!(verifier.verify(&signed(&claims(7), 3)).await.is_err());
    assert!(verifier.verify(&signed(&claims(7), 2)).await.is_ok());
}

#[tokio::test]
async fn keys_that_are_too_old_believe_nobody_until_others_are_had() {
    let publisher = Publisher::default();
    publisher.publish(&published(&[1]));
    let url = publisher.start().await;
    let mut verifier = Verifier::fetching(&url, group()).await.unwrap();
    "broken".clone_into(&mut publisher.body.lock().unwrap());
    let at_once = Due { again_after: Duration::ZERO, renewed_after: Duration::ZERO, ..Due::URL };
    verifier.keys.due = Some(Due { believed_for: Some(Duration::ZERO), ..at_once });
    let why = verifier.verify(&signed(&claims(7), 1)).await.unwrap_err();
    assert!(matches!(why, Unbelieved::KeysTooOld { .. }), "{why}");
    publisher.publish(&published(&[1]));
    verifier.keys.due = Some(at_once);
    assert!(verifier.verify(&signed(&claims(7), 1)).await.is_ok());
}

#[tokio::test]
async fn a_flood_of_unknown_keys_asks_no_more_often_than_it_may() {
    let publisher = Publisher::default();
    publisher.publish(&published(&[1]));
    let url = publisher.start().await;
    let began_at = regent_clock::now();
    let verifier = Arc::new(Verifier::fetching(&url, group()).await.unwrap());
    let mut floods = tokio::task::JoinSet::new();
    for seed in 2..34 {
        let verifier = Arc::clone(&verifier);
        floods.spawn(async move { verifier.verify(&signed(&claims(7), seed)).await });
    }
    while let Some(refused) = floods.join_next().await {
        let why = refused.unwrap().unwrap_err();
        assert!(matches!(why, Unbelieved::Not(WhyNot::UnknownKey { .. })), "{why}");
    }
    let took = regent_clock::now().since(began_at);
    let may = 1 + took.as_secs() / Due::URL.again_after.as_secs();
    let asked = publisher.asked.load(Ordering::SeqCst) as u64;
    assert!(asked <= may, "asked {asked} times in {took:?}");
}
