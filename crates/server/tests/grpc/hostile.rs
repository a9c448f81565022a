//! Calls that nobody means well with: a clear problem each, and the server goes on.

use std::time::Duration;

use hyper::body::Bytes;
use prost::Message;
use regent_api::Code;
use regent_api::grpc as pb;
use regent_server::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Server, call, framed, lead, patiently, problem};

/// Nothing that was refused left a group behind.
async fn nothing_happened(server: &Server) {
    let list = pb::ListGroupsRequest { prefix: "g".to_owned(), ..pb::ListGroupsRequest::default() };
    let page = server.client().list_groups(list).await.unwrap().into_inner();
    assert!(page.groups.is_empty(), "{page:?}");
    server.serves().await;
}

fn campaign() -> Vec<u8> {
    pb::CampaignRequest {
        group: "g".to_owned(),
        node_id: "a".to_owned(),
        ..pb::CampaignRequest::default()
    }
    .encode_to_vec()
}

#[tokio::test]
async fn bytes_that_are_no_message_are_refused() {
    let server = Server::start().await;
    let mut overlong = framed(&campaign());
    overlong.extend_from_slice(b"more");
    let mut short = framed(&campaign());
    short.pop();
    let twice = [framed(&campaign()), framed(&campaign())].concat();
    let bodies: [(&[u8], Code); 9] = [
        (b"", Code::BadRequest),
        (b"\0\0\0", Code::BadRequest),
        (b"\0\0\0\0\x05\xff\xff\xff\xff\xff", Code::BadRequest),
        // A group that is no UTF-8, and a group of the wrong type.
        (b"\0\0\0\0\x04\x0a\x02\xff\xfe", Code::BadRequest),
        (b"\0\0\0\0\x02\x08\x01", Code::BadRequest),
        (&overlong, Code::BadRequest),
        (&short, Code::BadRequest),
        (&twice, Code::BadRequest),
        (b"\x01\0\0\0\x01x", Code::UnsupportedMediaType),
    ];
    for (body, code) in bodies {
        server.raw(call(&server, "Campaign"), body, true).await.problem(code);
    }
    nothing_happened(&server).await;
}

#[tokio::test]
async fn messages_are_refused_by_size_whether_declared_or_sent() {
    let server = Server::start().await;
    let declared = b"\0\x7f\xff\xff\xffx";
    server.raw(call(&server, "Campaign"), declared, true).await.problem(Code::PayloadTooLarge);
    // Longer than one window: the server answers without having read it all.
    let sent = framed(&vec![0; 200 << 10]);
    server.raw(call(&server, "Campaign"), &sent, false).await.problem(Code::PayloadTooLarge);
    nothing_happened(&server).await;
}

#[tokio::test]
async fn a_message_that_does_not_come_is_not_waited_for() {
    let server = Server::with(ServerConfig {
        body_timeout: Duration::from_millis(150),
        ..ServerConfig::default()
    })
    .await;
    for body in [&b""[..], b"\0\0\0", b"\0\0\0\0\x10half"] {
        let outcome = server.raw(call(&server, "Campaign"), body, false).await;
        outcome.problem(Code::RequestTimeout);
    }
    nothing_happened(&server).await;
}

#[tokio::test]
async fn names_and_numbers_are_checked_as_over_http() {
    let server = Server::start().await;
    let long = "a".repeat(201);
    for group in ["", "..", "a//b", "a b", "snow\u{2603}", "a\0b", &long] {
        let request = pb::CampaignRequest {
            group: group.to_owned(),
            node_id: "a".to_owned(),
            ..pb::CampaignRequest::default()
        };
        let refused = server.client().campaign(request).await.unwrap_err();
        let problem = problem(&refused, Code::BadRequest);
        assert_eq!(problem.facts.field.as_deref(), Some("group"));
    }
    nothing_happened(&server).await;
}

