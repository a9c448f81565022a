//! What the process says about itself.

use regent_api::{Code, HealthResponse, ReadyResponse};
use serde_json::Value;

use crate::support::Server;

#[tokio::test]
async fn health_is_the_process_and_readiness_is_the_store() {
    let server = Server::start().await;
    let health: HealthResponse = server.get("/healthz").await.ok();
    assert!(health.alive);
    assert_eq!(server.get("/livez").await.ok::<HealthResponse>(), health);
    let ready: ReadyResponse = server.get("/readyz").await.ok();
    assert!(ready.ready);
    assert_eq!(ready.store, server.store.describe().name);
    server.store.shut_down().await;
    server.get("/readyz").await.problem(Code::StoreUnavailable);
    let health: HealthResponse = server.get("/healthz").await.ok();
    assert!(health.alive);
}

#[tokio::test]
async fn a_store_that_went_away_is_a_definite_no_with_a_time_to_retry() {
    let server = Server::start().await;
    let office = server.lead("g", "a").await;
    server.store.shut_down().await;
    let body = serde_json::json!({"session_id": office.session_id, "term": office.term});
    let problem = server.post("/v1/groups/g/renew", body).await.problem(Code::StoreUnavailable);
    assert!(problem.code.nothing_happened());
    assert!(problem.retry_after_ms.is_some());
    let metrics = server.get("/metrics").await.text();
    assert!(metrics.contains("regent_store_up 0\n"), "{metrics}");
    assert!(metrics.contains("renew_failures_total{reason=\"BACKEND_DOWN\"} 1\n"), "{metrics}");
}

#[tokio::test]
async fn the_document_is_served_as_json() {
    let server = Server::start().await;
    let answer = server.get("/openapi.json").await;
    assert_eq!(answer.header("content-type"), "application/json");
    let document: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(document, regent_api::openapi::document());
}

#[tokio::test]
async fn the_page_needs_nothing_from_elsewhere() {
    let server = Server::start().await;
    let answer = server.get("/").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    let policy = answer.header("content-security-policy").to_owned();
    assert!(policy.contains("default-src 'none'") && policy.contains("connect-src 'self'"));
    let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap().to_owned();
    let page = answer.text();
    assert_eq!(page.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
    assert!(!page.contains("{{nonce}}"));
    for foreign in ["http://", "https://", "//cdn", "@import", "innerHTML"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    // It calls nothing live that the store does not confirm.
    assert!(page.contains("\"/readyz\"") && page.contains("groups unknown: "));
    assert_ne!(server.get("/").await.header("content-security-policy"), policy);
}
