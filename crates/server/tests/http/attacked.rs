//! Attacks by a principal with a token and rights of its own on what belongs to another one.

use std::sync::Arc;

use regent_api::{ClaimsResponse, SessionResponse};
use regent_election::access::{Binding, Role};
use regent_election::store::Store;
use regent_server::{Listener, ServerConfig, serve};
use regent_stores::MemoryStore;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::access::ask;
use crate::harness::access::{find, guarded};
use crate::support::{Server, eventually, patiently, secret};

/// A server on which `node:onlooker` may stand where `node:participant` may, each under its own name.
async fn two_participants() -> Server {
    let server = guarded().await;
    let mut bindings = server.store.access().await.unwrap().bindings().list().to_vec();
    bindings.push(Binding {
        who: "node:onlooker".parse().unwrap(),
        role: Role::Participant,
        groups: vec!["mine/*".parse().unwrap()],
        nodes: vec!["self".parse().unwrap()],
    });
    server.store.put_bindings(1, bindings).await.unwrap();
    server
}

async fn post(server: &Server, path: &str, body: Value, token: &str) -> u16 {
    ask(server, "POST", path, body, token).await.status.as_u16()
}

/// Who acts on after its session has expired is whom the monitor is for: that another principal closes the session, whose id
/// it has learned, says nothing about that.
#[tokio::test]
async fn closing_the_expired_session_of_another_hides_nothing_from_the_monitor() {
    let server = two_participants().await;
    let [leader, other, administrator] = ["participant", "onlooker", "administrator"].map(find);
    let session = json!({"session_id": secret(1)});
    let opening = json!({"session_id": secret(1), "node_id": "participant", "ttl_ms": 500});
    let _: SessionResponse = ask(&server, "POST", "/v1/sessions/open", opening, &leader).await.ok();
    let claims = json!([{"group": "mine/a", "term": 1, "left_ms": 5}]);
    let beliefs = json!({"node_id": "participant", "ttl_ms": 600_000, "claims": claims});
    let claim = json!({"session_id": secret(1), "beliefs": beliefs});
    let heartbeat = "/v1/sessions/heartbeat";
    assert_eq!(post(&server, heartbeat, claim.clone(), &leader).await, 200);
    eventually("its session expires", || async {
        let shown = post(&server, "/v1/sessions/show", session.clone(), &leader).await;
        (shown == 410).then_some(())
    })
    .await;
    assert_eq!(post(&server, heartbeat, claim, &leader).await, 410, "it acts on");
    let close = "/v1/sessions/close";
    let believers = async || {
        let answer = ask(&server, "GET", "/v1/claims", Value::Null, &administrator).await;
        let claims: ClaimsResponse = answer.ok();
        claims.groups.iter().map(|group| group.believers.len()).sum::<usize>()
    };
    assert_eq!(believers().await, 1);
    post(&server, close, session.clone(), &other).await;
    assert_eq!(believers().await, 1, "another one has closed it");
    assert_eq!(post(&server, close, session, &leader).await, 200);
    assert_eq!(believers().await, 0, "its owner has stopped");
}

/// Another user of the server's machine takes every place of its own address. The Unix socket, to which only the server's
/// user may connect, has places of its own.
#[tokio::test]
async fn connections_to_the_loopback_address_take_no_place_of_the_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("regent.sock");
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let listeners = vec![Listener::from(tcp), Listener::from(UnixListener::bind(&path).unwrap())];
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let config = ServerConfig { connections_per_address_max: 4, ..ServerConfig::default() };
    tokio::spawn(serve(listeners, store, config, std::future::pending()));
    // A body that is awaited and does not come: the request is under way, and its connection gives way to nobody.
    let slow = "POST /v1/sessions/open HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n";
    let mut flood = Vec::new();
    patiently("every place of the address is taken", async {
        loop {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let _ = stream.write_all(slow.as_bytes()).await;
            let mut answer = [0; 12];
            let _ = stream.read_exact(&mut answer).await;
            if &answer != b"HTTP/1.1 100" {
                break;
            }
            flood.push(stream);
        }
    })
    .await;
    assert_eq!(flood.len(), 4);
    let mut socket = UnixStream::connect(&path).await.unwrap();
    let asks = "GET /v1/groups HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    socket.write_all(asks.as_bytes()).await.unwrap();
    let mut answer = String::new();
    patiently("an answer", socket.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
