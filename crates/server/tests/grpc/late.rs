//! A server whose tasks run too late, over gRPC.

use std::time::Duration;

use regent_api::Code;
use regent_api::grpc as pb;
use regent_election::store::Open;
use regent_election::{Node, SessionId};
use regent_server::ServerConfig;

use crate::support::{Server, patiently, problem, secret};

/// L7: calls are refused as requests over HTTP are, and renewals are served.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_runs_late_refuses_calls_other_than_renewals() {
    let queue_delay_max = Duration::from_nanos(1);
    let server = Server::with(ServerConfig { queue_delay_max, ..ServerConfig::default() }).await;
    let session_id = secret(1);
    let session: SessionId = session_id.parse().unwrap();
    let open = Open { node: Node::new("a").unwrap(), ttl_ms: 60_000, session };
    server.store.open(open).await.unwrap();
    let mut client = server.client();
    let refused = patiently("a refused campaign", async {
        loop {
            let bid = pb::CampaignRequest {
                group: "g".to_owned(),
                node_id: "a".to_owned(),
                session_id: Some(session_id.clone()),
                ..pb::CampaignRequest::default()
            };
            if let Err(status) = client.campaign(bid).await {
                return status;
            }
        }
    })
    .await;
    problem(&refused, Code::RateLimited);
    let read = pb::LeaderRequest { group: "g".to_owned(), consistency: 1 };
    problem(&client.leader(read).await.unwrap_err(), Code::RateLimited);
    for _ in 0..10 {
        let session_id = session_id.clone();
        let heartbeat = pb::HeartbeatRequest { session_id, ..pb::HeartbeatRequest::default() };
        assert_eq!(client.heartbeat(heartbeat).await.unwrap().into_inner().ttl_ms, 60_000);
    }
}
