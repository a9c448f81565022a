//! A store without replicas says so; what a cluster answers is tested on real processes.

use regent_api::Code;
use serde_json::json;

use crate::support::Server;

#[tokio::test]
async fn a_store_without_replicas_says_so_on_every_route_of_a_cluster() {
    let server = Server::start().await;
    for path in ["/v1/cluster", "/v1/cluster/backup"] {
        let problem = server.get(path).await.problem(Code::Unsupported);
        assert!(problem.detail.contains("memory has no replicas"), "{problem}");
    }
    let member = json!({"id": 2, "peer_address": "b:7401", "client_address": "b:7400"});
    for (path, body) in [
        ("/v1/cluster/members/add", member),
        ("/v1/cluster/members/promote", json!({"id": 2})),
        ("/v1/cluster/members/remove", json!({"id": 2})),
        ("/v1/cluster/transfer", json!({})),
    ] {
        server.post(path, body).await.problem(Code::Unsupported);
    }
}

#[tokio::test]
async fn a_change_of_members_with_an_unknown_field_is_refused_with_the_nearest_one() {
    let server = Server::start().await;
    let body = json!({"id": 2, "peer": "b:7401", "client_address": "b:7400"});
    let problem = server.post("/v1/cluster/members/add", body).await.problem(Code::BadRequest);
    assert_eq!(problem.facts.did_you_mean.as_deref(), Some("peer_address"));
}
