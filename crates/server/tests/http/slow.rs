//! Peers that are slow on purpose: their connections end, nobody else notices.

use std::time::Duration;

use regent_api::Code;
use regent_server::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Server, patiently, problem_of, until_closed};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const EMPTY_SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

async fn impatient() -> Server {
    Server::with(ServerConfig {
        head_timeout: Duration::from_millis(150),
        body_timeout: Duration::from_millis(150),
        idle_timeout: Duration::from_millis(300),
        write_timeout: Duration::from_millis(300),
        ..ServerConfig::default()
    })
    .await
}

/// Sends `bytes`, then nothing, and waits for the server to hang up.
async fn left(server: &Server, bytes: &[u8]) -> String {
    let mut stream = server.connect().await;
    stream.write_all(bytes).await.unwrap();
    let answer = until_closed(&mut stream).await;
    server.serves().await;
    answer
}

#[tokio::test]
async fn a_peer_that_sends_nothing_is_left() {
    let server = impatient().await;
    assert_eq!(left(&server, b"").await, "");
}

#[tokio::test]
async fn a_peer_that_sends_half_a_head_is_left() {
    let server = impatient().await;
    left(&server, b"GET /healthz HTTP/1.1\r\nhost: local").await;
    left(&server, b"G").await;
}

#[tokio::test]
async fn a_peer_that_sends_half_an_http2_preface_is_left() {
    let server = impatient().await;
    for length in [1, 3, 10, PREFACE.len() - 1] {
        left(&server, &PREFACE[..length]).await;
    }
}

#[tokio::test]
async fn a_peer_that_opens_http2_and_asks_nothing_is_left() {
    let server = impatient().await;
    left(&server, PREFACE).await;
    left(&server, &[PREFACE, EMPTY_SETTINGS].concat()).await;
    // Half a HEADERS frame: ten bytes announced, two sent.
    let half = b"\0\0\x0a\x01\x04\0\0\0\x01\x82\x84";
    left(&server, &[PREFACE, EMPTY_SETTINGS, half].concat()).await;
}

#[tokio::test]
async fn a_peer_that_drips_its_head_is_left_though_every_byte_is_progress() {
    let server = impatient().await;
    let stream = server.connect().await;
    let (mut from, mut to) = stream.into_split();
    let dripping = tokio::spawn(async move {
        let mut every = tokio::time::interval(Duration::from_millis(20));
        let head = b"GET /healthz HTTP/1.1\r\nx-a: ".iter().chain(std::iter::repeat(&b'a'));
        for byte in head {
            every.tick().await;
            if to.write_all(&[*byte]).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = [0; 64];
    patiently("the server hanging up", async {
        while let Ok(1..) = from.read(&mut buffer).await {}
    })
    .await;
    drop(from);
    patiently("the end of the dripping", dripping).await.unwrap();
    server.serves().await;
}

#[tokio::test]
async fn a_slow_body_is_refused_and_nothing_happens() {
    let server = impatient().await;
    let head = "POST /v1/groups/g/campaign HTTP/1.1\r\nhost: localhost\r\n\
                content-type: application/json\r\ncontent-length: 1000\r\n\r\n{\"n";
    let answer = left(&server, head.as_bytes()).await;
    assert_eq!(problem_of(&answer).code, Code::RequestTimeout);
    server.get("/v1/groups/g").await.problem(Code::GroupUnknown);
}

#[tokio::test]
async fn a_second_request_must_come_as_quickly_as_the_first() {
    let server = impatient().await;
    let asks = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let idle = left(&server, asks).await;
    assert!(idle.starts_with("HTTP/1.1 200"), "{idle}");
    let half = left(&server, &[&asks[..], b"GET /hea"].concat()).await;
    assert!(half.starts_with("HTTP/1.1 200"), "{half}");
}

#[tokio::test]
async fn a_watcher_that_reads_nothing_is_left() {
    let server = impatient().await;
    let office = server.lead("g", "a").await;
    let mut stream = server.connect().await;
    let asks = b"GET /v1/groups/g/watch HTTP/1.1\r\nhost: localhost\r\n\
                 accept: text/event-stream\r\n\r\n";
    stream.write_all(asks).await.unwrap();
    let mut first = [0; 16];
    stream.read_exact(&mut first).await.unwrap();
    let before = server.store.census().await.unwrap().watchers;
    // Events go on until the peer's buffers are full and the server's patience is at its end.
    let metadata: std::collections::BTreeMap<_, _> =
        (0..30).map(|n| (format!("k{n}"), "v".repeat(100))).collect();
    office.resign(&server).await;
    patiently("the watch's end", async {
        while server.store.census().await.unwrap().watchers == before {
            for _ in 0..50 {
                let body = serde_json::json!({"node_id": "a", "metadata": metadata});
                let won: regent_api::CampaignResponse =
                    server.post("/v1/groups/g/campaign", body).await.ok();
                let session_id = won.session_id.unwrap().reveal();
                let body =
                    serde_json::json!({"session_id": session_id, "term": won.office.term.get()});
                let _: regent_api::Done = server.post("/v1/groups/g/resign", body).await.ok();
            }
        }
    })
    .await;
    drop(stream);
    server.serves().await;
}