#[tokio::test]
async fn calls_that_are_none_are_refused() {
    let server = Server::start().await;
    let body = framed(&campaign());
    let unknown = server.raw(call(&server, "Conquer"), &body, true).await;
    unknown.problem(Code::NotFound);
    let mut elsewhere = call(&server, "Campaign");
    *elsewhere.uri_mut() = format!("{}/other.Service/Campaign", server.url()).parse().unwrap();
    server.raw(elsewhere, &body, true).await.problem(Code::NotFound);
    let mut put = call(&server, "Campaign");
    *put.method_mut() = hyper::Method::PUT;
    server.raw(put, &body, true).await.problem(Code::MethodNotAllowed);
    let mut json = call(&server, "Campaign");
    json.headers_mut().insert("content-type", "application/grpc+json".parse().unwrap());
    server.raw(json, &body, true).await.problem(Code::UnsupportedMediaType);
    let mut zipped = call(&server, "Campaign");
    zipped.headers_mut().insert("grpc-encoding", "gzip".parse().unwrap());
    server.raw(zipped, &body, true).await.problem(Code::UnsupportedMediaType);
    let mut page = call(&server, "Campaign");
    page.headers_mut().insert("origin", "http://evil.example".parse().unwrap());
    server.raw(page, &body, true).await.problem(Code::CrossOrigin);
    let mut rebound = call(&server, "Campaign");
    *rebound.uri_mut() = "http://evil.example/regent.v1.Regent/Campaign".parse().unwrap();
    server.raw(rebound, &body, true).await.problem(Code::CrossOrigin);
    nothing_happened(&server).await;
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const EMPTY_SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn malformed_frames_end_their_connection_only() {
    let server = Server::start().await;
    let frames: [&[u8]; 6] = [
        // DATA on a stream that was never opened, and on stream 0.
        b"\0\0\x01\0\0\0\0\0\x07x",
        b"\0\0\x01\0\0\0\0\0\0x",
        // A frame longer than allowed, by its own word.
        b"\xff\xff\xff\0\0\0\0\0\x01",
        // HEADERS whose block is no HPACK.
        b"\0\0\x04\x01\x05\0\0\0\x01\xff\xff\xff\xff",
        // A WINDOW_UPDATE of nothing, and SETTINGS of half a setting.
        b"\0\0\x04\x08\0\0\0\0\0\0\0\0\0",
        b"\0\0\x03\x04\0\0\0\0\0abc",
    ];
    for frame in frames {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let bytes = [PREFACE, EMPTY_SETTINGS, frame].concat();
        stream.write_all(&bytes).await.unwrap();
        let mut answer = Vec::new();
        let _ = patiently("the server hanging up", stream.read_to_end(&mut answer)).await;
        server.serves().await;
    }
}

#[tokio::test]
async fn more_streams_than_allowed_are_refused_and_the_rest_served() {
    let server = Server::with(ServerConfig {
        http2_streams_max: 4,
        body_timeout: Duration::from_millis(500),
        ..ServerConfig::default()
    })
    .await;
    let mut sender = server.h2().await.ready().await.unwrap();
    // Before the server's settings arrive a client may believe in any number of streams.
    let mut held = Vec::new();
    for _ in 0..64 {
        if let Ok((response, body)) = sender.send_request(call(&server, "Campaign"), false) {
            held.push((response, body));
        }
        tokio::task::yield_now().await;
    }
    server.serves().await;
    let mut answered = 0;
    for (response, body) in held {
        // Refused as a stream, or as a call whose message did not come: never left open.
        if patiently("an end", response).await.is_ok() {
            answered += 1;
        }
        drop(body);
    }
    assert!(answered > 0, "nobody was told why");
    nothing_happened(&server).await;
}

#[tokio::test]
async fn a_flood_of_calls_given_up_at_once_changes_nothing_for_others() {
    let server = Server::start().await;
    let mut sender = server.h2().await.ready().await.unwrap();
    for _ in 0..2000 {
        let Ok((response, mut body)) = sender.send_request(call(&server, "Campaign"), false) else {
            break;
        };
        body.send_reset(h2::Reason::CANCEL);
        drop(response);
        match sender.ready().await {
            Ok(ready) => sender = ready,
            // The server has had enough of this connection.
            Err(_) => break,
        }
    }
    nothing_happened(&server).await;
}

#[tokio::test]
async fn a_watcher_that_takes_nothing_is_left() {
    let server = Server::with(ServerConfig {
        write_timeout: Duration::from_millis(300),
        ..ServerConfig::default()
    })
    .await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (sender, connection) = h2::client::Builder::new()
        .initial_window_size(1)
        .handshake::<_, Bytes>(stream)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let mut sender = sender.ready().await.unwrap();
    let (response, mut body) = sender.send_request(call(&server, "Watch"), false).unwrap();
    let watch = pb::WatchRequest { group: "g".to_owned(), cursor: None };
    body.send_data(framed(&watch.encode_to_vec()).into(), true).unwrap();
    let stalled = patiently("an answer", response).await.unwrap();
    for _ in 0..40 {
        let office = lead(&mut server.client(), "g", "a").await;
        crate::support::resign(&mut server.client(), &office).await;
    }
    let _ = patiently("the server hanging up", connection).await;
    drop(stalled);
    server.serves().await;
}
