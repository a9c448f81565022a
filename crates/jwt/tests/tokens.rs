//! Tokens as attackers make them: forged, stripped, switched, for others, over, of unknown keys.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use regent_jwt::{Believed, WhyNot};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

const NOW: u64 = 1_800_000_000;

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A key of an issuer, whatever its kind.
enum Signer {
    Ed(Ed25519KeyPair),
    Ec(EcdsaKeyPair),
    Rsa(Box<RsaKeyPair>),
}

impl Signer {
    fn ed() -> Self {
        Self::Ed(Ed25519KeyPair::generate().unwrap())
    }

    fn ec() -> Self {
        Self::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    fn rsa() -> Self {
        Self::Rsa(Box::new(RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap()))
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Ed(_) => "EdDSA",
            Self::Ec(_) => "ES256",
            Self::Rsa(_) => "RS256",
        }
    }

    /// As a set publishes it.
    fn row(&self, kid: &str) -> Value {
        match self {
            Self::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": text(pair.public_key().as_ref())})
            }
            Self::Ec(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = (text(&point[1..33]), text(&point[33..]));
                json!({"kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "x": x, "y": y})
            }
            Self::Rsa(pair) => {
                let [n, e] = numbers(pair.public_key().as_ref()).map(|number| text(&number));
                json!({"kty": "RSA", "kid": kid, "alg": "RS256", "n": n, "e": e})
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Ed(pair) => pair.sign(message).as_ref().to_vec(),
            Self::Ec(pair) => pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec(),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature)
                    .unwrap();
                signature
            }
        }
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        let signed = format!(
            "{}.{}",
            text(header.to_string().as_bytes()),
            text(claims.to_string().as_bytes())
        );
        format!("{signed}.{}", text(&self.sign(signed.as_bytes())))
    }

    /// An honest token of this key.
    fn honest(&self, kid: &str) -> String {
        self.token(&json!({"alg": self.algorithm(), "kid": kid}), &claims())
    }
}

/// The two numbers of an RSA key, as PKCS #1 writes them.
fn numbers(der: &[u8]) -> [Vec<u8>; 2] {
    // A sequence of two integers; lengths above 127 stand in two more bytes here.
    let number = |der: &[u8]| {
        let (length, head) = match der[1] {
            0x82 => (usize::from(der[2]) << 8 | usize::from(der[3]), 4),
            short => (usize::from(short), 2),
        };
        let bytes = &der[head..head + length];
        let start = bytes.iter().position(|byte| *byte != 0).unwrap();
        (bytes[start..].to_vec(), head + length)
    };
    let (n, length) = number(&der[4..]);
    let (e, _) = number(&der[4 + length..]);
    [n, e]
}

fn claims() -> Value {
    json!({"iss": "https://issuer", "aud": "regent", "sub": "web-1", "exp": NOW + 60})
}

fn without(claim: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(claim);
    claims
}

fn with(claim: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[claim] = value;
    claims
}

fn write_keys(path: &Path, rows: &[Value]) {
    fs::write(path, json!({"keys": rows}).to_string()).unwrap();
}

/// One issuer whose keys are in a file.
struct World {
    room: tempfile::TempDir,
    believed: Believed,
}

impl World {
    fn new(rows: &[Value], more: &str) -> Self {
        let room = tempfile::tempdir().unwrap();
        write_keys(&room.path().join("keys.json"), rows);
        let file = room.path().join("issuers.toml");
        let entry = format!(
            "[[issuer]]\nissuer = \"https://issuer\"\naudience = [\"regent\"]\nkeys = \"keys.json\"\nprincipal = \"node\"\n{more}\n"
        );
        fs::write(&file, entry).unwrap();
        let believed = Believed::open(&file).unwrap();
        Self { room, believed }
    }

    async fn judge(&self, token: &str) -> Result<String, WhyNot> {
        self.believed.identify(token, NOW).await.map(|(verified, _)| verified.who.to_string())
    }
}

#[tokio::test]
async fn tokens_of_every_kind_of_key_name_their_principal() {
    let keys = [Signer::ed(), Signer::ec(), Signer::rsa()];
    let rows: Vec<Value> = keys.iter().map(|key| key.row(key.algorithm())).collect();
    let world = World::new(&rows, "");
    for key in &keys {
        let judged = world.judge(&key.honest(key.algorithm())).await;
        assert_eq!(judged.as_deref(), Ok("node:web-1"), "{}", key.algorithm());
    }
    // Several audiences, of which one is ours; and one that is over still says whose it is.
    let key = &keys[0];
    let header = json!({"alg": "EdDSA", "kid": "EdDSA"});
    let several = key.token(&header, &with("aud", json!(["other", "regent"])));
    assert!(world.judge(&several).await.is_ok());
    let over = key.token(&header, &with("exp", json!(NOW - 600)));
    let (verified, _) = world.believed.identify(&over, NOW).await.unwrap();
    assert_eq!(verified.expires_at_ms, (NOW - 600 + 30) * 1000);
}

