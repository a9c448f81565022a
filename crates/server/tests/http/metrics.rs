//! The numbers, by the names operators know.

use std::sync::Arc;

use regent_server::ServerConfig;
use regent_stores::MemoryStore;
use serde_json::json;

use crate::restless::Restless;
use crate::support::{Server, eventually, secret};

/// The value of one line of the text, if it is there.
fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// The values of all lines that open with this.
fn sum(text: &str, opening: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(opening));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[tokio::test]
async fn elections_changes_and_failures_are_counted() {
    let config = ServerConfig { cluster: "test".to_owned(), ..ServerConfig::default() };
    let server = Server::with(config).await;
    let office = server.lead("billing", "a").await;
    let _ = server.post("/v1/groups/billing/campaign", json!({"node_id": "b"})).await;
    let wrong = json!({"session_id": office.session_id, "term": 7});
    let _ = server.post("/v1/groups/billing/renew", wrong).await;
    let _ = server.post("/v1/sessions/heartbeat", json!({"session_id": secret(1)})).await;
    office.resign(&server).await;
    server.lead("billing", "b").await;
    let text = eventually("the observer's numbers", || async {
        let text = server.get("/metrics").await.text();
        let elections = value(&text, "leader_elections_total{cluster=\"test\"}");
        (elections == Some(2.0)).then_some(text)
    })
    .await;
    // The campaign of b that lost is no election, and comes back: then the vacancy that it ends is one.
    assert_eq!(sum(&text, "election_duration_seconds_count{result=\"success\""), 2.0, "{text}");
    assert_eq!(sum(&text, "election_duration_seconds_count{result=\"failed\""), 0.0, "{text}");
    assert_eq!(sum(&text, "time_to_elect_ms_count{"), 2.0, "{text}");
    for (series, expected) in [
        ("leader_changes_total{group_id=\"billing\",cause=\"elected\"}", 1.0),
        ("leader_changes_total{group_id=\"billing\",cause=\"resigned\"}", 1.0),
        ("leader_changes_total{group_id=\"billing\",cause=\"expired\"}", 0.0),
        ("leader_changes_total{group_id=\"_other\",cause=\"expired\"}", 0.0),
        ("split_brain_detected_total{group_id=\"billing\"}", 0.0),
        ("regent_groups_vacant", 0.0),
        ("active_leaders_count{group_id=\"billing\",expected=\"1\"}", 1.0),
        ("renew_failures_total{reason=\"NOT_LEADER\"}", 1.0),
        ("renew_failures_total{reason=\"SESSION_EXPIRED\"}", 1.0),
        ("renew_failures_total{reason=\"BACKEND_DOWN\"}", 0.0),
        ("store_quorum_health", 1.0),
        ("regent_groups", 1.0),
        ("regent_sessions", 1.0),
        ("regent_groups_contended", 1.0),
        ("regent_store_up", 1.0),
        ("regent_requests_shed_total{class=\"campaign\"}", 0.0),
        ("regent_build_info{version=\"0.1.0\"}", 1.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series} in {text}");
    }
    assert!(value(&text, "leader_stable_seconds{group_id=\"billing\"}").is_some());
    assert!(value(&text, "regent_connections").is_some_and(|open| open >= 1.0));
    let renewed = "regent_http_request_duration_seconds_count\
                   {route=\"/v1/groups/{group}/renew\",code=\"NOT_LEADER\"}";
    assert_eq!(value(&text, renewed), Some(1.0), "{text}");
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn a_group_beyond_the_bound_gets_no_label_of_its_own() {
    let config = ServerConfig { metrics_groups_max: 1, ..ServerConfig::default() };
    let server = Server::with(config).await;
    for group in ["first", "second", "third"] {
        server.lead(group, "a").await;
    }
    eventually("the observer's numbers", || async {
        let text = server.get("/metrics").await.text();
        let series = "leader_changes_total{group_id=\"_other\",cause=\"elected\"}";
        (value(&text, series) == Some(2.0)).then_some(())
    })
    .await;
}

/// A service is restarted; its store, and so who leads, goes on.
#[tokio::test]
async fn stability_outlives_a_restart_and_old_elections_are_not_counted_again() {
    let store = Arc::new(MemoryStore::new().unwrap());
    let mut first = Server::on(Restless::quiet(Arc::clone(&store)), ServerConfig::default()).await;
    first.lead("billing", "a").await;
    first.stop();
    first.stopped().await;
    let second = Server::on(Restless::quiet(store), ServerConfig::default()).await;
    let text = eventually("the observer has begun", || async {
        let text = second.get("/metrics").await.text();
        value(&text, "leader_stable_seconds{group_id=\"billing\"}").map(|_| text)
    })
    .await;
    assert_eq!(value(&text, "leader_elections_total{cluster=\"regent\"}"), Some(0.0), "{text}");
    let active = "active_leaders_count{group_id=\"billing\",expected=\"1\"}";
    assert_eq!(value(&text, active), Some(1.0));
}
