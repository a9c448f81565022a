//! Tokens of another issuer over HTTP: who they name, what they may, and what remains when they are over.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use regent_api::Code;
use regent_election::access::{Binding, Role};
use regent_server::{Auth, ServerConfig};
use serde_json::json;

use crate::access::ask;
use crate::support::{Server, eventually, raw, secret};

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn token(pair: &Ed25519KeyPair, name: &str, ends_in_s: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let header = json!({"alg": "EdDSA", "kid": "k"}).to_string();
    let claims = json!({"iss": "test", "aud": "regent", "sub": name, "exp": now + ends_in_s});
    let signed = format!("{}.{}", text(header.as_bytes()), text(claims.to_string().as_bytes()));
    format!("{signed}.{}", text(pair.sign(signed.as_bytes()).as_ref()))
}

#[tokio::test]
async fn a_token_of_another_issuer_acts_as_its_name_until_it_is_over_and_then_only_gives_up() {
    let room = tempfile::tempdir().unwrap();
    let pair = Ed25519KeyPair::generate().unwrap();
    let key =
        json!({"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": text(pair.public_key().as_ref())});
    fs::write(room.path().join("keys.json"), json!({"keys": [key]}).to_string()).unwrap();
    let issuers = room.path().join("issuers.toml");
    let entry = "[[issuer]]\nissuer = \"test\"\naudience = [\"regent\"]\nkeys = \"keys.json\"\nprincipal = \"node\"\nleeway = \"0s\"\n";
    fs::write(&issuers, entry).unwrap();
    let server = Server::with(ServerConfig {
        auth: Auth::Required,
        token_issuers: Some(issuers),
        // Ten wrong ones a second, of an address.
        requests_per_principal: 100,
        ..ServerConfig::default()
    })
    .await;
    let binding = Binding {
        who: "node:web-*".parse().unwrap(),
        role: Role::Participant,
        groups: vec!["mine/*".parse().unwrap()],
        nodes: vec!["self".parse().unwrap()],
    };
    server.store.put_bindings(0, vec![binding]).await.unwrap();
    let at = |verb: &str| format!("/v1/groups/mine%2Fa/{verb}");
    let bid = json!({"node_id": "web-1", "session_id": secret(7)});
    let (good, over) = (token(&pair, "web-1", 600), token(&pair, "web-1", -1));
    let (other, stranger) = (token(&pair, "web-2", 600), Ed25519KeyPair::generate().unwrap());

    let forged = token(&stranger, "web-1", 600);
    let answer = ask(&server, "POST", &at("campaign"), bid.clone(), &forged).await;
    let problem = answer.problem(Code::Unauthenticated);
    assert!(problem.detail.contains("signature is wrong"), "{problem}");
    ask(&server, "POST", &at("campaign"), bid.clone(), &over).await.problem(Code::CredentialOver);
    let won: regent_api::CampaignResponse =
        ask(&server, "POST", &at("campaign"), bid, &good).await.ok();
    assert!(won.elected);

    // Another node of the same issuer can do nothing with the session, and not stand under this name.
    let held = json!({"session_id": secret(7), "term": won.office.term.get()});
    ask(&server, "POST", &at("renew"), held.clone(), &other).await.problem(Code::SessionOfAnother);
    let in_its_name = json!({"node_id": "web-1"});
    ask(&server, "POST", &at("campaign"), in_its_name, &other).await.problem(Code::Forbidden);

    // Over: it extends nothing any more, and may resign.
    ask(&server, "POST", &at("renew"), held.clone(), &over).await.problem(Code::CredentialOver);
    ask(&server, "POST", &at("renew"), held.clone(), &good)
        .await
        .ok::<regent_api::HeartbeatResponse>();
    ask(&server, "POST", &at("resign"), held, &over).await.ok::<regent_api::Done>();

    // Signatures are dear: an address that shows forged ones without end is judged no more, but for what was good lately, and
    // for the first token of each connection, which costs more than a signature: a leader that replaces its token, or
    // comes from another server, keeps its office.
    let leader = at("leader");
    let read =
        async |token: &str| ask(&server, "GET", &leader, serde_json::Value::Null, token).await;
    let mut number = 0;
    eventually("a good one that was never seen is not judged after others", || {
        number += 1;
        let unseen = token(&pair, &format!("web-{number}"), 600);
        let asks = [&forged, &forged, &forged, &unseen].map(|token| {
            format!("GET {leader} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n")
        });
        let asks = format!("{}\r\nconnection: close\r\n\r\n", asks.join("\r\n").trim_end());
        let server = &server;
        async move {
            let answers = raw(server, asks.as_bytes()).await;
            let statuses: Vec<u16> =
                answers.split("HTTP/1.1 ").skip(1).map(|it| it[..3].parse().unwrap()).collect();
            assert!(statuses[..3].iter().all(|it| [401, 429].contains(it)), "{answers}");
            (statuses[3] == 429).then_some(())
        }
    })
    .await;
    for name in ["web-a", "web-b", "web-c"] {
        let unseen = read(&token(&pair, name, 600)).await;
        assert_eq!(unseen.status, 200, "on a connection of its own: {}", unseen.text());
    }
    let known = read(&good).await;
    assert_eq!(known.status, 200, "{}", known.text());
}
