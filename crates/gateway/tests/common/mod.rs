//! A gateway on a free port, and a storage behind it that answers every whole request.

#![allow(clippy::unwrap_used, dead_code, reason = "shared by tests, which may")]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use regent_election::Group;
use regent_election::fence::doorkeeper::DoorRules;
use regent_gateway::{Gateway, GatewayConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

pub(crate) fn billing() -> Group {
    Group::new("billing").unwrap()
}

/// A gateway that compares terms with its mark alone, and times that no test reaches.
pub(crate) fn config(data: &Path, upstream: &str) -> GatewayConfig {
    let soon = Duration::from_secs(60);
    GatewayConfig {
        report: None,
        group: billing(),
        upstream: Some(upstream.parse().unwrap()),
        data: data.to_owned(),
        strict: None,
        signed: None,
        rules: DoorRules { drain_for: soon, settle_for: Duration::ZERO, waiting_max: 16 },
        allows_reads: false,
        keeps_host: false,
        connections_max: 16,
        head_timeout: soon,
        idle_timeout: soon,
        answer_timeout: soon,
        shutdown_grace: soon,
        tls: None,
    }
}

/// Runs a gateway until the test ends.
pub(crate) async fn serve(config: GatewayConfig) -> SocketAddr {
    let gateway = Gateway::open(config).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(gateway.serve(listener, None, std::future::pending()));
    address
}

/// A storage's end of one connection: every request that ends with `end` is shown to `seen` and answered
/// with `body`.
pub(crate) async fn answer_each(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    end: &str,
    body: &str,
    seen: impl Fn(String),
) {
    let mut read = Vec::new();
    while socket.read_buf(&mut read).await.is_ok_and(|count| count > 0) {
        let text = String::from_utf8_lossy(&read).into_owned();
        if text.ends_with(end) {
            seen(text);
            read.clear();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    }
}
