//! Peers that are slow on purpose: their connections end, nobody else notices.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use regent_api::Code;
use regent_election::store::{Campaign, CampaignSession};
use regent_election::{Group, Metadata, Node, SessionId};
use regent_server::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use tokio::net::TcpSocket;
use tokio::task::JoinHandle;

use crate::support::{Server, patiently, problem_of, request, until_closed};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const EMPTY_SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

const HEALTHZ: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

type Sender = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

/// An HTTP/2 client that lets the server send `window` bytes ahead on each stream, and its running
/// connection.
async fn http2(server: &Server, window: u32) -> (Sender, JoinHandle<hyper::Result<()>>) {
    let stream = TokioIo::new(server.connect().await);
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .handshake(stream)
        .await
        .unwrap();
    (sender, tokio::spawn(connection))
}

fn asks(path: &str, server: &Server) -> Request<Full<Bytes>> {
    let mut request = request("GET", path, None);
    *request.uri_mut() = format!("http://{}{path}", server.address).parse().unwrap();
    request
}

async fn impatient() -> Server {
    Server::with(ServerConfig {
        head_timeout: Duration::from_millis(150),
        body_timeout: Duration::from_millis(150),
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
    let mut stream = server.connect().await;
    stream.write_all(HEALTHZ).await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    stream.write_all(b"GET /hea").await.unwrap();
    until_closed(&mut stream).await;
    server.serves().await;
}

#[tokio::test]
async fn a_connection_that_lies_idle_is_closed() {
    let idle_timeout = Duration::from_millis(150);
    let server = Server::with(ServerConfig { idle_timeout, ..ServerConfig::default() }).await;
    let answer = left(&server, HEALTHZ).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn an_http2_connection_that_lies_idle_is_closed() {
    let idle_timeout = Duration::from_millis(150);
    let server = Server::with(ServerConfig { idle_timeout, ..ServerConfig::default() }).await;
    let (mut sender, connection) = http2(&server, 1 << 16).await;
    let response = sender.send_request(asks("/healthz", &server)).await.unwrap();
    assert_eq!(response.status(), 200);
    drop(response);
    let ended = patiently("the server hanging up", connection).await;
    assert!(ended.is_ok(), "{ended:?}");
    drop(sender);
}

#[tokio::test]
async fn a_peer_that_asks_and_asks_and_reads_nothing_is_left() {
    let server = impatient().await;
    let mut stream = server.connect().await;
    let asks = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(64);
    patiently("the server hanging up", async { while stream.write_all(&asks).await.is_ok() {} })
        .await;
    server.serves().await;
}

#[tokio::test]
async fn a_watcher_that_stalls_one_http2_stream_is_left() {
    let server = impatient().await;
    let (mut sender, connection) = http2(&server, 1).await;
    let mut request = asks("/v1/groups/g/watch", &server);
    request.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
    let stalled = sender.send_request(request).await.unwrap();
    assert_eq!(stalled.status(), 200);
    // Enough events to fill the queue; the socket itself flows, as the pings on it show.
    for _ in 0..40 {
        server.lead("g", "a").await.resign(&server).await;
    }
    let _ = patiently("the server hanging up", connection).await;
    drop(stalled);
    server.serves().await;
}

#[tokio::test]
async fn a_watcher_that_reads_nothing_is_left() {
    let server = impatient().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    let asks = b"GET /v1/groups/g/watch HTTP/1.1\r\nhost: localhost\r\n\
                 accept: text/event-stream\r\n\r\n";
    stream.write_all(asks).await.unwrap();
    let mut first = [0; 16];
    stream.read_exact(&mut first).await.unwrap();
    // Changes go on until the buffers on the way are full and the server's patience is at its end.
    patiently("the watch's end", async {
        while server.store.census().await.unwrap().watchers > 1 {
            change_leader(&server).await;
            // The store answers at once; the server's tasks need their turn on this one thread.
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(stream);
    server.serves().await;
}

/// Somebody with much to tell wins `g` and resigns, past HTTP.
async fn change_leader(server: &Server) {
    let group = Group::new("g").unwrap();
    let metadata = (0..30).map(|n| (format!("k{n}"), "v".repeat(130)));
    let campaign = Campaign {
        group: group.clone(),
        node: Node::new("a").unwrap(),
        session: CampaignSession::Passing(SessionId::new(number()).unwrap()),
        ttl_ms: None,
        wait: None,
        priority: 0,
        metadata: Metadata::new(metadata).unwrap(),
        request: None,
    };
    let won = server.store.campaign(campaign).await.unwrap();
    let (session, term) = (won.session.unwrap(), won.elected.unwrap());
    server.store.resign(&group, session, term, None).await.unwrap();
}

/// A number for a session that no other has.
fn number() -> u128 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    u128::from(NEXT.fetch_add(1, Ordering::Relaxed))
}
