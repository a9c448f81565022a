//! More connections and requests than there is room for.

use std::time::Duration;

use regent_api::Code;
use regent_server::ServerConfig;
use tokio::net::TcpStream;

use crate::support::{Server, eventually, problem_of, raw, request, until_closed};

async fn small() -> Server {
    Server::with(ServerConfig {
        connections_max: 8,
        connections_per_address_max: 8,
        head_timeout: Duration::from_millis(300),
        ..ServerConfig::default()
    })
    .await
}

/// The whole text of an answer, if the server gave one.
async fn healthz(server: &Server) -> String {
    let asks = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    raw(server, asks).await
}

#[tokio::test]
async fn connections_beyond_the_bound_are_turned_away_and_the_rest_served() {
    let server = small().await;
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..8 {
        held.push(server.connect().await);
    }
    let mut refused = 0;
    for _ in 0..40 {
        let mut stream = server.connect().await;
        let answer = until_closed(&mut stream).await;
        if !answer.is_empty() {
            let problem = problem_of(&answer);
            assert_eq!(problem.code, Code::RateLimited);
            assert_eq!(problem.retry_after_ms, Some(1000));
            refused += 1;
        }
    }
    assert!(refused > 0, "nobody was told why");
    drop(held);
    eventually("room again", || async {
        healthz(&server).await.starts_with("HTTP/1.1 200").then_some(())
    })
    .await;
    server.serves().await;
}

#[tokio::test]
async fn silent_connections_cannot_keep_others_out_for_long() {
    let server = small().await;
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..8 {
        held.push(server.connect().await);
    }
    eventually("room though nobody left by themselves", || async {
        healthz(&server).await.starts_with("HTTP/1.1 200").then_some(())
    })
    .await;
    drop(held);
    server.serves().await;
}

#[tokio::test]
async fn many_at_once_are_all_answered() {
    let server = Server::start().await;
    let office = server.lead("g", "a").await;
    let body = serde_json::json!({"session_id": office.session_id, "term": office.term});
    let mut answers = Vec::new();
    for _ in 0..200 {
        let request = request("POST", "/v1/groups/g/renew", Some(body.to_string()));
        answers.push(server.send(request));
    }
    let mut done = 0;
    for answer in answers {
        let _: regent_api::HeartbeatResponse = answer.await.ok();
        done += 1;
    }
    assert_eq!(done, 200);
}
