//! Attacks by what heartbeats claim: framing another node, and running the operator's command without end.

use std::sync::{Arc, Mutex};

use regent_api::{Code, SessionResponse};
use regent_server::{Alarm, ServerConfig};
use serde_json::{Value, json};

use crate::support::{Server, eventually, secret};

/// A server, and the nodes that its alarm was called for.
async fn alarmed() -> (Server, Arc<Mutex<Vec<String>>>) {
    let called = Arc::<Mutex<Vec<String>>>::default();
    let call = {
        let called = Arc::clone(&called);
        Alarm::new(move |it| called.lock().unwrap().push(it.believer.node.to_string()))
    };
    let config = ServerConfig { on_split_brain: Some(call), ..ServerConfig::default() };
    (Server::with(config).await, called)
}

/// Claims to act under a term that nobody granted, with no time left: such a claim is looked into at once.
async fn claim(server: &Server, session: &str, node: &str, groups: &[String]) -> u16 {
    let claims: Vec<Value> =
        groups.iter().map(|group| json!({"group": group, "term": 99, "left_ms": 0})).collect();
    let refused: Vec<Value> =
        groups.iter().take(1).map(|group| json!({"group": group, "term": 1})).collect();
    let beliefs = json!({
        "node_id": node, "ttl_ms": 1000, "margin_ms": 1, "claims": claims, "refused": refused,
    });
    let body = json!({"session_id": session, "beliefs": beliefs});
    server.post("/v1/sessions/heartbeat", body).await.status.as_u16()
}

async fn open(server: &Server, number: u128, node: &str, ttl_ms: u64) -> String {
    let body = json!({"node_id": node, "ttl_ms": ttl_ms, "session_id": secret(number)});
    let _: SessionResponse = server.post("/v1/sessions/open", body).await.ok();
    secret(number)
}

async fn metric(server: &Server, name: &str) -> f64 {
    let metrics = server.get("/metrics").await.text();
    let values = metrics.lines().filter(|line| line.starts_with(name));
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

#[tokio::test]
async fn nobody_can_frame_another_node() {
    let (server, called) = alarmed().await;
    server.lead("billing", "a").await;
    let billing = ["billing".to_owned()];
    let evil = open(&server, 2, "evil", 60_000).await;
    let closed = open(&server, 3, "a", 60_000).await;
    let _: Value = server.post("/v1/sessions/close", json!({"session_id": closed})).await.ok();
    for _ in 0..5 {
        assert_eq!(
            claim(&server, &secret(77), "a", &billing).await,
            410,
            "a session out of thin air"
        );
        assert_eq!(claim(&server, &closed, "a", &billing).await, 410, "one that was closed");
        assert_eq!(claim(&server, &evil, "a", &billing).await, 200, "the heartbeat itself counts");
    }
    // What it says of itself is heard; had anything been heard before, it would stand before this.
    eventually("it is accused", || async {
        claim(&server, &evil, "evil", &billing).await;
        (!called.lock().unwrap().is_empty()).then_some(())
    })
    .await;
    assert_eq!(*called.lock().unwrap(), ["evil"]);
    assert_eq!(metric(&server, "split_brain_detected_total").await, 1.0);
    let history = server.get("/v1/groups/billing/history").await.text();
    assert!(!history.contains("a acts") && !history.contains("a wanted"), "{history}");
}

/// The leader whose session expired while it went on is whom all this is about.
#[tokio::test]
async fn a_leader_that_acts_on_after_its_session_expired_is_found() {
    let (server, called) = alarmed().await;
    server.lead("billing", "b").await;
    let billing = ["billing".to_owned()];
    let zombie = open(&server, 4, "a", 500).await;
    assert_eq!(claim(&server, &zombie, "a", &[]).await, 200);
    eventually("its session expires", || async {
        let shown = server.post("/v1/sessions/show", json!({"session_id": zombie})).await;
        (shown.status.as_u16() == 410).then_some(())
    })
    .await;
    eventually("it is accused", || async {
        assert_eq!(claim(&server, &zombie, "a", &billing).await, 410);
        (!called.lock().unwrap().is_empty()).then_some(())
    })
    .await;
    assert_eq!(*called.lock().unwrap(), ["a"]);
}

#[tokio::test]
async fn alarms_do_not_come_without_end() {
    let (server, called) = alarmed().await;
    let groups: Vec<String> = (0..40).map(|number| format!("g{number}")).collect();
    for group in &groups {
        server.lead(group, "a").await;
    }
    let evil = open(&server, 5, "evil", 60_000).await;
    eventually("all are counted", || async {
        claim(&server, &evil, "evil", &groups).await;
        (metric(&server, "split_brain_detected_total").await == 40.0).then_some(())
    })
    .await;
    assert_eq!(called.lock().unwrap().len(), 10, "of the rest metrics and histories tell");
}

/// Ids that a client chooses and anybody can guess.
#[tokio::test]
async fn a_session_id_without_chance_is_refused() {
    let server = Server::start().await;
    for id in [
        "00000000000000000000000000000001",
        "ffffffffffffffffffffffffffffffff",
        "abababababababababababababababab",
        "00000000000000000000000065a1b2c3",
        "0123456789abcdef0123456789abcdef",
        "000102030405060708090a0b0c0d0e0f",
        "00112233445566778899aabbccddeeff",
        "deadbeefdeadbeefdeadbeefdeadbeef",
    ] {
        let open = json!({"node_id": "a", "session_id": id});
        let refused = server.post("/v1/sessions/open", open.clone()).await;
        refused.problem(Code::BadRequest);
        server.post("/v1/groups/g/campaign", open).await.problem(Code::BadRequest);
    }
    for id in ["8c1f0a7e52b94d36a0e1f7c2d4b85996", "5ec4e7d1907b3a6f824c15e9b3f0c0de"] {
        let open = json!({"node_id": "a", "session_id": id});
        let _: SessionResponse = server.post("/v1/sessions/open", open).await.ok();
    }
}

/// Whoever tries ids must not learn whose they are.
#[tokio::test]
async fn a_mismatch_does_not_name_the_owner() {
    let server = Server::start().await;
    open(&server, 6, "payments-primary", 7_777).await;
    for body in [
        json!({"node_id": "b", "ttl_ms": 7_777, "session_id": secret(6)}),
        json!({"node_id": "payments-primary", "ttl_ms": 9_999, "session_id": secret(6)}),
    ] {
        for path in ["/v1/sessions/open", "/v1/groups/g/campaign"] {
            let refused = server.post(path, body.clone()).await;
            let text = refused.text();
            assert!(!text.contains("payments-primary") && !text.contains("7777"), "{text}");
            refused.problem(Code::SessionMismatch);
        }
    }
}