#[tokio::test]
async fn a_forged_token_is_not_believed() {
    let (key, other, ec) = (Signer::ed(), Signer::ed(), Signer::ec());
    let world = World::new(&[key.row("k"), ec.row("e")], "");
    let header = json!({"alg": "EdDSA", "kid": "k"});
    // Another key under the same name; no signature; a shared secret made of the public key's text.
    assert_eq!(world.judge(&other.honest("k")).await, Err(WhyNot::Signature));
    for alg in ["none", "None", "HS256", "RS256", "eddsa", ""] {
        let token = key.token(&json!({"alg": alg, "kid": "k"}), &claims());
        assert!(world.judge(&token).await.is_err(), "{alg}");
        let bare = format!("{}.", token.rsplit_once('.').unwrap().0);
        assert!(world.judge(&bare).await.is_err(), "{alg}");
    }
    // The key of one algorithm, called by another.
    let switched = ec.token(&json!({"alg": "EdDSA", "kid": "e"}), &claims());
    assert_eq!(world.judge(&switched).await, Err(WhyNot::Signature));
    // A key inside the token is not looked at, an extension is not skipped, no key is guessed.
    let own = json!({"alg": "EdDSA", "jwk": other.row("x"), "kid": "x"});
    assert!(matches!(world.judge(&other.token(&own, &claims())).await, Err(WhyNot::UnknownKey(_))));
    let critical = json!({"alg": "EdDSA", "kid": "k", "crit": ["exp"]});
    assert_eq!(world.judge(&key.token(&critical, &claims())).await, Err(WhyNot::Critical));
    let nameless = key.token(&json!({"alg": "EdDSA"}), &claims());
    assert_eq!(world.judge(&nameless).await, Err(WhyNot::NoKey));
    // Every bit of an honest token counts.
    let honest = key.token(&header, &claims()).into_bytes();
    for place in 0..honest.len() {
        for bit in 0..7 {
            let mut bytes = honest.clone();
            bytes[place] ^= 1 << bit;
            let token = String::from_utf8(bytes).unwrap();
            assert!(world.judge(&token).await.is_err(), "bit {bit} of byte {place}");
        }
    }
}

#[tokio::test]
async fn a_token_for_others_or_without_an_end_is_not_believed() {
    let key = Signer::ed();
    let world = World::new(&[key.row("k")], "");
    let header = json!({"alg": "EdDSA", "kid": "k"});
    let judge = async |claims: &Value| world.judge(&key.token(&header, claims)).await;
    assert_eq!(judge(&with("iss", json!("https://issuer/"))).await, Err(WhyNot::Issuer));
    assert_eq!(judge(&without("iss")).await, Err(WhyNot::Missing("iss")));
    for audience in
        [json!("other"), json!([]), json!(["regent2"]), json!(null), json!({"regent": 1})]
    {
        assert_eq!(judge(&with("aud", audience)).await, Err(WhyNot::Audience));
    }
    assert_eq!(judge(&without("aud")).await, Err(WhyNot::Audience));
    for end in [json!("soon"), json!(-1), json!(1e300), json!(null)] {
        assert_eq!(judge(&with("exp", end)).await, Err(WhyNot::Missing("exp")));
    }
    assert_eq!(judge(&without("exp")).await, Err(WhyNot::Missing("exp")));
    assert_eq!(judge(&with("nbf", json!(NOW + 31))).await, Err(WhyNot::NotYet(31)));
    assert!(judge(&with("nbf", json!(NOW + 29))).await.is_ok());
    for name in [json!(""), json!("a b"), json!("a\u{1b}[0m"), json!(7), json!("x".repeat(5000))] {
        assert!(matches!(judge(&with("sub", name)).await, Err(WhyNot::Name(_))));
    }
    for shape in ["", ".", "..", "a.b", "a.b.c", "....", &"x".repeat(20_000)] {
        assert_eq!(world.judge(shape).await, Err(WhyNot::Shape), "{shape:.20}");
    }
}

#[tokio::test]
async fn a_prefix_keeps_the_names_of_two_issuers_apart() {
    let key = Signer::ed();
    let world = World::new(&[key.row("k")], "prefix = \"ci:\"\nclaim = \"job\"");
    let header = json!({"alg": "EdDSA", "kid": "k"});
    let token = key.token(&header, &with("job", json!("deploy")));
    assert_eq!(world.judge(&token).await.as_deref(), Ok("node:ci:deploy"));
    assert!(matches!(world.judge(&key.honest("k")).await, Err(WhyNot::Name(_))));
}

