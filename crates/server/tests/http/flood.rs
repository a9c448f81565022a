//! More connections and requests than there is room for.

use std::time::Duration;

use regent_api::Code;
use regent_server::ServerConfig;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Server, eventually, patiently, problem_of, raw, request, until_closed};

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

/// A connection on which a watch is under way; none if it is refused.
async fn watching(server: &Server) -> Option<TcpStream> {
    let mut stream = server.connect().await;
    let asks =
        "GET /v1/groups/g/watch HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n";
    stream.write_all(asks.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    patiently("an answer", stream.read_exact(&mut head)).await.unwrap();
    (&head == b"HTTP/1.1 200").then_some(stream)
}

/// Sends a request on a connection that stays, and gives the status of its answer.
async fn status(stream: &mut TcpStream, path: &str, body: &serde_json::Value) -> u16 {
    let body = body.to_string();
    let length = body.len();
    let asks = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(asks.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    loop {
        let mut some = [0; 4096];
        let count = patiently("an answer", stream.read(&mut some)).await.unwrap();
        assert!(count > 0, "the server hung up: {}", String::from_utf8_lossy(&answer));
        answer.extend(&some[..count]);
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.unwrap().parse().unwrap() {
            return head.split(' ').nth(1).unwrap().parse().unwrap();
        }
    }
}

/// More sockets than a test usually needs.
fn allow_many_sockets() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

/// A server on which one address has this many places.
async fn crowded(per_address: usize) -> Server {
    Server::with(ServerConfig {
        connections_per_address_max: per_address,
        ..ServerConfig::default()
    })
    .await
}

/// L7: thousands of connections from the clients' own address. Those that carry nothing give way; the leader keeps
/// its connection and its office, and whoever comes is served.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_idle_connections_keeps_nobody_out() {
    allow_many_sockets();
    let server = crowded(128).await;
    let office = server.lead("g", "a").await;
    let renewal = serde_json::json!({"session_id": office.session_id, "term": office.term});
    let mut leader = server.connect().await;
    assert_eq!(status(&mut leader, "/v1/groups/g/renew", &renewal).await, 200);
    // It pretends to have a session.
    let bogus =
        serde_json::json!({"session_id": "0123456789abcdef0011223344556677", "sequence": 1});
    let mut flood = Vec::new();
    for round in 0..3000 {
        let mut stream = server.connect().await;
        if round % 20 == 0 {
            assert_eq!(status(&mut stream, "/v1/sessions/heartbeat", &bogus).await, 410);
        }
        flood.push(stream);
        if round % 100 == 99 {
            let kept = status(&mut leader, "/v1/groups/g/renew", &renewal).await;
            let mut fresh = server.connect().await;
            let came = status(&mut fresh, "/v1/groups/g/renew", &renewal).await;
            // The session lives by the connection that carried it last.
            leader = fresh;
            let seen = healthz(&server).await;
            assert_eq!((kept, came), (200, 200), "after {round} connections");
            assert!(seen.starts_with("HTTP/1.1 200"), "after {round} connections: {seen}");
        }
    }
    drop(flood);
    server.serves().await;
}

/// L7: watches are not idle, so they do not give way; but the last places are not theirs.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_watches_leaves_room_for_renewals() {
    let server = crowded(64).await;
    let office = server.lead("g", "a").await;
    let renewal = serde_json::json!({"session_id": office.session_id, "term": office.term});
    let mut held = Vec::new();
    let mut refused = 0;
    for _ in 0..200 {
        match watching(&server).await {
            Some(stream) => held.push(stream),
            None => refused += 1,
        }
    }
    assert!((50..=60).contains(&held.len()) && refused >= 140, "{} held", held.len());
    for _ in 0..20 {
        let mut fresh = server.connect().await;
        assert_eq!(status(&mut fresh, "/v1/groups/g/renew", &renewal).await, 200);
    }
    assert!(healthz(&server).await.starts_with("HTTP/1.1 200"));
    held.truncate(10);
    eventually("room for watches again", || watching(&server)).await;
}

#[tokio::test]
async fn connections_beyond_the_bound_are_turned_away_and_the_rest_served() {
    let server = small().await;
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..8 {
        held.push(watching(&server).await.expect("there is room"));
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
