//! A stand-in for the Lease API of Kubernetes: what a kube-apiserver says to the requests of the engine.
//!
//! Objects live in memory. What it refuses is what makes it worth testing on: a create of what is there, an
//! update over another resourceVersion, names and sizes that a real server takes from nobody, and a watch
//! from a revision that is forgotten. Killed, it drops every connection, with the answers that were on their
//! way. `REGENT_TEST_KUBERNETES_URL` names a real cluster instead, which the same tests then run on.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::{Server, folder};

/// Changes that a watch may still begin from.
const REMEMBERED: u64 = 1000;
/// What annotations may come to in all, as a real server has it.
const ANNOTATION_BYTES_MAX: usize = 256 << 10;

/// A running stand-in, or a killed one.
#[derive(Debug)]
pub struct StandIn {
    data: Arc<Data>,
    port: u16,
    serving: Option<JoinHandle<()>>,
    folder: TempDir,
}

#[derive(Debug)]
struct Data {
    objects: Mutex<Objects>,
    /// The revision of the last change.
    revision: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Objects {
    by_path: BTreeMap<String, Value>,
    /// Revision, what happened, and the object after it.
    changes: Vec<(u64, &'static str, Value)>,
}

impl StandIn {
    /// Starts one, with a kubeconfig that finds it.
    pub fn start() -> Self {
        let data = Data { objects: Mutex::default(), revision: watch::Sender::new(1) };
        let mut server = Self { data: Arc::new(data), port: 0, serving: None, folder: folder() };
        server.serve();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://127.0.0.1:{}", server.port) } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
            "users": [{ "name": "test", "user": {} }],
        });
        std::fs::write(server.folder.path().join("kubeconfig"), config.to_string())
            .expect("a temporary file is written");
        server
    }

    /// As what the tests are given.
    pub fn server(&self) -> Server {
        let config = self.folder.path().join("kubeconfig");
        Server {
            url: format!("kubernetes://elections?kubeconfig={}", config.display()),
            version: "Lease API stand-in".into(),
            processes: Vec::new(),
        }
    }

    /// Serves, on the port it had before.
    pub fn serve(&mut self) {
        let listener =
            std::net::TcpListener::bind(("127.0.0.1", self.port)).expect("the port is free");
        self.port = listener.local_addr().expect("it has an address").port();
        listener.set_nonblocking(true).expect("a socket may be asynchronous");
        let listener = tokio::net::TcpListener::from_std(listener).expect("inside a runtime");
        let data = Arc::clone(&self.data);
        self.serving = Some(tokio::spawn(async move {
            // Dropped with the task, and every connection with it.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let data = Arc::clone(&data);
                connections.spawn(async move {
                    let answer = service_fn(move |request| answer(Arc::clone(&data), request));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), answer)
                        .await;
                });
            }
        }));
    }

    /// Ends it in the middle of whatever it does.
    pub async fn kill(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
        }
    }

    /// An object as it is held.
    pub fn object(&self, name: &str) -> Option<Value> {
        self.data.objects.lock().unwrap().by_path.get(&format!("{LEASES}/{name}")).cloned()
    }
}

/// Where the Leases of the one namespace lie.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/elections/leases";

type Said = (StatusCode, Value);

fn failure(code: StatusCode, reason: &str, message: &str) -> Said {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    (code, status)
}

async fn answer(
    data: Arc<Data>,
    request: Request<Incoming>,
) -> Result<Response<Lines>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        return Ok(whole(failure(StatusCode::BAD_REQUEST, "BadRequest", "half a request")));
    };
    let path = head.uri.path().to_owned();
    let query: BTreeMap<String, String> =
        form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes())
            .into_owned()
            .collect();
    let given = serde_json::from_slice(&body.to_bytes()).unwrap_or(Value::Null);
    Ok(match head.method {
        _ if !path.starts_with(LEASES) => {
            whole(failure(StatusCode::NOT_FOUND, "NotFound", "no such namespace"))
        }
        Method::GET if path == LEASES && query.contains_key("watch") => changes(&data, &query),
        Method::GET if path == LEASES => whole(data.list(&query)),
        Method::GET => whole(data.get(&path)),
        Method::POST if path == LEASES => whole(data.create(given)),
        Method::PUT => whole(data.replace(&path, given)),
        _ => whole(failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "no such verb")),
    })
}

