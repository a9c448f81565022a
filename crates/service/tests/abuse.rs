//! Attacks on the memory of a server: more state than there is room for, and many backups at once.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::path::Path;
use std::time::Duration;

use regent::fresh;
use regent::remote::Remote;
use regent_election::StateBudget;
use regent_replica::disk::DiskOptions;
use regent_service::{ReplicaOptions, ReplicaSettings, Service};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const WITHIN: Duration = Duration::from_secs(60);
/// The budget of these tests.
const BUDGET: u64 = 4 << 20;

struct Running {
    address: String,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

impl Running {
    async fn start(directory: &Path, state_bytes_max: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let disk = DiskOptions { segment_bytes: 1 << 20, ..DiskOptions::default() };
        let state_budget = StateBudget::whole(state_bytes_max);
        let replica = ReplicaSettings { disk, state_budget, ..ReplicaSettings::default() };
        let options = ReplicaOptions { replica, ..ReplicaOptions::new(directory, address) };
        let service = Service::on_replica(options).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(async move {
            let until = async {
                let _ = stopped.await;
            };
            service.serve(vec![listener], until).await.unwrap();
        });
        Self { address: address.to_string(), stop, ended }
    }

    async fn end(self) {
        self.stop.send(()).unwrap();
        timeout(WITHIN, self.ended).await.unwrap().unwrap();
    }

