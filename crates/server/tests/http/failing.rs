//! Leaders that are about to fail, told by what they tell: over real HTTP, on the real store.

use regent_api::{GroupResponse, HeartbeatResponse, HistoryResponse, SessionResponse};
use regent_server::{ReplaceFailing, ServerConfig};
use serde_json::{Value, json};

use crate::support::{Server, eventually, secret};

const TTL_MS: u64 = 60_000;
const HEALTHY_MS: u64 = 32_000;
/// Later and later, until it is foreseen.
const FALL_MS: [u64; 8] = [32_000, 32_000, 32_000, 30_000, 28_000, 26_000, 24_000, 22_000];

async fn serve(replace_failing: ReplaceFailing) -> Server {
    let server = Server::with(ServerConfig { replace_failing, ..ServerConfig::default() }).await;
    let policy = json!({"policy": {"minimum_tenure_ms": 0}});
    let _: GroupResponse = server.put("/v1/groups/billing", policy).await.ok();
    server
}

/// A node stands in the group with a session of its own.
async fn stand(server: &Server, number: u128, node: &str) {
    let body = json!({"node_id": node, "session_id": secret(number), "ttl_ms": TTL_MS});
    let answer = server.post("/v1/groups/billing/campaign", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// One renewal, and what was left when the last one came.
async fn renew(server: &Server, number: u128, node: &str, margin_ms: u64, terms: &[u64]) {
    let claim = |term: &u64| json!({"group": "billing", "term": term, "left_ms": 50_000});
    let claims: Vec<Value> = terms.iter().map(claim).collect();
    let beliefs =
        json!({"node_id": node, "ttl_ms": TTL_MS, "margin_ms": margin_ms, "claims": claims});
    let body = json!({"session_id": secret(number), "beliefs": beliefs});
    let _: HeartbeatResponse = server.post("/v1/sessions/heartbeat", body).await.ok();
}

async fn fall(server: &Server, standby_ms: impl Fn(u64) -> u64) {
    for margin_ms in FALL_MS {
        renew(server, 2, "b", standby_ms(margin_ms), &[]).await;
        renew(server, 1, "a", margin_ms, &[1]).await;
    }
}

async fn session(server: &Server, number: u128) -> SessionResponse {
    server.post("/v1/sessions/show", json!({"session_id": secret(number)})).await.ok()
}

async fn history(server: &Server) -> Vec<(String, String)> {
    let history: HistoryResponse = server.get("/v1/groups/billing/history").await.ok();
    let told = serde_json::to_value(history).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lines = told["changes"].as_array().unwrap().iter();
    lines.map(|line| (text(&line["cause"]), text(&line["reason"]))).collect()
}

async fn predictions(server: &Server, outcome: &str) -> f64 {
    let series = format!("regent_leader_predictions_total{{outcome=\"{outcome}\"}} ");
    value(server, &series).await
}

async fn value(server: &Server, series: &str) -> f64 {
    let text = server.get("/metrics").await.text();
    let found = text.lines().find_map(|line| line.strip_prefix(series)?.parse().ok());
    found.unwrap_or_else(|| panic!("no {series} in {text}"))
}

#[tokio::test]
async fn a_failing_leader_is_asked_to_hand_over_and_the_history_says_why() {
    let server = serve(ReplaceFailing::HandOver).await;
    stand(&server, 1, "a").await;
    stand(&server, 2, "b").await;
    assert_eq!(predictions(&server, "hand_over").await, 0.0, "there from the first scrape");
    fall(&server, |_| HEALTHY_MS).await;
    let told = eventually("the office is offered", || async {
        let told = history(&server).await;
        (told.last()?.0 == "failing").then(|| told.last().cloned().unwrap())
    })
    .await;
    assert!(told.1.starts_with("predicted: a's renewals came with "), "{told:?}");
    assert!(told.1.ends_with("; b has 32.0s and is asked to take over"), "{told:?}");
    let leader = serde_json::to_value(session(&server, 1).await).unwrap();
    assert_eq!(leader["tenures"][0]["offered_to"], "b", "{leader}");
    assert_eq!(leader["tenures"][0]["state"], "leading", "nobody is deposed: {leader}");
    let standby = serde_json::to_value(session(&server, 2).await).unwrap();
    assert_eq!(standby["offers"][0]["by"], "a", "{standby}");
    eventually("it is counted", || async {
        (predictions(&server, "hand_over").await == 1.0).then_some(())
    })
    .await;
    assert_eq!(value(&server, "regent_leaders_failing ").await, 1.0);
    // The hand-over as the leader does it.
    let warm = json!({"session_id": secret(2), "term": 1});
    assert_eq!(server.post("/v1/groups/billing/warm", warm).await.status, 200);
    let transfer = json!({"session_id": secret(1), "term": 1, "to": "b"});
    assert_eq!(server.post("/v1/groups/billing/transfer", transfer).await.status, 200);
    let causes: Vec<String> = history(&server).await.into_iter().map(|line| line.0).collect();
    assert_eq!(causes, ["elected", "failing", "transferred"]);
    // What it goes on to tell of its old term moves nobody.
    fall(&server, |_| HEALTHY_MS).await;
    assert_eq!(predictions(&server, "hand_over").await, 1.0);
}

#[tokio::test]
async fn by_default_it_is_told_and_nobody_is_asked() {
    let server = serve(ReplaceFailing::default()).await;
    stand(&server, 1, "a").await;
    stand(&server, 2, "b").await;
    fall(&server, |_| HEALTHY_MS).await;
    let told = eventually("the history tells", || async {
        let told = history(&server).await;
        (told.last()?.0 == "failing").then(|| told.last().cloned().unwrap())
    })
    .await;
    assert!(told.1.ends_with("nobody is asked to hand over (replace_failing)"), "{told:?}");
    let leader = serde_json::to_value(session(&server, 1).await).unwrap();
    assert!(leader["tenures"][0]["offered_to"].is_null(), "{leader}");
    assert_eq!(predictions(&server, "reported").await, 1.0);
}

#[tokio::test]
async fn what_is_slow_for_both_moves_nobody() {
    let server = serve(ReplaceFailing::HandOver).await;
    stand(&server, 1, "a").await;
    stand(&server, 2, "b").await;
    fall(&server, |margin_ms| margin_ms).await;
    let told = eventually("the history tells", || async {
        let told = history(&server).await;
        (told.last()?.0 == "failing").then(|| told.last().cloned().unwrap())
    })
    .await;
    assert!(told.1.ends_with("no standby is known to do clearly better"), "{told:?}");
    let leader = serde_json::to_value(session(&server, 1).await).unwrap();
    assert!(leader["tenures"][0]["offered_to"].is_null(), "{leader}");
    assert_eq!(predictions(&server, "hand_over").await, 0.0);
}

/// Margins are believed of a leader only, and a leader is who the store says.
#[tokio::test]
async fn whoever_does_not_lead_cannot_have_anybody_replaced() {
    let server = serve(ReplaceFailing::HandOver).await;
    stand(&server, 1, "a").await;
    stand(&server, 2, "b").await;
    // Another session of the same name, which the store knows too.
    let open = json!({"node_id": "a", "ttl_ms": TTL_MS, "session_id": secret(3)});
    let _: SessionResponse = server.post("/v1/sessions/open", open).await.ok();
    for margin_ms in FALL_MS {
        renew(&server, 2, "b", HEALTHY_MS, &[]).await;
        renew(&server, 3, "a", margin_ms, &[1]).await;
    }
    // One that the store does not know.
    for margin_ms in FALL_MS {
        let claims = json!([{"group": "billing", "term": 1, "left_ms": 1}]);
        let beliefs =
            json!({"node_id": "a", "ttl_ms": TTL_MS, "margin_ms": margin_ms, "claims": claims});
        let body = json!({"session_id": secret(9), "beliefs": beliefs});
        assert_ne!(server.post("/v1/sessions/heartbeat", body).await.status, 200);
    }
    // The true leader falls afterwards: had anything been done before, it would stand before this.
    fall(&server, |_| HEALTHY_MS).await;
    let told = eventually("the history tells", || async {
        let told = history(&server).await;
        (told.last()?.0 == "failing").then_some(told)
    })
    .await;
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].1.contains("is asked to take over"), "{told:?}");
    eventually("it is counted", || async {
        (predictions(&server, "hand_over").await == 1.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn off_is_off() {
    let server = serve(ReplaceFailing::Off).await;
    stand(&server, 1, "a").await;
    stand(&server, 2, "b").await;
    fall(&server, |_| HEALTHY_MS).await;
    assert_eq!(value(&server, "regent_leaders_failing ").await, 0.0);
    assert_eq!(history(&server).await.len(), 1);
}

#[tokio::test]
async fn the_first_renewal_after_an_election_or_a_start_of_the_server_is_no_near_miss() {
    let server = serve(ReplaceFailing::default()).await;
    stand(&server, 1, "a").await;
    // The first one tells how it stood by, or what another server saw; the second one how long it waited for this server.
    renew(&server, 1, "a", 5, &[1]).await;
    renew(&server, 1, "a", 5, &[1]).await;
    assert_eq!(value(&server, "regent_near_misses_total ").await, 0.0);
    assert_eq!(value(&server, "regent_renew_margin_seconds_count ").await, 0.0);
    renew(&server, 1, "a", 5, &[1]).await;
    assert_eq!(value(&server, "regent_near_misses_total ").await, 1.0);
}

#[tokio::test]
async fn a_standbys_margin_is_no_near_miss() {
    let server = serve(ReplaceFailing::default()).await;
    stand(&server, 1, "a").await;
    stand(&server, 2, "b").await;
    renew(&server, 2, "b", 5, &[]).await;
    assert_eq!(value(&server, "regent_near_misses_total ").await, 0.0);
    assert_eq!(value(&server, "regent_renew_margin_seconds_count ").await, 0.0);
    renew(&server, 1, "a", HEALTHY_MS, &[1]).await;
    renew(&server, 1, "a", HEALTHY_MS, &[1]).await;
    // It has just stopped, and tells how close it was.
    renew(&server, 1, "a", 5, &[]).await;
    assert_eq!(value(&server, "regent_near_misses_total ").await, 1.0);
    renew(&server, 1, "a", 5, &[]).await;
    assert_eq!(value(&server, "regent_near_misses_total ").await, 1.0, "it stands by");
}
