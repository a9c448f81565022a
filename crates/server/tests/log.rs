//! What the log says: one line per change of a leader, and never a secret.
//!
//! A test binary of its own: a subscriber holds for the whole process.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use regent_server::{ServerConfig, serve};
use regent_stores::MemoryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn post(address: std::net::SocketAddr, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let asks = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(asks.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    tokio::time::timeout(Duration::from_secs(60), read).await.unwrap().unwrap();
    answer
}

#[tokio::test]
async fn the_log_tells_every_change_of_a_leader_once_and_no_secret_ever() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let store = Arc::new(MemoryStore::new().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async move { stopped.await.unwrap() };
    let served = tokio::spawn(serve(vec![listener], store, ServerConfig::default(), shutdown));

    let canary = "c0ffee3a91d7e25b8f46107dc0ffee9b";
    let session = format!(r#"{{"node_id":"web-1","session_id":"{canary}"}}"#);
    let held = format!(r#"{{"session_id":"{canary}","term":1}}"#);
    for (path, body) in [
        ("/v1/groups/billing/campaign", session.as_str()),
        ("/v1/groups/billing/renew", &held),
        ("/v1/groups/billing/resign", &held),
        ("/v1/groups/billing/renew", &held),
        ("/v1/groups/billing/transfer", &format!(r#"{{"session_id":"{canary}","term":"x"}}"#)),
        ("/v1/sessions/show", &format!(r#"{{"session_id":"{canary}"}}"#)),
        ("/v1/sessions/open", &format!(r#"{{"node_id":"b","session_id":"{canary}"}}"#)),
        ("/v1/sessions/heartbeat", &format!(r#"{{"session_id":"{canary}x"}}"#)),
        ("/v1/sessions/close", &format!(r#"{{"session_id":"{canary}"}}"#)),
    ] {
        let answer = post(address, path, body).await;
        // Only its owner is told, and only where it stands for the session itself.
        let is_told = answer.contains(canary);
        assert!(!is_told || answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    let changes = || log.text().matches("leader changed").count();
    tokio::time::timeout(Duration::from_secs(60), async {
        while changes() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    stop.send(()).unwrap();
    served.await.unwrap().unwrap();

    let text = log.text();
    assert!(!text.contains("c0ffee"), "a secret in the log: {text}");
    let lines: Vec<_> = text.lines().filter(|line| line.contains("leader changed")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    for (line, parts) in lines.iter().zip([
        ["group=billing", "node=\"web-1\"", "term=1", "cause=\"elected\""],
        ["group=billing", "node=\"-\"", "term=1", "cause=\"resigned\""],
    ]) {
        for part in parts {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
}
