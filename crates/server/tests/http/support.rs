//! A server on a free port, a client that checks what every answer must hold, and raw sockets.

use std::future::Future;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use regent_api::{Code, Method, Operation, Problem, ROUTES, Route};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) use crate::harness::{Server, patiently};

/// Asks again and again until `asked` gives something.
pub(crate) async fn eventually<T, F>(what: &str, mut asked: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    patiently(what, async {
        loop {
            if let Some(value) = asked().await {
                return value;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

impl Server {
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends one request on a connection of its own.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let response = self.begin(request).await;
        let route = response.0;
        Answer::read(route, response.1).await
    }

    /// Sends one request and gives its answer as soon as the head is there.
    pub(crate) async fn begin(
        &self,
        request: Request<Full<Bytes>>,
    ) -> (Option<&'static Route>, Response<Incoming>) {
        let route = route_of(request.method().as_str(), request.uri().path());
        let stream = self.connect().await;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let response = patiently("an answer", sender.send_request(request)).await.unwrap();
        (route, response)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(request("GET", path, None)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(request("POST", path, Some(body.to_string()))).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(request("PUT", path, Some(body.to_string()))).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(request("DELETE", path, None)).await
    }

    /// A well-behaved client is served, from campaign to resignation.
    pub(crate) async fn serves(&self) {
        let office = self.lead("still-served", "witness").await;
        office.resign(self).await;
    }

    /// `node` campaigns in `group` and wins, with a session made for it.
    pub(crate) async fn lead(&self, group: &str, node: &str) -> Held {
        let path = format!("/v1/groups/{}/campaign", group.replace('/', "%2F"));
        let campaigned: regent_api::CampaignResponse =
            self.post(&path, json!({"node_id": node})).await.ok();
        assert!(campaigned.elected, "{campaigned:?}");
        Held {
            group: group.to_owned(),
            session_id: campaigned.session_id.unwrap().reveal(),
            term: campaigned.office.term.get(),
        }
    }

    /// `node` stands in `group` behind its leader, with a session of its own.
    pub(crate) async fn stand(&self, group: &str, node: &str, session_id: &str) {
        let path = format!("/v1/groups/{group}/campaign");
        let body = json!({"node_id": node, "session_id": session_id});
        let campaigned: regent_api::CampaignResponse = self.post(&path, body).await.ok();
        assert!(campaigned.standing && !campaigned.elected, "{campaigned:?}");
    }

    /// How many stand in `group`.
    pub(crate) async fn standbys(&self, group: &str) -> u64 {
        let shown: regent_api::GroupResponse = self.get(&format!("/v1/groups/{group}")).await.ok();
        shown.standbys_count
    }
}

/// An office somebody holds.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) group: String,
    pub(crate) session_id: String,
    pub(crate) term: u64,
}

impl Held {
    pub(crate) async fn resign(&self, server: &Server) {
        let path = format!("/v1/groups/{}/resign", self.group.replace('/', "%2F"));
        let body = json!({"session_id": self.session_id, "term": self.term});
        let done: regent_api::Done = server.post(&path, body).await.ok();
        assert!(done.done);
    }
}

/// A secret for a test, another one for every number.
pub(crate) fn secret(number: u128) -> String {
    // As random as a test can be that wants the same one again.
    format!("{:032x}", (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

pub(crate) fn request(method: &str, path: &str, body: Option<String>) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if body.is_some() {
        request = request.header("content-type", "application/json");
    }
    request.body(Full::from(body.unwrap_or_default())).unwrap()
}

/// The row of the table that a request meets.
fn route_of(method: &str, path: &str) -> Option<&'static Route> {
    let fits = |template: &str| {
        let (mut wanted, mut given) = (template.split('/'), path.split('/'));
        loop {
            match (wanted.next(), given.next()) {
                (None, None) => return true,
                (Some("{group}"), Some(part)) if !part.is_empty() => {}
                (Some(wanted), Some(given)) if wanted == given => {}
                (_, _) => return false,
            }
        }
    };
    ROUTES.iter().find(|route| route.method.word() == method && fits(route.path))
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    route: Option<&'static Route>,
}

impl Answer {
    async fn read(route: Option<&'static Route>, response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let body = patiently("the end of an answer", body.collect()).await.unwrap().to_bytes();
        Self { status: head.status, headers: head.headers, body, route }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// A yes of this type, every field of which the type knows.
    pub(crate) fn ok<T: DeserializeOwned + Serialize>(self) -> T {
        assert_eq!(self.status, 200, "{}", self.text());
        assert_eq!(self.header("content-type"), "application/json");
        assert_eq!(self.header("cache-control"), "no-store");
        exact(&self.body)
    }

    /// A problem with this code, well-formed, and documented for this route.
    pub(crate) fn problem(self, code: Code) -> Problem {
        let problem: Problem = exact(&self.body);
        assert_eq!(problem.code, code, "{problem}");
        assert_eq!(self.status.as_u16(), code.status());
        assert_eq!(problem.status, code.status());
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(self.headers.contains_key("retry-after"), problem.retry_after_ms.is_some());
        if let Some(route) = self.route {
            assert!(
                route.codes_all().contains(&code),
                "{} gives {code}, which is not documented",
                route.id
            );
        }
        problem
    }
}

/// Reads `bytes` as a `T` and demands that nothing in them was ignored.
pub(crate) fn exact<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> T {
    let whole: Value = serde_json::from_slice(bytes).unwrap();
    let value: T =
        serde_json::from_value(whole.clone()).unwrap_or_else(|error| panic!("{error} in {whole}"));
    assert_eq!(serde_json::to_value(&value).unwrap(), whole);
    value
}

/// Sends raw bytes and reads until the server hangs up.
pub(crate) async fn raw(server: &Server, bytes: &[u8]) -> String {
    let mut stream = server.connect().await;
    stream.write_all(bytes).await.unwrap();
    until_closed(&mut stream).await
}

/// What comes until the server hangs up.
pub(crate) async fn until_closed(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    patiently("the server hanging up", async {
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            answer.extend_from_slice(&buffer[..count]);
        }
    })
    .await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status line's number in a raw answer.
pub(crate) fn status_of(answer: &str) -> u16 {
    let number = answer.split(' ').nth(1).and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no status in {answer:?}"))
}

/// The problem in a raw answer.
pub(crate) fn problem_of(answer: &str) -> Problem {
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    exact(body.as_bytes())
}

/// Every operation's example call: a method, an address and, where it needs one, a body.
pub(crate) fn example(operation: Operation, group: &str) -> (Method, String, Option<Value>) {
    let route = operation.route();
    let path = route.path.replace("{group}", group);
    (route.method, path, route.request.map(|_| json!({})))
}
