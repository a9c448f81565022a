//! What strangers can make the log say: a bounded number of lines of each kind, and how many more there were.
//!
//! A test binary of its own: a subscriber holds for the whole process.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use regent_server::{ServerConfig, serve};
use regent_stores::MemoryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn post(address: SocketAddr, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let asks = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(asks.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    tokio::time::timeout(Duration::from_secs(60), read).await.unwrap().unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_bad_requests_is_no_flood_of_lines() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let store = Arc::new(MemoryStore::new().unwrap());
    tokio::spawn(serve(vec![listener], store, ServerConfig::default(), std::future::pending()));

    // Two terms, so that the first one is stale.
    for _ in 0..2 {
        let won = post(address, "/v1/groups/g/campaign", r#"{"node_id":"a"}"#).await;
        let body: serde_json::Value =
            serde_json::from_str(won.split_once("\r\n\r\n").unwrap().1).unwrap();
        let held = serde_json::json!({"session_id": body["session_id"], "term": body["term"]});
        let resigned = post(address, "/v1/groups/g/resign", &held.to_string()).await;
        assert!(resigned.starts_with("HTTP/1.1 200"), "{resigned}");
    }
    let own = "8c1f0a7e52b94d36a0e1f7c2d4b85996";
    let open = format!(r#"{{"node_id":"a","session_id":"{own}"}}"#);
    let opened = post(address, "/v1/sessions/open", &open);
    assert!(opened.await.starts_with("HTTP/1.1 200"));
    let near = format!(
        r#"{{"session_id":"{own}","beliefs":{{"node_id":"a","ttl_ms":10000,"margin_ms":1,"claims":[{{"group":"g","term":2,"left_ms":9}}]}}}}"#
    );
    let framing = near.replace(r#""node_id":"a""#, r#""node_id":"b""#);
    for _ in 0..200 {
        for (path, body) in [
            ("/v1/groups/g/token/validate", r#"{"term":1}"#),
            ("/v1/groups/nobody/step-down", r#"{"reason":"x"}"#),
            ("/v1/groups/nobody/move", r#"{"step":"stop"}"#),
            ("/v1/sessions/heartbeat", &near),
            ("/v1/sessions/heartbeat", &framing),
            ("/v1/sessions/heartbeat", "{"),
            ("/v1/nothing", "x"),
        ] {
            post(address, path, body).await;
        }
    }
    let mut raw = TcpStream::connect(address).await.unwrap();
    raw.write_all(b"\x16\x03\x01 this is not HTTP\r\n\r\n").await.unwrap();
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    // 200 of each kind take longer than one window on a slow machine; each window has room for 20.
    for kind in [
        "a stale term was refused",
        "a step-down was asked for",
        "a near miss",
        "spoke for another node",
    ] {
        let lines = text.matches(kind).count();
        assert!(lines > 0, "no line tells that {kind}: {text}");
        assert!(lines <= 120, "{lines} lines tell that {kind}");
    }
    assert!(text.lines().count() < 700, "{} lines for 1,400 requests", text.lines().count());
}
