//! Groups, policies, step-downs, history.

use regent_api::{
    CampaignResponse, Code, GroupResponse, GroupsResponse, HistoryResponse, LeaderResponse,
    SteppedDown,
};
use regent_election::Cause;
use serde_json::json;

use crate::support::{Server, secret};

#[tokio::test]
async fn a_group_is_created_with_a_policy_and_returned_to_the_default() {
    let server = Server::start().await;
    let body = json!({"policy": {
        "lock_delay_ms": 5_000,
        "allow": ["web-*"],
        "priorities": [{"nodes": "web-1", "priority": 5}],
    }});
    let made: GroupResponse = server.put("/v1/groups/billing", body).await.ok();
    assert!(made.own_policy);
    assert_eq!(made.policy.lock_delay_ms, 5_000);
    assert_eq!(made.policy.priorities[0].priority, 5);
    let shown: GroupResponse = server.get("/v1/groups/billing").await.ok();
    assert_eq!(shown.policy, made.policy);
    let back: GroupResponse = server.put("/v1/groups/billing", json!({})).await.ok();
    assert!(!back.own_policy);
    assert_eq!(back.policy, regent_api::PolicyBody::default());
}

#[tokio::test]
async fn a_policy_that_contradicts_itself_is_refused_with_its_numbers() {
    let server = Server::start().await;
    for (policy, part) in [
        (json!({"ttl_ms_min": 9_000, "ttl_ms_max": 8_000}), "9000 ms to 8000 ms"),
        (json!({"minimum_tenure_ms": 3}), "minimum tenure 3 ms"),
        (json!({"lock_delay_ms": 9_007_199_254_740_991_u64}), "lock delay"),
        (json!({"ttl_ms_max": 80_000_000}), "within 500 ms"),
    ] {
        let body = json!({"policy": policy});
        let problem = server.put("/v1/groups/billing", body).await.problem(Code::PolicyRefused);
        assert!(problem.detail.contains(part), "{problem}");
    }
    server.get("/v1/groups/billing").await.problem(Code::GroupUnknown);
}

#[tokio::test]
async fn a_policy_keeps_strangers_and_wrong_ttls_out() {
    let server = Server::start().await;
    let body = json!({"policy": {"allow": ["web-*"], "ttl_ms_min": 2_000, "ttl_ms_max": 4_000}});
    let _: GroupResponse = server.put("/v1/groups/billing", body).await.ok();
    let path = "/v1/groups/billing/campaign";
    server.post(path, json!({"node_id": "db-1", "ttl_ms": 3_000})).await.problem(Code::NotAllowed);
    let problem = server
        .post(path, json!({"node_id": "web-1", "ttl_ms": 5_000}))
        .await
        .problem(Code::TtlOutOfBounds);
    assert_eq!(problem.facts.ttl_ms_max, Some(4_000));
    let won: CampaignResponse =
        server.post(path, json!({"node_id": "web-1", "ttl_ms": 3_000})).await.ok();
    assert!(won.elected);
}

#[tokio::test]
async fn groups_are_listed_page_by_page_in_the_order_of_their_names() {
    let server = Server::start().await;
    for group in ["b/2", "a", "b/1", "c"] {
        let path = format!("/v1/groups/{}", group.replace('/', "%2F"));
        let _: GroupResponse = server.put(&path, json!({})).await.ok();
    }
    let mut names = Vec::new();
    let mut address = "/v1/groups?count=1".to_owned();
    loop {
        let page: GroupsResponse = server.get(&address).await.ok();
        names.extend(page.groups.iter().map(|office| office.group.to_string()));
        let Some(next) = page.next else { break };
        address = format!("/v1/groups?count=1&after={}", next.as_str().replace('/', "%2F"));
    }
    assert_eq!(names, ["a", "b/1", "b/2", "c"]);
    let some: GroupsResponse = server.get("/v1/groups?prefix=b%2F").await.ok();
    assert_eq!(some.groups.len(), 2);
    for query in ["count=0", "count=513", "count=-1", "count=x", "prefx=a", "after=a%20b"] {
        server.get(&format!("/v1/groups?{query}")).await.problem(Code::BadRequest);
    }
    let long = "a".repeat(201);
    server.get(&format!("/v1/groups?prefix={long}")).await.problem(Code::BadRequest);
}

#[tokio::test]
async fn a_step_down_needs_a_reason_and_somebody_to_step_down() {
    let server = Server::start().await;
    let path = "/v1/groups/billing/step-down";
    server.post(path, json!({})).await.problem(Code::BadRequest);
    server.post(path, json!({"reason": "  "})).await.problem(Code::BadRequest);
    server.post(path, json!({"reason": "x".repeat(501)})).await.problem(Code::BadRequest);
    let _: GroupResponse = server.put("/v1/groups/billing", json!({})).await.ok();
    server.post(path, json!({"reason": "maintenance"})).await.problem(Code::NobodyLeads);
}

#[tokio::test]
async fn a_step_down_lets_the_holder_stop_first_and_is_remembered_with_its_reason() {
    let server = Server::start().await;
    let office = server.lead("billing", "a").await;
    let told: SteppedDown =
        server.post("/v1/groups/billing/step-down", json!({"reason": "maintenance"})).await.ok();
    assert!(matches!(told, SteppedDown::Ending { within_ms: 1..=10_000 }), "{told:?}");
    let shown: GroupResponse = server.get("/v1/groups/billing").await.ok();
    assert_eq!(shown.ending, Some(Cause::SteppedDown));
    let body = json!({"session_id": office.session_id, "term": office.term});
    server.post("/v1/groups/billing/renew", body).await.problem(Code::TenureEnding);
    office.resign(&server).await;
    let history: HistoryResponse = server.get("/v1/groups/billing/history").await.ok();
    let last = history.changes.last().unwrap();
    assert_eq!((last.cause, last.leader.as_ref()), (Cause::SteppedDown, None));
    assert_eq!(last.reason.as_deref(), Some("maintenance"));
    assert!(last.at.as_ref().is_some_and(|at| at.ends_with('Z')), "{last:?}");
}

#[tokio::test]
async fn a_forced_step_down_says_how_long_two_may_act() {
    let server = Server::start().await;
    server.lead("billing", "a").await;
    server.stand("billing", "b", &secret(5)).await;
    let body = json!({"reason": "it hangs", "immediate": true, "to": "b"});
    let told: SteppedDown = server.post("/v1/groups/billing/step-down", body).await.ok();
    assert!(matches!(told, SteppedDown::Forced { overlap_possible_ms: 1..=10_000 }), "{told:?}");
    let seen: LeaderResponse = server.get("/v1/groups/billing/leader").await.ok();
    assert_eq!(seen.office.leader.unwrap().as_str(), "b");
}

#[tokio::test]
async fn a_deleted_groups_terms_never_come_back() {
    let server = Server::start().await;
    let office = server.lead("billing", "a").await;
    office.resign(&server).await;
    let gone: SteppedDown = server.delete("/v1/groups/billing?request_id=0-d").await.ok();
    assert_eq!(gone, SteppedDown::Over);
    server.get("/v1/groups/billing").await.problem(Code::GroupUnknown);
    server.get("/v1/groups/billing/history").await.problem(Code::GroupUnknown);
    server.delete("/v1/groups/billing").await.problem(Code::GroupUnknown);
    let again = server.lead("billing", "a").await;
    assert!(again.term > office.term);
}
