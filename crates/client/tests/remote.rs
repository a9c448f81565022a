//! The remote against peers that misbehave: what was not sent, what may have been, what is no answer.
//!
//! The peers are real sockets that read a request and then do one thing each. Against a real server
//! the remote is tested with the command.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use regent::remote::{Remote, RemoteError, Scope, Watched};
use regent_api::problem::{Code, Problem};
use regent_api::{CampaignRequest, Consistency, GroupsQuery, TenureRequest, WatchEvent};
use regent_election::{Group, Term};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const OFFICE: &str = r#"{"group":"billing","leader":"web-1","term":3,"state":"leading","metadata":{},"revision":41,"cursor":"5-41","consistency":"linearizable"}"#;

fn billing() -> Group {
    Group::new("billing").unwrap()
}

/// A peer that treats each connection as told, in order, and gives back the requests it read.
async fn peer(script: Vec<Vec<u8>>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let requests = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answer in script {
            let (mut stream, _) = listener.accept().await.unwrap();
            requests.push(read_request(&mut stream).await);
            stream.write_all(&answer).await.unwrap();
            stream.shutdown().await.unwrap();
        }
        requests
    });
    (address, requests)
}

/// An address at which nobody listens.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await.unwrap();
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            assert!(count > 0, "the request ended early: {text:?}");
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok())
            .unwrap_or(0);
        if body.len() >= length {
            return text;
        }
    }
}

fn answer(status: &str, label: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {label}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

fn ok(body: &str) -> Vec<u8> {
    answer("200 OK", "application/json", body)
}

fn problem(code: Code) -> Vec<u8> {
    let body = serde_json::to_string(&Problem::new(code, "because")).unwrap();
    answer(&code.status().to_string(), "application/problem+json", &body)
}

fn events(text: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{text}")
        .into_bytes()
}

fn campaign() -> CampaignRequest {
    CampaignRequest::of("web-1".parse().unwrap())
}

#[tokio::test]
async fn what_was_not_sent_is_tried_at_the_next_address_even_if_it_writes() {
    let (server, requests) = peer(vec![problem(Code::NotAllowed)]).await;
    let remote = Remote::new(&format!("{},{server}", nobody().await)).unwrap();
    let error = remote.campaign(&billing(), &campaign()).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::NotAllowed), "{error:?}");
    let request = &requests.await.unwrap()[0];
    assert!(request.starts_with("POST /v1/groups/billing/campaign HTTP/1.1"), "{request}");
    assert!(request.contains("content-type: application/json"), "{request}");
}