    /// Sends a request's head and body.
    async fn begin(&self, what: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let (host, length) = (&self.address, body.len());
        let head = format!(
            "{what} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        stream
    }

    /// The head and the body of an answer.
    async fn speak(&self, what: &str, body: &str) -> (String, Vec<u8>) {
        let mut stream = self.begin(what, body).await;
        let mut answer = Vec::new();
        timeout(WITHIN, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        let end = answer.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
        (String::from_utf8(answer[..end].to_vec()).unwrap(), answer[end + 4..].to_vec())
    }

    /// The status and the JSON of an answer.
    async fn ask(&self, what: &str, body: &Value) -> (u16, Value) {
        let (head, body) = self.speak(what, &body.to_string()).await;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    async fn yes(&self, what: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(what, body).await;
        assert_eq!(status, 200, "{what}: {answer}");
        answer
    }

    /// It must be refused for want of room, with the numbers.
    async fn full(&self, what: &str, body: &Value) {
        let (status, answer) = self.ask(what, body).await;
        assert_eq!((status, &answer["code"]), (409, &json!("FULL")), "{what}: {answer}");
        let detail = answer["detail"].as_str().unwrap();
        assert!(detail.contains("state is full") && detail.contains("at most"), "{detail}");
    }

    async fn metric(&self, name: &str) -> u64 {
        let (_, body) = self.speak("GET /metrics", "").await;
        let text = String::from_utf8(body).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Puts large policies until one is refused; gives how many were taken.
    async fn fill(&self, prefix: &str) -> u32 {
        for number in 0..400 {
            let (status, answer) = self.ask(&put(prefix, number), &large()).await;
            if status == 409 {
                assert_eq!(answer["code"], "FULL", "{answer}");
                return number;
            }
            assert_eq!(status, 200, "{answer}");
        }
        panic!("400 policies of 56 KB fit into {BUDGET} bytes");
    }
}

fn put(prefix: &str, number: u32) -> String {
    format!("PUT /v1/groups/{prefix}-{number}")
}

/// A policy of 56 KB.
fn large() -> Value {
    let allow: Vec<String> = (0..256).map(|number| format!("{number:0>100}")).collect();
    let priorities: Vec<Value> =
        (0..256).map(|number| json!({"nodes": format!("{number:0>80}*"), "priority": 1})).collect();
    json!({"policy": {"allow": allow, "priorities": priorities}})
}

fn session() -> String {
    fresh::session_id().unwrap().reveal()
}

/// H1: policies without end. Growth is refused before the memory ends; a store over its budget starts, keeps its
/// leaders, and can be emptied.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_over_its_budget_refuses_growth_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let server = Running::start(place.path(), BUDGET).await;
    let (leader, other) = (session(), session());
    let bid = json!({"node_id": "a", "session_id": leader, "ttl_ms": 600_000});
    let won = server.yes("POST /v1/groups/billing/campaign", &bid).await;
    let renewal = json!({"session_id": leader, "term": won["term"]});
    let standby = json!({"node_id": "b", "session_id": other, "ttl_ms": 600_000});
    server.yes("POST /v1/groups/billing/campaign", &standby).await;

    let taken = server.fill("p").await;
    assert!(taken > 10, "{taken} policies fill {BUDGET} bytes");
    let (used, max) =
        (server.metric("regent_state_bytes").await, server.metric("regent_state_bytes_max").await);
    assert_eq!(max, BUDGET);
    assert!(used <= BUDGET && used > BUDGET - (256 << 10), "{used} of {max}");

    server.yes("POST /v1/groups/billing/renew", &renewal).await;
    server.full(&put("q", 0), &large()).await;
    server.yes("DELETE /v1/groups/p-0", &json!({})).await;
    server.yes(&put("q", 0), &large()).await;
    // The same policy again adds nothing, and a smaller one frees.
    server.yes(&put("q", 0), &large()).await;
    server.end().await;

    let server = Running::start(place.path(), BUDGET / 2).await;
    assert!(server.metric("regent_state_bytes").await > BUDGET / 2);
    server.yes("POST /v1/groups/billing/renew", &renewal).await;
    server.full("POST /v1/sessions/open", &json!({"node_id": "c"})).await;
    server.full("POST /v1/groups/new/campaign", &json!({"node_id": "c"})).await;
    server.full(&put("r", 0), &large()).await;
    let again = server.yes("POST /v1/groups/billing/campaign", &bid).await;
    assert_eq!(again["term"], won["term"], "who leads may ask again");
    server.yes(&put("q", 0), &json!({"policy": {"allow": ["a"]}})).await;
    server.yes("POST /v1/groups/billing/withdraw", &json!({"session_id": other})).await;
    server.yes("POST /v1/groups/billing/resign", &renewal).await;
    server.yes("POST /v1/sessions/close", &json!({"session_id": leader})).await;
    for number in 1..taken {
        server.yes(&format!("DELETE /v1/groups/p-{number}"), &json!({})).await;
    }
    server.yes("POST /v1/sessions/open", &json!({"node_id": "c"})).await;
    server.end().await;
}

/// H2: many backups at once. One is served, the others are told to come back; nothing is left of it on the disk.
#[tokio::test(flavor = "multi_thread")]
async fn one_backup_is_taken_at_a_time() {
    let place = tempfile::tempdir().unwrap();
    let server = Running::start(place.path(), 64 << 20).await;
    for number in 0..200 {
        server.yes(&put("p", number), &large()).await;
    }
    // A reader that takes nothing beyond what the sockets' buffers hold.
    let mut slow = server.begin("GET /v1/cluster/backup", "").await;
    let mut first = [0; 15];
    timeout(WITHIN, slow.read_exact(&mut first)).await.unwrap().unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    let mut asks = Vec::new();
    for _ in 0..20 {
        asks.push(server.speak("GET /v1/cluster/backup", ""));
    }
    for ask in asks {
        let (head, body) = ask.await;
        let problem: Value = serde_json::from_slice(&body).unwrap();
        assert!(head.starts_with("HTTP/1.1 429"), "{head}");
        assert!(head.contains("retry-after: "), "{head}");
        assert!(problem["detail"].as_str().unwrap().contains("another backup"), "{problem}");
    }
    let names = || std::fs::read_dir(place.path()).unwrap().map(|it| it.unwrap().file_name());
    assert!(
        names().all(|name| !name.to_string_lossy().contains("tmp")),
        "{:?}",
        names().collect::<Vec<_>>()
    );
    let mut rest = Vec::new();
    timeout(WITHIN, slow.read_to_end(&mut rest)).await.unwrap().unwrap();
    drop(slow);
    let remote = Remote::new(&format!("http://{}", server.address)).unwrap();
    let taken = timeout(WITHIN, async {
        loop {
            match remote.backup().await {
                Ok(bytes) => return bytes,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    let backup = regent_replica::Backup::decode(&taken.await.unwrap()).unwrap();
    assert_eq!(backup.state.census().groups, 200);
    assert!(rest.len() > 200 * 40_000, "the slow reader got all of it: {}", rest.len());
    server.end().await;
}
