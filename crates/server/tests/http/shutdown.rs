//! A server that goes away answers what is under way and says goodbye.

use std::time::Duration;

use regent_api::{CampaignResponse, WatchResponse};
use regent_server::ServerConfig;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Server, eventually, patiently, secret, until_closed};

async fn stream(server: &Server) -> TcpStream {
    let mut stream = server.connect().await;
    let asks = b"GET /v1/groups/g/watch HTTP/1.1\r\nhost: localhost\r\n\
                 accept: text/event-stream\r\n\r\n";
    stream.write_all(asks).await.unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 1024];
    patiently("the first event", async {
        while !seen.contains("event: STATE") {
            let count = stream.read(&mut buffer).await.unwrap();
            seen.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        }
    })
    .await;
    stream
}

#[tokio::test]
async fn streams_end_with_closing_and_waiting_requests_are_answered() {
    let mut server = Server::start().await;
    server.lead("g", "a").await;
    let mut watching = stream(&server).await;
    let seen: WatchResponse = server.get("/v1/groups/g/watch").await.ok();
    let poll = format!("/v1/groups/g/watch?cursor={}", seen.cursor);
    let campaign = json!({"node_id": "b", "session_id": secret(4), "wait_ms": 30_000});
    let address = server.address;
    let polling = tokio::spawn(raw_get(address, poll));
    let waiting =
        tokio::spawn(raw_post(address, "/v1/groups/g/campaign".to_owned(), campaign.to_string()));
    eventually("all of them waiting", || async {
        let metrics = server.get("/metrics").await.text();
        metrics.contains("regent_requests_waiting 3\n").then_some(())
    })
    .await;
    server.stop();
    let farewell = until_closed(&mut watching).await;
    assert!(farewell.contains("event: CLOSING"), "{farewell}");
    let polled = patiently("the poll's answer", polling).await.unwrap();
    assert!(polled.starts_with("HTTP/1.1 200"), "{polled}");
    let waited = patiently("the campaign's answer", waiting).await.unwrap();
    assert!(waited.starts_with("HTTP/1.1 200"), "{waited}");
    assert!(waited.contains("\"elected\":false"), "{waited}");
    server.stopped().await;
    assert!(TcpStream::connect(address).await.is_err(), "it still listens");
}

async fn raw_get(address: std::net::SocketAddr, path: String) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let asks = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(asks.as_bytes()).await.unwrap();
    until_closed(&mut stream).await
}

async fn raw_post(address: std::net::SocketAddr, path: String, body: String) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let asks = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(asks.as_bytes()).await.unwrap();
    until_closed(&mut stream).await
}

#[tokio::test]
async fn idle_and_slow_connections_do_not_hold_the_server() {
    let config = ServerConfig { shutdown_grace: Duration::from_secs(2), ..ServerConfig::default() };
    let mut server = Server::with(config).await;
    let mut idle = server.connect().await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let mut half = server.connect().await;
    half.write_all(b"GET /heal").await.unwrap();
    let mut slow_body = server.connect().await;
    slow_body
        .write_all(
            b"POST /v1/groups/g/campaign HTTP/1.1\r\nhost: localhost\r\n\
              content-type: application/json\r\ncontent-length: 10\r\n\r\n{",
        )
        .await
        .unwrap();
    server.stop();
    server.stopped().await;
    for stream in [&mut idle, &mut half, &mut slow_body] {
        until_closed(stream).await;
    }
}

#[tokio::test]
async fn an_office_outlives_the_server_that_announced_it() {
    let mut server = Server::start().await;
    let body = json!({"node_id": "a", "session_id": secret(1)});
    let won: CampaignResponse = server.post("/v1/groups/g/campaign", body).await.ok();
    assert!(won.elected);
    server.stop();
    server.stopped().await;
    // Shutting down resigns nothing: the store refuses further calls instead of losing state.
    let ready = server.store.ready().await;
    assert!(matches!(ready, Err(regent_election::store::StoreError::Unavailable { .. })));
}

#[tokio::test]
async fn a_server_without_an_address_or_with_absurd_settings_does_not_start() {
    let server = Server::start().await;
    let none = regent_server::serve(
        Vec::<regent_server::Listener>::new(),
        server.store.clone(),
        ServerConfig::default(),
        std::future::ready(()),
    );
    assert!(none.await.unwrap_err().to_string().contains("no address"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = ServerConfig { requests_max: 0, ..ServerConfig::default() };
    let absurd =
        regent_server::serve(vec![listener], server.store.clone(), config, std::future::ready(()));
    assert!(absurd.await.unwrap_err().to_string().contains("requests_max"));
}