#[tokio::test]
async fn when_nobody_can_be_reached_nothing_happened() {
    let remote = Remote::new(&format!("{},{}", nobody().await, nobody().await)).unwrap();
    let error = remote.campaign(&billing(), &campaign()).await.unwrap_err();
    assert!(matches!(error, RemoteError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("connection refused"), "{error}");
}

#[tokio::test]
async fn a_write_that_was_lost_on_the_way_is_uncertain_and_not_repeated() {
    let (first, _first_requests) = peer(vec![Vec::new()]).await;
    let (second, second_requests) = peer(vec![ok(OFFICE)]).await;
    let remote = Remote::new(&format!("{first},{second}")).unwrap();
    let resign = TenureRequest {
        session_id: "000000000000000000000000000000ff".parse().unwrap(),
        term: Term::new(3).unwrap(),
        request_id: None,
    };
    let error = remote.resign(&billing(), &resign).await.unwrap_err();
    assert!(matches!(error, RemoteError::Uncertain { .. }), "{error:?}");
    assert!(error.to_string().contains("it may have happened"), "{error}");
    // The second peer hears of us for the first time with the next, harmless request.
    remote.leader(&billing(), Consistency::Stale).await.unwrap();
    let requests = second_requests.await.unwrap();
    assert!(
        requests[0].starts_with("GET /v1/groups/billing/leader?consistency=stale"),
        "{requests:?}"
    );
}

#[tokio::test]
async fn a_read_that_was_lost_on_the_way_is_repeated_elsewhere() {
    let (first, _first_requests) = peer(vec![Vec::new()]).await;
    let (second, _second_requests) = peer(vec![ok(OFFICE)]).await;
    let remote = Remote::new(&format!("{first},{second}")).unwrap();
    let answer = remote.leader(&billing(), Consistency::Linearizable).await.unwrap();
    assert_eq!(answer.office.term.get(), 3);
    assert_eq!(remote.seen().0, 41);
    assert!(remote.request_id().unwrap().to_string().starts_with("41-"));
}

#[tokio::test]
async fn half_an_answer_to_a_write_is_uncertain() {
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"elected\":true".to_vec();
    let (server, _requests) = peer(vec![cut]).await;
    let error = Remote::new(&server).unwrap().campaign(&billing(), &campaign()).await.unwrap_err();
    assert!(matches!(error, RemoteError::Uncertain { .. }), "{error:?}");
}

#[tokio::test]
async fn silence_ends_with_the_time_out_and_a_write_is_uncertain() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let remote = Remote::new(&address).unwrap().with_timeout(Duration::from_millis(50));
    let error = remote.campaign(&billing(), &campaign()).await.unwrap_err();
    assert!(matches!(error, RemoteError::Uncertain { .. }), "{error:?}");
    let error = remote.leader(&billing(), Consistency::Stale).await.unwrap_err();
    assert!(matches!(error, RemoteError::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_that_is_going_away_sends_its_clients_to_the_next() {
    let (first, _first_requests) = peer(vec![problem(Code::ShuttingDown)]).await;
    let (second, _second_requests) = peer(vec![problem(Code::GroupUnknown)]).await;
    let remote = Remote::new(&format!("{first},{second}")).unwrap();
    let error = remote.campaign(&billing(), &campaign()).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::GroupUnknown));
}

#[tokio::test]
async fn something_that_is_no_regent_server_is_called_so() {
    let page = answer("200 OK", "text/html", "<html>hello</html>");
    let (server, _requests) = peer(vec![page]).await;
    let error = Remote::new(&server).unwrap().list_groups(&GroupsQuery::default()).await;
    let error = error.unwrap_err();
    assert!(matches!(error, RemoteError::Protocol { .. }), "{error:?}");
    assert!(error.to_string().contains("no answer of a Regent server"), "{error}");
}

fn changed(revision: u64, leader: &str) -> String {
    format!(
        "id: 5-{revision}-0\nevent: LEADER_CHANGED\ndata: {{\"group\":\"billing\",\"leader\":\"{leader}\",\"term\":{revision},\"cause\":\"elected\",\"metadata\":{{}},\"revision\":{revision},\"cursor\":\"5-{revision}-0\"}}\n\n"
    )
}

async fn next_change(watch: &mut regent::remote::Watching) -> u64 {
    loop {
        match watch.next().await.unwrap() {
            Watched::Event(event) => match *event {
                WatchEvent::LeaderChanged(changed) => return changed.revision.0,
                other => panic!("{other:?}"),
            },
            Watched::Interrupted { .. } => {}
        }
    }
}

#[tokio::test]
async fn a_broken_watch_goes_on_after_the_last_event_it_gave_out() {
    let half = "event: LEADER_CHANGED\ndata: {\"group\":\"bil";
    let closing = "event: CLOSING\ndata: {\"cursor\":\"5-9\",\"retry_after_ms\":1}\n\n";
    let (server, requests) = peer(vec![
        events(&format!("{}{}{half}", changed(7, "a"), changed(8, "b"))),
        events(&format!(": sign of life\n\nevent: OF_THE_FUTURE\ndata: {{}}\n\n{closing}")),
        events(&changed(12, "c")),
    ])
    .await;
    let mut watch = Remote::new(&server).unwrap().watch(Scope::Group(billing()), None);
    assert_eq!(next_change(&mut watch).await, 7);
    assert_eq!(next_change(&mut watch).await, 8);
    assert_eq!(next_change(&mut watch).await, 12);
    assert_eq!(watch.cursor().unwrap().to_string(), "5-12-0");
    let requests = requests.await.unwrap();
    assert!(!requests[0].contains("last-event-id"), "{}", requests[0]);
    assert!(requests[0].contains("accept: text/event-stream"), "{}", requests[0]);
    assert!(requests[1].contains("last-event-id: 5-8-0"), "{}", requests[1]);
    assert!(requests[2].contains("last-event-id: 5-9\r\n"), "{}", requests[2]);
}

#[tokio::test]
async fn a_watch_that_the_server_refuses_ends_with_its_reason() {
    let (server, requests) = peer(vec![problem(Code::BadRequest)]).await;
    let scope = Scope::Groups(vec![billing(), "team/svc".parse().unwrap()]);
    let mut watch = Remote::new(&server).unwrap().watch(scope, None);
    let error = watch.next().await.unwrap_err();
    assert_eq!(error.code(), Some(Code::BadRequest));
    let request = &requests.await.unwrap()[0];
    assert!(request.starts_with("GET /v1/watch?groups=billing%2Cteam%2Fsvc "), "{request}");
}

#[tokio::test]
async fn a_watch_of_a_server_that_is_away_says_so_and_waits() {
    let mut watch = Remote::new(&nobody().await).unwrap().watch(Scope::Prefix(String::new()), None);
    let watched = watch.next().await.unwrap();
    let Watched::Interrupted { why, retry_in } = watched else { panic!("{watched:?}") };
    assert!(why.contains("no connection"), "{why}");
    assert!(retry_in > Duration::ZERO);
}

#[tokio::test]
async fn a_request_may_be_sent_from_any_thread() {
    let remote = Remote::new(&nobody().await).unwrap();
    let sent = tokio::spawn(async move { remote.campaign(&billing(), &campaign()).await });
    assert!(matches!(sent.await.unwrap(), Err(RemoteError::Unavailable { .. })));
}
