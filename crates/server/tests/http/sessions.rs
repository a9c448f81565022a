//! Sessions, and the secrets they are.

use regent_api::{
    CampaignResponse, Code, Done, HeartbeatResponse, LeaderResponse, SessionResponse,
};
use serde_json::json;

use crate::support::{Server, secret};

#[tokio::test]
async fn a_session_is_opened_once_however_often_it_is_asked_for() {
    let server = Server::start().await;
    let body = json!({"node_id": "a", "ttl_ms": 5_000, "session_id": secret(1)});
    let first: SessionResponse = server.post("/v1/sessions/open", body.clone()).await.ok();
    let second: SessionResponse = server.post("/v1/sessions/open", body).await.ok();
    assert_eq!((first.session_id, first.ttl_ms), (second.session_id, 5_000));
    let other = json!({"node_id": "b", "ttl_ms": 5_000, "session_id": secret(1)});
    server.post("/v1/sessions/open", other).await.problem(Code::SessionMismatch);
    let made: SessionResponse =
        server.post("/v1/sessions/open", json!({"node_id": "a"})).await.ok();
    assert_ne!(made.session_id, first.session_id);
    assert_eq!(made.ttl_ms, 10_000);
}

#[tokio::test]
async fn one_heartbeat_keeps_everything_and_an_old_one_is_refused() {
    let server = Server::start().await;
    let open = json!({"node_id": "a", "session_id": secret(1)});
    let _: SessionResponse = server.post("/v1/sessions/open", open).await.ok();
    let renew = |sequence: u64| json!({"session_id": secret(1), "sequence": sequence});
    let heard: HeartbeatResponse = server.post("/v1/sessions/heartbeat", renew(2)).await.ok();
    assert_eq!(heard.ttl_ms, 10_000);
    server.post("/v1/sessions/heartbeat", renew(2)).await.problem(Code::HeartbeatNotNewer);
    let _: HeartbeatResponse = server.post("/v1/sessions/heartbeat", renew(3)).await.ok();
    let _: HeartbeatResponse =
        server.post("/v1/sessions/heartbeat", json!({"session_id": secret(1)})).await.ok();
}

#[tokio::test]
async fn a_heartbeat_gives_up_the_terms_it_disowns() {
    let server = Server::start().await;
    let office = server.lead("billing", "a").await;
    let keep = json!({"node_id": "a", "session_id": office.session_id});
    let _: CampaignResponse = server.post("/v1/groups/other/campaign", keep).await.ok();
    let body = json!({
        "session_id": office.session_id,
        "disown": [{"group": "billing", "term": office.term}],
    });
    let _: HeartbeatResponse = server.post("/v1/sessions/heartbeat", body).await.ok();
    let seen: LeaderResponse = server.get("/v1/groups/billing/leader").await.ok();
    assert_eq!(seen.office.leader, None);
    let seen: LeaderResponse = server.get("/v1/groups/other/leader").await.ok();
    assert!(seen.office.leader.is_some());
}

#[tokio::test]
async fn a_session_shows_its_owner_what_it_holds_and_where_it_stands() {
    let server = Server::start().await;
    server.lead("taken", "other").await;
    let campaign = json!({"node_id": "a", "session_id": secret(1)});
    let won: CampaignResponse =
        server.post("/v1/groups/mine/campaign", campaign.clone()).await.ok();
    assert!(won.elected);
    let stood: CampaignResponse = server.post("/v1/groups/taken/campaign", campaign).await.ok();
    assert!(stood.standing);
    let shown: SessionResponse =
        server.post("/v1/sessions/show", json!({"session_id": secret(1)})).await.ok();
    assert_eq!(shown.tenures.len(), 1);
    assert_eq!(shown.tenures[0].group.as_str(), "mine");
    assert_eq!(shown.standing[0].as_str(), "taken");
}

#[tokio::test]
async fn a_closed_session_has_resigned_everything_and_stays_closed() {
    let server = Server::start().await;
    let campaign = json!({"node_id": "a", "session_id": secret(1)});
    let _: CampaignResponse = server.post("/v1/groups/billing/campaign", campaign).await.ok();
    for _ in 0..2 {
        let _: Done =
            server.post("/v1/sessions/close", json!({"session_id": secret(1)})).await.ok();
    }
    let seen: LeaderResponse = server.get("/v1/groups/billing/leader").await.ok();
    assert_eq!(seen.office.leader, None);
    for verb in ["heartbeat", "show"] {
        let path = format!("/v1/sessions/{verb}");
        server.post(&path, json!({"session_id": secret(1)})).await.problem(Code::SessionExpired);
    }
}

#[tokio::test]
async fn ttls_outside_the_bounds_are_refused_with_the_bounds() {
    let server = Server::start().await;
    for ttl_ms in [0, 1, 499, 3_600_001, 9_007_199_254_740_991_u64] {
        let body = json!({"node_id": "a", "ttl_ms": ttl_ms});
        let problem =
            server.post("/v1/sessions/open", body.clone()).await.problem(Code::TtlOutOfBounds);
        assert!(problem.facts.ttl_ms_min.is_some() && problem.facts.ttl_ms_max.is_some());
        server.post("/v1/groups/billing/campaign", body).await.problem(Code::TtlOutOfBounds);
    }
}

/// S11: a secret is shown to nobody but its owner.
#[tokio::test]
async fn no_read_shows_a_session_id() {
    let server = Server::start().await;
    let canary = "c0ffee3a91d7e25b8f46107dc0ffee9b";
    let campaign = json!({"node_id": "a", "session_id": canary});
    let won: CampaignResponse = server.post("/v1/groups/billing/campaign", campaign).await.ok();
    server.stand("billing", "b", "c0ffee5b02d9714e8a36f1c7c0ffee61").await;
    let cursor = "0-0";
    for path in [
        "/v1/groups/billing/leader",
        "/v1/groups/billing",
        "/v1/groups",
        "/v1/groups/billing/history",
        "/v1/groups/billing/watch",
        &format!("/v1/groups/billing/watch?cursor={cursor}&wait_ms=0"),
        "/v1/watch",
        "/metrics",
        "/",
    ] {
        let text = server.get(path).await.text();
        assert!(!text.contains("c0ffee"), "{path} shows a secret: {text}");
    }
    let lost: CampaignResponse =
        server.post("/v1/groups/billing/campaign", json!({"node_id": "c"})).await.ok();
    assert_eq!(lost.session_id, None);
    assert_eq!(won.session_id.unwrap().reveal(), canary);
}
