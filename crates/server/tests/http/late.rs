//! A server whose tasks run too late: which requests it refuses, and by what.

use std::time::Duration;

use regent_api::Code;
use regent_election::store::Open;
use regent_election::{Node, SessionId};
use regent_server::ServerConfig;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::access::guarded_with;
use crate::support::{Server, eventually, patiently, secret};

/// Whatever its probes measure is too late, so it refuses more with each, up to all that it ever refuses for that.
fn always_late() -> ServerConfig {
    ServerConfig { queue_delay_max: Duration::from_nanos(1), ..ServerConfig::default() }
}

/// Waits until the last class that a delay refuses is refused.
async fn is_late(server: &Server) {
    eventually("refused releases", || async {
        let answer = server.post("/v1/sessions/close", json!({"session_id": secret(9)})).await;
        (answer.status == 429).then_some(())
    })
    .await;
}

async fn open(server: &Server, number: u128) -> String {
    let text = secret(number);
    let session: SessionId = text.parse().unwrap();
    let open = Open { node: Node::new("a").unwrap(), ttl_ms: 60_000, session };
    server.store.open(open).await.unwrap();
    text
}

/// L7: what keeps an office is served by a server that is too late for everything else.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_runs_late_refuses_watches_reads_and_campaigns_and_serves_renewals() {
    let server = Server::with(always_late()).await;
    let session = open(&server, 1).await;
    is_late(&server).await;
    for path in ["/v1/groups/g/watch?wait_ms=0", "/v1/groups/g/leader", "/v1/groups"] {
        let problem = server.get(path).await.problem(Code::RateLimited);
        assert!(problem.retry_after_ms.is_some(), "{path}: {problem}");
    }
    let bid = json!({"node_id": "a", "session_id": session});
    server.post("/v1/groups/g/campaign", bid).await.problem(Code::RateLimited);
    for _ in 0..10 {
        let heartbeat = json!({"session_id": session});
        let answer = server.post("/v1/sessions/heartbeat", heartbeat).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(server.get("/healthz").await.status, 200);
    let metrics = server.get("/metrics").await.text();
    let shed = |class: &str| {
        let label = format!("regent_requests_shed_total{{class=\"{class}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&label).map(str::to_owned));
        line.unwrap().parse::<u64>().unwrap()
    };
    assert!(["watch", "read", "admin", "campaign", "release"].iter().all(|class| shed(class) > 0));
    assert_eq!(shed("renew"), 0);
}

/// A refusal needs the head only: no body is awaited, and nobody is identified.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_runs_late_refuses_by_the_head() {
    let server = guarded_with(always_late()).await;
    is_late(&server).await;
    let mut stream = server.connect().await;
    let head = "POST /v1/groups/g/campaign HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    patiently("an answer without a body", stream.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 429", "no body came, and no credential");
}

/// A connection that was refused serves the next request.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_does_not_cost_its_connection() {
    let server = Server::with(always_late()).await;
    let session = open(&server, 1).await;
    is_late(&server).await;
    let body = json!({"session_id": session}).to_string();
    let heartbeat = format!(
        "POST /v1/sessions/heartbeat HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let bid = json!({"node_id": "a"}).to_string();
    let refused = format!(
        "POST /v1/groups/g/campaign HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{bid}",
        bid.len()
    );
    let answers = crate::support::raw(&server, format!("{refused}{heartbeat}").as_bytes()).await;
    let statuses: Vec<&str> =
        answers.split("HTTP/1.1 ").skip(1).filter_map(|rest| rest.split(' ').next()).collect();
    assert_eq!(statuses, ["429", "200"], "{answers}");
}

/// A connection whose refusal is held back is of no use to anybody meanwhile: it gives way, so that a client behind the same
/// address still gets one to renew by.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_that_are_held_back_keep_no_newcomer_out() {
    let config = ServerConfig { connections_per_address_max: 16, ..always_late() };
    let server = Server::with(config).await;
    let session = open(&server, 1).await;
    is_late(&server).await;
    let refused = "GET /v1/groups/g/leader HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for _ in 0..5 {
        let mut flood = Vec::new();
        for _ in 0..32 {
            let mut stream = server.connect().await;
            // One that was left for a newcomer takes no more.
            let _ = stream.write_all(refused.repeat(8).as_bytes()).await;
            flood.push(stream);
        }
        let answer = server.post("/v1/sessions/heartbeat", json!({"session_id": session})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}