impl Data {
    fn get(&self, path: &str) -> Said {
        match self.objects.lock().unwrap().by_path.get(path) {
            Some(object) => (StatusCode::OK, object.clone()),
            None => failure(StatusCode::NOT_FOUND, "NotFound", "no such object"),
        }
    }

    fn create(&self, mut object: Value) -> Said {
        if let Err(refusal) = check(&object) {
            return refusal;
        }
        let path = format!("{LEASES}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
        let mut objects = self.objects.lock().unwrap();
        if objects.by_path.contains_key(&path) {
            return failure(StatusCode::CONFLICT, "AlreadyExists", "it exists already");
        }
        if object["metadata"].get("resourceVersion").is_some() {
            return failure(StatusCode::BAD_REQUEST, "BadRequest", "resourceVersion on a create");
        }
        object["metadata"]["uid"] = format!("uid-{}", *self.revision.borrow()).into();
        self.change(&mut objects, path, "ADDED", &mut object);
        (StatusCode::CREATED, object)
    }

    fn replace(&self, path: &str, mut object: Value) -> Said {
        if let Err(refusal) = check(&object) {
            return refusal;
        }
        let mut objects = self.objects.lock().unwrap();
        let uid = object["metadata"].get("uid").cloned();
        let Some(held) = objects.by_path.get(path) else {
            // A real server creates a Lease that is to be replaced, over whatever resourceVersion, if no uid
            // must be found.
            if uid.is_some() {
                return failure(StatusCode::CONFLICT, "Conflict", "Precondition failed: UID");
            }
            object["metadata"]["uid"] = format!("uid-{}", *self.revision.borrow()).into();
            self.change(&mut objects, path.to_owned(), "ADDED", &mut object);
            return (StatusCode::CREATED, object);
        };
        if uid.is_some_and(|uid| uid != held["metadata"]["uid"]) {
            return failure(StatusCode::CONFLICT, "Conflict", "Precondition failed: UID");
        }
        if object["metadata"]["name"] != held["metadata"]["name"] {
            return failure(StatusCode::BAD_REQUEST, "BadRequest", "another name than the URL's");
        }
        // Without one, a real server would overwrite anything: the engine must never ask for that.
        if object["metadata"]["resourceVersion"] != held["metadata"]["resourceVersion"] {
            return failure(StatusCode::CONFLICT, "Conflict", "the object has been modified");
        }
        object["metadata"]["uid"] = held["metadata"]["uid"].clone();
        self.change(&mut objects, path.to_owned(), "MODIFIED", &mut object);
        (StatusCode::OK, object)
    }

    fn change(&self, objects: &mut Objects, path: String, what: &'static str, object: &mut Value) {
        let revision = *self.revision.borrow() + 1;
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        objects.by_path.insert(path, object.clone());
        objects.changes.push((revision, what, object.clone()));
        objects.changes.retain(|(changed_at, ..)| changed_at + REMEMBERED > revision);
        self.revision.send_replace(revision);
    }

    fn list(&self, query: &BTreeMap<String, String>) -> Said {
        let objects = self.objects.lock().unwrap();
        let limit = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
        // A real server goes on in the state of the first page; this one in that of now.
        let after = query.get("continue").cloned().unwrap_or_default();
        let mut rest = objects
            .by_path
            .iter()
            .filter(|(path, object)| **path > after && is_selected(object, query));
        let page: Vec<_> = rest.by_ref().take(limit).collect();
        let last = page.last().map_or("", |(path, _)| path.as_str());
        let token = if rest.next().is_some() { last } else { "" };
        let items: Vec<_> = page.into_iter().map(|(_, object)| object.clone()).collect();
        let metadata =
            json!({ "resourceVersion": self.revision.borrow().to_string(), "continue": token });
        let list = json!({
            "kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1",
            "metadata": metadata, "items": items,
        });
        (StatusCode::OK, list)
    }
}

/// What a real server refuses whoever asks.
fn check(object: &Value) -> Result<(), Said> {
    let wrong = |what| Err(failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", what));
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        label.bytes().all(|byte| is_letter(byte) || byte == b'-')
            && label.bytes().next().is_some_and(is_letter)
            && label.bytes().last().is_some_and(is_letter)
    };
    if name.len() > 253 || !name.split('.').all(is_label) {
        return wrong("metadata.name is no subdomain");
    }
    let pairs = object["metadata"]["annotations"].as_object();
    let bytes = |(name, value): (&String, &Value)| name.len() + value.as_str().map_or(0, str::len);
    if pairs.map_or(0, |pairs| pairs.iter().map(bytes).sum()) > ANNOTATION_BYTES_MAX {
        return wrong("metadata.annotations: too long");
    }
    let spec = &object["spec"];
    if spec.get("leaseDurationSeconds").is_some_and(|seconds| seconds.as_i64() <= Some(0)) {
        return wrong("spec.leaseDurationSeconds must be greater than 0");
    }
    if spec.get("leaseTransitions").is_some_and(|count| count.as_i64() < Some(0)) {
        return wrong("spec.leaseTransitions must not be negative");
    }
    Ok(())
}

fn is_selected(object: &Value, query: &BTreeMap<String, String>) -> bool {
    let field = query.get("fieldSelector").and_then(|it| it.strip_prefix("metadata.name="));
    let label = query.get("labelSelector").and_then(|it| it.split_once('='));
    field.is_none_or(|name| object["metadata"]["name"] == name)
        && label.is_none_or(|(label, value)| object["metadata"]["labels"][label] == value)
}

/// The changes after a revision, one line each, for as long as somebody reads them.
fn changes(data: &Arc<Data>, query: &BTreeMap<String, String>) -> Response<Lines> {
    let (lines, body) = mpsc::channel(16);
    let (data, query) = (Arc::clone(data), query.clone());
    let from = query.get("resourceVersion").and_then(|it| it.parse().ok()).unwrap_or(0);
    tokio::spawn(async move {
        let mut revision = data.revision.subscribe();
        let mut seen: u64 = from;
        loop {
            let now = *revision.borrow_and_update();
            let news: Vec<_> = {
                let objects = data.objects.lock().unwrap();
                if seen + REMEMBERED < now {
                    let gone = failure(StatusCode::GONE, "Expired", "too old resource version").1;
                    vec![json!({ "type": "ERROR", "object": gone })]
                } else {
                    let is_new = |change: &&(u64, &'static str, Value)| change.0 > seen;
                    let news = objects.changes.iter().filter(is_new);
                    news.filter(|(.., object)| is_selected(object, &query))
                        .map(|(_, what, object)| json!({ "type": what, "object": object }))
                        .collect()
                }
            };
            seen = now;
            for event in news {
                if lines.send(Bytes::from(format!("{event}\n"))).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                () = lines.closed() => return,
                changed = revision.changed() => if changed.is_err() { return },
            }
        }
    });
    Response::new(Lines(body))
}

fn whole((status, value): Said) -> Response<Lines> {
    let (lines, body) = mpsc::channel(1);
    lines.try_send(Bytes::from(value.to_string())).expect("there is room for one");
    let mut response = Response::new(Lines(body));
    *response.status_mut() = status;
    response
}

/// A body that ends with its channel.
struct Lines(mpsc::Receiver<Bytes>);

impl Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}
