//! A server on a free port, tonic's client, and raw HTTP/2 for those that mean no good.

use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::header::HeaderMap;
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use regent_api::grpc as pb;
use regent_api::grpc::regent_client::RegentClient;
use regent_api::grpc::status;
use regent_api::{Code, Problem};
use tokio::net::TcpStream;
use tonic::Status;
use tonic::body::Body;

pub(crate) use crate::harness::{Server, patiently};

pub(crate) type Channel = Client<HttpConnector, Body>;

/// A connection of its own, over which any number of calls may go.
pub(crate) fn channel() -> Channel {
    Client::builder(TokioExecutor::new()).http2_only(true).build_http()
}

impl Server {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn client(&self) -> RegentClient<Channel> {
        RegentClient::with_origin(channel(), self.url().parse().unwrap())
    }

    /// A well-behaved client is served, from campaign to resignation.
    pub(crate) async fn serves(&self) {
        let office = lead(&mut self.client(), "still-served", "witness").await;
        resign(&mut self.client(), &office).await;
    }

    /// One request over HTTP, on a connection of its own: its status and its body.
    pub(crate) async fn http(&self, path: &str) -> (StatusCode, String) {
        let http: Client<HttpConnector, Body> = Client::builder(TokioExecutor::new()).build_http();
        let url = format!("{}{path}", self.url()).parse().unwrap();
        let response = patiently("an answer", http.get(url)).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// A raw HTTP/2 connection.
    pub(crate) async fn h2(&self) -> h2::client::SendRequest<Bytes> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// Sends `bytes` as the body of a call, and gives what became of it.
    pub(crate) async fn raw(&self, request: Request<()>, bytes: &[u8], sends_end: bool) -> Outcome {
        let mut sender = self.h2().await.ready().await.unwrap();
        let (response, mut body) = sender.send_request(request, false).unwrap();
        let bytes = Bytes::copy_from_slice(bytes);
        let sending = tokio::spawn(async move {
            let _ = body.send_data(bytes, sends_end);
            // A body that is not ended is held open for as long as the server likes.
            std::future::poll_fn(|cx| body.poll_reset(cx)).await
        });
        let outcome = patiently("an answer", outcome(response)).await;
        sending.abort();
        outcome
    }
}

/// What became of a call: its HTTP status, and its gRPC status from wherever that stood.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) http: StatusCode,
    pub(crate) status: Option<Status>,
}

impl Outcome {
    /// The problem inside, of this code.
    pub(crate) fn problem(&self, code: Code) -> Problem {
        assert_eq!(self.http, 200, "{self:?}");
        problem(self.status.as_ref().expect("a call ends with a status"), code)
    }
}

async fn outcome(response: h2::client::ResponseFuture) -> Outcome {
    let (head, mut body) = response.await.unwrap().into_parts();
    while let Some(Ok(bytes)) = body.data().await {
        let _ = body.flow_control().release_capacity(bytes.len());
    }
    let trailers = body.trailers().await.unwrap_or_default();
    let of = |headers: &HeaderMap| Status::from_header_map(headers);
    let status = of(&head.headers).or_else(|| trailers.as_ref().and_then(of));
    Outcome { http: head.status, status }
}

/// The problem of this code inside a status, both well-formed.
pub(crate) fn problem(status: &Status, code: Code) -> Problem {
    let problem = status::problem(status).unwrap_or_else(|| panic!("no problem in {status:?}"));
    assert_eq!(problem.code, code, "{problem}");
    assert_eq!(status.code(), status::grpc_code(code));
    assert_eq!(status::may_have_happened(status.code()), !code.nothing_happened());
    let pushback = status.metadata().get("grpc-retry-pushback-ms");
    assert_eq!(pushback.is_some(), problem.retry_after_ms.is_some());
    problem
}

/// A call of this method of the service.
pub(crate) fn call(server: &Server, method: &str) -> Request<()> {
    Request::builder()
        .method("POST")
        .uri(format!("{}/regent.v1.Regent/{method}", server.url()))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap()
}

/// A message as it travels.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(message);
    frame
}

/// An office somebody holds.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) group: String,
    pub(crate) session_id: String,
    pub(crate) term: u64,
}

pub(crate) async fn lead(client: &mut RegentClient<Channel>, group: &str, node: &str) -> Held {
    let request = pb::CampaignRequest {
        group: group.to_owned(),
        node_id: node.to_owned(),
        ..pb::CampaignRequest::default()
    };
    let answer = patiently("a campaign", client.campaign(request)).await.unwrap().into_inner();
    assert!(answer.elected, "{:?}", answer.office);
    Held {
        group: group.to_owned(),
        session_id: answer.session_id.unwrap(),
        term: answer.office.unwrap().term,
    }
}

pub(crate) async fn resign(client: &mut RegentClient<Channel>, office: &Held) {
    let request = pb::ResignRequest {
        group: office.group.clone(),
        session_id: office.session_id.clone(),
        term: office.term,
        request_id: None,
    };
    patiently("a resignation", client.resign(request)).await.unwrap();
}

/// A secret for a test: the number, written as one.
pub(crate) fn secret(number: u128) -> String {
    // As random as a test can be that wants the same one again.
    format!("{:032x}", (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}