#[tokio::test]
async fn an_address_counts_only_if_its_issuer_has_verified_it() {
    let key = Signer::ed();
    let world = World::new(&[key.row("k")], "claim = \"email\"");
    let header = json!({"alg": "EdDSA", "kid": "k"});
    let mut claims = with("email", json!("a@example.org"));
    for said in [Value::Null, json!(false), json!("true")] {
        claims["email_verified"] = said;
        assert!(matches!(world.judge(&key.token(&header, &claims)).await, Err(WhyNot::Name(_))));
    }
    claims["email_verified"] = json!(true);
    assert!(world.judge(&key.token(&header, &claims)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn keys_in_a_file_are_read_again_and_stay_if_the_file_is_broken() {
    let (old, new) = (Signer::ed(), Signer::ec());
    let world = World::new(&[old.row("old")], "");
    let file = world.room.path().join("keys.json");
    write_keys(&file, &[new.row("new")]);
    // Not more often than every ten seconds, whatever tokens say.
    assert!(matches!(world.judge(&new.honest("new")).await, Err(WhyNot::UnknownKey(_))));
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    assert!(world.judge(&new.honest("new")).await.is_ok());
    assert!(matches!(world.judge(&old.honest("old")).await, Err(WhyNot::UnknownKey(_))));
    // An issuer that withdraws its last key publishes an empty set.
    write_keys(&file, &[]);
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    assert!(matches!(world.judge(&old.honest("old")).await, Err(WhyNot::UnknownKey(_))));
    assert!(matches!(world.judge(&new.honest("new")).await, Err(WhyNot::UnknownKey(_))));
    write_keys(&file, &[new.row("new")]);
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    assert!(world.judge(&new.honest("new")).await.is_ok());
    fs::write(&file, "{").unwrap();
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    assert!(matches!(world.judge(&old.honest("old")).await, Err(WhyNot::UnknownKey(_))));
    assert!(world.judge(&new.honest("new")).await.is_ok());
}

#[test]
fn sets_without_a_usable_key_are_refused_at_the_start() {
    let key = Signer::ed();
    let mut for_encryption = key.row("a");
    for_encryption["use"] = json!("enc");
    let secret = json!({"kty": "oct", "kid": "a", "alg": "HS256", "k": "AAAA"});
    for rows in [vec![for_encryption], vec![secret], vec![key.row("a"), key.row("a")]] {
        let bytes = json!({"keys": rows}).to_string();
        assert!(regent_jwt::KeySet::read(bytes.as_bytes()).is_err(), "{bytes}");
    }
}

/// An issuer behind HTTPS; it counts how often it was asked.
async fn issuer(
    body: String,
    certificate: &rcgen::CertifiedKey<rcgen::KeyPair>,
) -> (u16, Arc<AtomicUsize>) {
    let key = certificate.signing_key.serialize_der().try_into().unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(
        tokio_rustls::rustls::crypto::aws_lc_rs::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_no_client_auth()
    .with_single_cert(vec![certificate.cert.der().clone()], key)
    .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (asked, acceptor) = (Arc::new(AtomicUsize::new(0)), TlsAcceptor::from(Arc::new(config)));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            count.fetch_add(1, Ordering::SeqCst);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(body.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    (port, asked)
}

#[tokio::test]
async fn keys_behind_https_are_fetched_from_an_issuer_that_is_trusted_and_from_no_other() {
    let key = Signer::ed();
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let body = json!({"keys": [key.row("k")]}).to_string();
    let (port, asked) = issuer(body, &certificate).await;
    let room = tempfile::tempdir().unwrap();
    let open = |ca: &str, pem: &str| {
        fs::write(room.path().join("ca.pem"), pem).unwrap();
        let file = room.path().join("issuers.toml");
        let entry = format!(
            "[[issuer]]\nissuer = \"https://issuer\"\naudience = [\"regent\"]\nkeys = \"https://localhost:{port}/keys\"\nprincipal = \"user\"\n{ca}\n"
        );
        fs::write(&file, entry).unwrap();
        Believed::open(&file).unwrap()
    };
    let believed = open("ca = \"ca.pem\"", &certificate.cert.pem());
    let (verified, _) = believed.identify(&key.honest("k"), NOW).await.unwrap();
    assert_eq!(verified.who.to_string(), "user:web-1");
    assert!(believed.identify(&key.honest("unknown"), NOW).await.is_err());
    assert_eq!(
        asked.load(Ordering::SeqCst),
        1,
        "strangers make an issuer be asked again and again"
    );
    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let believed = open("ca = \"ca.pem\"", &stranger.cert.pem());
    assert!(matches!(believed.identify(&key.honest("k"), NOW).await, Err(WhyNot::UnknownKey(_))));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_believed_is_so_until_its_key_is_withdrawn() {
    let (key, other) = (Signer::ed(), Signer::ed());
    let world = World::new(&[key.row("k"), other.row("other")], "");
    let (_, kept) = world.believed.identify(&key.honest("k"), NOW).await.unwrap();
    let (_, replaced) = world.believed.identify(&other.honest("other"), NOW).await.unwrap();
    // Another key of a name that is used is another key.
    let rows = [key.row("k"), Signer::ed().row("other")];
    write_keys(&world.room.path().join("keys.json"), &rows);
    let a_while = tokio::time::Duration::from_secs(30);
    let _ = tokio::time::timeout(a_while, world.believed.keep_fresh()).await;
    assert!(kept.is_kept() && !replaced.is_kept());
    write_keys(&world.room.path().join("keys.json"), &[]);
    let _ = tokio::time::timeout(a_while, world.believed.keep_fresh()).await;
    assert!(!kept.is_kept());
}
