//! A server that runs out of file descriptors accepts again when there are some (CVE-2024-47609).
//!
//! A test binary of its own: the limit it lowers holds for the whole process.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use regent_server::{ServerConfig, serve};
use regent_stores::MemoryStore;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);
/// Low enough to be used up in a moment.
const OPEN_FILES_MAX: u64 = 256;

/// Asks over a connection that is open already, and gives the whole answer.
async fn ask(stream: &mut TcpStream, path: &str) -> String {
    let asks = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(asks.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let mut buffer = [0; 4096];
    loop {
        let count = timeout(PATIENCE, stream.read(&mut buffer)).await.unwrap().unwrap();
        assert!(count > 0, "the server hung up: {answer}");
        answer.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        if let Some((head, body)) = answer.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() == length.unwrap().parse::<usize>().unwrap() {
                return answer;
            }
        }
    }
}

fn accept_errors(metrics: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix("regent_accept_errors_total "));
    line.unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_moment_without_file_descriptors_does_not_make_a_server_deaf() {
    let limit = Rlimit { current: Some(OPEN_FILES_MAX), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let store = Arc::new(MemoryStore::new().unwrap());
    tokio::spawn(serve(vec![listener], store, ServerConfig::default(), std::future::pending()));
    let mut known = TcpStream::connect(address).await.unwrap();
    assert_eq!(accept_errors(&ask(&mut known, "/metrics").await), 0);
    // Made while there still are descriptors; connecting it needs no further one on this side.
    let stranger = TcpSocket::new_v4().unwrap();
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    assert!(!files.is_empty());
    let mut stranger = stranger.connect(address).await.unwrap();
    timeout(PATIENCE, async { while accept_errors(&ask(&mut known, "/metrics").await) == 0 {} })
        .await
        .unwrap();
    drop(files);
    let answer = ask(&mut stranger, "/healthz").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
