//! Peers that make the server hold memory: bodies that do not end, and answers that nobody reads.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use regent_api::limits::BODY_BYTES_MAX;
use regent_election::store::{Campaign, CampaignSession, Open};
use regent_election::{Group, Metadata, Node, SessionId};

use crate::support::{Server, patiently, secret};

/// What is sent of a body, which then goes on for ever.
struct Endless(Option<Bytes>);

impl Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.0.take() {
            Some(bytes) if bytes.is_empty() => Poll::Ready(None),
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None => Poll::Pending,
        }
    }
}

/// A connection that reads almost nothing ahead.
async fn connect(server: &Server) -> SendRequest<Endless> {
    let stream = TokioIo::new(server.connect().await);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(1 << 10).initial_connection_window_size(1 << 20);
    let (sender, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn ask(
    sender: &mut SendRequest<Endless>,
    method: &str,
    path: &str,
    body: Vec<u8>,
) -> Response<Incoming> {
    let request = Request::builder().method(method).uri(format!("http://localhost{path}"));
    let request = request.header("content-type", "application/json");
    let request = request.body(Endless(Some(body.into()))).unwrap();
    patiently("an answer", sender.send_request(request)).await.unwrap()
}

/// A connection holds 16 MiB of long answers that it does not read, whatever it asks for.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_reads_are_bounded() {
    let server = Server::start().await;
    let node = Node::new("a").unwrap();
    let session: SessionId = secret(1).parse().unwrap();
    server.store.open(Open { node: node.clone(), ttl_ms: 60_000, session }).await.unwrap();
    let metadata = Metadata::new([("note".to_owned(), "x".repeat(4000))]).unwrap();
    for number in 0..512 {
        let campaign = Campaign {
            group: Group::new(&format!("g{number}")).unwrap(),
            node: node.clone(),
            session: CampaignSession::Own(session),
            ttl_ms: Some(60_000),
            wait: None,
            priority: 0,
            metadata: metadata.clone(),
            request: None,
        };
        server.store.campaign(campaign).await.unwrap();
    }
    let mut sender = connect(&server).await;
    let mut unread = Vec::new();
    let mut refused = 0;
    for _ in 0..40 {
        let answer = ask(&mut sender, "GET", "/v1/groups?count=512", Vec::new()).await;
        match answer.status().as_u16() {
            200 => unread.push(answer),
            429 => refused += 1,
            other => panic!("{other}"),
        }
    }
    // Each has a little more than two million bytes.
    assert!((5..=8).contains(&unread.len()), "{} are held, {refused} refused", unread.len());
    // A short answer is another matter, and another connection another one.
    let path = "/v1/groups/none/leader";
    assert_eq!(ask(&mut sender, "GET", path, Vec::new()).await.status(), 200);
    let mut other = connect(&server).await;
    let path = "/v1/groups?count=512";
    assert_eq!(ask(&mut other, "GET", path, Vec::new()).await.status(), 200);
    // What is let go is given back.
    drop(unread);
    patiently("there is room again", async {
        while ask(&mut sender, "GET", path, Vec::new()).await.status() != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A connection holds 1 MiB of bodies that do not end. The one that is too much is refused, and the others wait.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_do_not_end_are_bounded() {
    let server = Server::start().await;
    let sender = connect(&server).await;
    let mut begun = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let mut sender = sender.clone();
        begun.spawn(async move {
            let body = vec![b' '; BODY_BYTES_MAX - 1];
            let answer = ask(&mut sender, "POST", "/v1/groups/g/campaign", body).await;
            answer.status().as_u16()
        });
    }
    let mut statuses = Vec::new();
    while let Some(status) = patiently("an answer", begun.join_next()).await {
        statuses.push(status.unwrap());
    }
    let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
    // Those that were taken end when their time is over.
    assert_eq!(count(429) + count(408), 64, "{statuses:?}");
    assert!(count(429) >= 1, "{statuses:?}");
    server.serves().await;
}
