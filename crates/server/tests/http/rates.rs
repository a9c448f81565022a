//! One caller that asks too often: it is refused, it still renews and resigns, and others are served.

use regent_api::Code;
use regent_election::access::{BearerToken, SecretDigest, TokenId, TokenLabel};
use regent_election::store::NewToken;
use regent_server::ServerConfig;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::harness::access::{find, guarded_with};
use crate::support::{Server, eventually, request, secret};

/// One request a second, and two at once.
fn strict() -> ServerConfig {
    ServerConfig { requests_per_principal: 1, ..ServerConfig::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_asks_too_often_is_refused_and_still_renews_and_resigns() {
    let server = Server::with(strict()).await;
    let office = server.lead("g", "a").await;
    let refused = eventually("a refusal", || async {
        let answer = server.get("/v1/groups/g/leader").await;
        (answer.status == 429).then_some(answer)
    })
    .await;
    let problem = refused.problem(Code::RateLimited);
    let is_told = problem.detail.contains("127.0.0.1 sends more than 1 requests");
    assert!(is_told && problem.detail.contains("requests_per_principal"), "{}", problem.detail);
    let opening = json!({"node_id": "b", "session_id": secret(1)});
    for _ in 0..30 {
        server.get("/v1/groups/g/leader").await;
        let renewal = json!({"session_id": office.session_id, "term": office.term});
        let renewed = server.post("/v1/groups/g/renew", renewal).await;
        assert_eq!(renewed.status, 200, "{}", renewed.text());
        let opened = server.post("/v1/sessions/open", opening.clone()).await;
        assert!([200, 429].contains(&opened.status.as_u16()), "{}", opened.text());
    }
    office.resign(&server).await;
    let metrics = server.get("/metrics").await.text();
    let limited = |class: &str| {
        let label = format!("regent_requests_limited_total{{class=\"{class}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&label).map(str::to_owned));
        line.unwrap().parse::<u64>().unwrap()
    };
    assert!(limited("read") > 0);
    assert_eq!((limited("renew"), limited("release")), (0, 0));
}

/// Renewals have a bound of their own: heartbeats without end are no way around the other one.
#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_without_end_are_refused_and_reads_are_not() {
    let config = ServerConfig { renewals_per_principal: 1, ..ServerConfig::default() };
    let server = Server::with(config).await;
    eventually("a refusal", || async {
        let heartbeat = json!({"session_id": secret(1)});
        let answer = server.post("/v1/sessions/heartbeat", heartbeat).await;
        (answer.status == 429).then(|| answer.problem(Code::RateLimited))
    })
    .await;
    assert_eq!(server.get("/v1/groups/g/leader").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_that_asks_too_often_takes_nothing_of_another() {
    let server = guarded_with(strict()).await;
    let read = |name: &str| {
        let mut asks = request("GET", "/v1/groups/mine%2Fg/leader", None);
        let token = format!("Bearer {}", find(name)).parse().unwrap();
        asks.headers_mut().insert("authorization", token);
        server.send(asks)
    };
    let refused = eventually("a refusal", || async {
        let answer = read("observer").await;
        (answer.status == 429).then_some(answer)
    })
    .await;
    let problem = refused.problem(Code::RateLimited);
    assert!(problem.detail.contains("node:observer sends more than"), "{}", problem.detail);
    // From the same address.
    assert_eq!(read("onlooker").await.status, 200);
}

/// Whoever finds a token that was revoked uses up nothing of its principal.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_uses_up_nothing_of_its_principal() {
    let server = guarded_with(strict()).await;
    let good = BearerToken::new(TokenId(77), [77; 32]);
    let new = NewToken {
        token: good.id,
        digest: SecretDigest(Sha256::digest(good.secret()).into()),
        principal: "node:observer".parse().unwrap(),
        expires_ms: None,
        label: TokenLabel::new("test").unwrap(),
    };
    server.store.create_token(new).await.unwrap();
    let leaked: BearerToken = find("observer").parse().unwrap();
    server.store.revoke_token(leaked.id).await.unwrap();
    let read = |token: &BearerToken| {
        let mut asks = request("GET", "/v1/groups/mine%2Fg/leader", None);
        let token = format!("Bearer {}", token.reveal()).parse().unwrap();
        asks.headers_mut().insert("authorization", token);
        server.send(asks)
    };
    for _ in 0..50 {
        read(&leaked).await.problem(Code::CredentialOver);
    }
    let served = read(&good).await;
    assert_eq!(served.status, 200, "{}", served.text());
}

/// An address that guesses is judged no more, and keeps no good credential behind the same address from being served.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_shows_wrong_credentials_without_end_is_refused_and_good_ones_are_served() {
    let server = guarded_with(strict()).await;
    let read = |token: &str| {
        let mut asks = request("GET", "/v1/groups/mine%2Fg/leader", None);
        asks.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        server.send(asks)
    };
    let wrong = BearerToken::new(TokenId(1), [99; 32]).reveal();
    let refused = eventually("a refusal", || async {
        let answer = read(&wrong).await;
        assert!([401, 429].contains(&answer.status.as_u16()), "{}", answer.text());
        (answer.status == 429).then_some(answer)
    })
    .await;
    let problem = refused.problem(Code::RateLimited);
    assert!(problem.detail.contains("127.0.0.1 shows more than 1 wrong"), "{}", problem.detail);
    assert!(problem.retry_after_ms.is_some());
    let served = read(&find("observer")).await;
    assert_eq!(served.status, 200, "{}", served.text());
}

/// What tells how the cluster is needs no place under load, and is counted all the same.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_for_the_cluster_or_for_metrics_without_end_is_refused() {
    for path in ["/v1/cluster", "/metrics"] {
        let server = guarded_with(strict()).await;
        eventually("a refusal", || async {
            let mut asks = request("GET", path, None);
            let token = format!("Bearer {}", find("onlooker")).parse().unwrap();
            asks.headers_mut().insert("authorization", token);
            let answer = server.send(asks).await;
            (answer.status == 429).then(|| answer.problem(Code::RateLimited))
        })
        .await;
    }
}
