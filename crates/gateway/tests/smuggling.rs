//! Attacks on the fence by requests that mean one thing to the gateway and another to the storage.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::net::SocketAddr;
use std::path::Path;

use regent_gateway::GatewayConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use common::{config, serve};

/// A storage that pays no attention to lengths: whatever follows the head of a `GET` is the next request,
/// and a method in a header counts more than the one in the first line. It tells the methods it carried out.
async fn storage() -> (u16, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, done) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(act(socket, sender.clone()));
        }
    });
    (port, done)
}

async fn act(mut socket: TcpStream, done: mpsc::UnboundedSender<String>) {
    let mut read = Vec::new();
    loop {
        while let Some(end) = read.windows(4).position(|part| part == b"\r\n\r\n") {
            let head: Vec<u8> = read.drain(..end + 4).collect();
            let head = String::from_utf8_lossy(&head).into_owned();
            let method = head.split(' ').next().unwrap_or_default().trim().to_owned();
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            let named = |name: &str| name.to_lowercase().contains("method");
            let over = lines.clone().find(|(name, _)| named(name));
            done.send(over.map_or(method.clone(), |(_, value)| value.to_owned())).unwrap();
            if method != "GET" && method != "HEAD" {
                // The body of a write is of no interest here.
                read.clear();
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            if socket.write_all(answer).await.is_err() {
                return;
            }
        }
        if socket.read_buf(&mut read).await.map_or(0, |count| count) == 0 {
            return;
        }
    }
}

/// A gateway that lets reads pass without a term.
async fn gateway(data: &Path, upstream: u16, keeps_host: bool) -> SocketAddr {
    let config = config(data, &format!("http://127.0.0.1:{upstream}"));
    serve(GatewayConfig { allows_reads: true, keeps_host, ..config }).await
}

/// Sends bytes and reads everything until the gateway closes the connection.
async fn send(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A connection that is reset after its answer has said what it had to say.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn all(done: &mut mpsc::UnboundedReceiver<String>) -> Vec<String> {
    std::iter::from_fn(|| done.try_recv().ok()).collect()
}

/// A request of this method without a term, with more headers and a body.
fn request(method: &str, headers: &str, body: &str) -> String {
    format!("{method} /row HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n{body}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_without_a_term_carries_no_body_and_so_no_second_request() {
    let (port, mut done) = storage().await;
    let room = tempfile::tempdir().unwrap();
    let address = gateway(room.path(), port, false).await;
    let hidden = "PUT /row HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    let length = format!("content-length: {}\r\n", hidden.len());
    let chunked = format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
    for method in ["GET", "HEAD", "OPTIONS"] {
        for (headers, body) in [
            (length.as_str(), hidden),
            ("transfer-encoding: chunked\r\n", chunked.as_str()),
            ("content-length: 4\r\ntransfer-encoding: chunked\r\n", chunked.as_str()),
            ("transfer-encoding: chunked\r\ncontent-length: 4\r\n", chunked.as_str()),
            ("expect: 100-continue\r\ntransfer-encoding: chunked\r\n", chunked.as_str()),
        ] {
            let answer = send(address, &request(method, headers, body)).await;
            assert!(answer.contains(" 400 "), "{method} {headers}: {answer}");
            assert_eq!(all(&mut done), Vec::<String>::new(), "{method} {headers}");
        }
    }
    let answer = send(address, &request("GET", &length, hidden)).await;
    assert!(answer.contains("body"), "it says why: {answer}");
    for headers in ["", "content-length: 0\r\n"] {
        let answer = send(address, &request("GET", headers, "")).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(all(&mut done), ["GET"], "an honest read passes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_without_a_term_names_no_other_method() {
    let (port, mut done) = storage().await;
    let room = tempfile::tempdir().unwrap();
    let address = gateway(room.path(), port, false).await;
    for name in [
        "X-HTTP-Method-Override",
        "x-http-method",
        "X-Method-Override",
        "X_HTTP_METHOD_OVERRIDE",
        "x-original-method",
        "x-forwarded-method",
    ] {
        let answer = send(address, &request("GET", &format!("{name}: PUT\r\n"), "")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{name}: {answer}");
        assert_eq!(all(&mut done), Vec::<String>::new(), "{name}");
    }
    for target in [
        "/row?_method=PUT",
        "/row?a=1&_METHOD=delete",
        "/row?%5fmethod=PUT",
        "/row?x-http-method=PUT",
        "/row?a=1;_method=PUT",
        "/row?method=PUT",
        "/row?a=1;http_method=Delete",
        "/row;_method=PUT",
        "/folder;a=1;method=delete/row?b=2",
    ] {
        let head = format!("GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let answer = send(address, &head).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{target}: {answer}");
        assert_eq!(all(&mut done), Vec::<String>::new(), "{target}");
    }
    for target in ["/row?method=card", "/row;v=1?a=1;b=2", "/method=PUT", "/row?method=get"] {
        let head = format!("GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let answer = send(address, &head).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "an honest read passes: {target}: {answer}");
        assert_eq!(all(&mut done), ["GET"], "{target}");
    }
    let ask = "origin: http://y\r\naccess-control-request-method: PUT\r\n";
    let answer = send(address, &request("OPTIONS", ask, "")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "a browser asks before it writes: {answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_names_two_hosts_or_wants_another_protocol_is_not_passed_on() {
    let (port, mut done) = storage().await;
    let room = tempfile::tempdir().unwrap();
    let address = gateway(room.path(), port, true).await;
    for head in [
        "GET http://other/row HTTP/1.1\r\nhost: x\r\n",
        "GET http://x@other/row HTTP/1.1\r\nhost: x\r\n",
        "GET /row HTTP/1.1\r\nhost: x\r\nhost: y\r\n",
        "GET /row HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\n",
        "GET /row HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 0\r\n",
        "GET /row HTTP/1.1\r\nhost: x\r\ncontent-length: +0\r\n",
        "GET /row HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, x\r\n",
        "GET /row HTTP/1.1\r\nhost: x\r\ntransfer-encoding : chunked\r\n",
        "GET /row HTTP/1.1\r\nhost: x\r\n folded: 1\r\n",
        "GET /row HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n",
        "CONNECT x:80 HTTP/1.1\r\nhost: x:80\r\n",
        "OPTIONS * HTTP/1.1\r\nhost: x\r\n",
    ] {
        let answer = send(address, &format!("{head}connection: close\r\n\r\n")).await;
        assert!(
            answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.0 4"),
            "{head}: {answer}"
        );
        assert_eq!(all(&mut done), Vec::<String>::new(), "{head}");
    }
    let answer =
        send(address, "GET http://x/row HTTP/1.1\r\nhost: X\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "a client that takes us for a proxy: {answer}");
}
