//! Watches over gRPC: every change once, in order, from the cursor on, until the server goes.

use regent_api::grpc as pb;
use regent_api::grpc::watch_event::Event;
use regent_api::{Code, WatchEvent};
use tonic::Streaming;

use crate::support::{Server, lead, patiently, problem, resign};

async fn next(stream: &mut Streaming<pb::WatchEvent>) -> WatchEvent {
    let message = patiently("an event", stream.message()).await.unwrap();
    message.expect("the stream goes on").received().unwrap()
}

fn watch(group: &str, cursor: Option<String>) -> pb::WatchRequest {
    pb::WatchRequest { group: group.to_owned(), cursor }
}

#[tokio::test]
async fn a_watch_tells_the_state_then_every_change_and_resumes_after_its_cursor() {
    let server = Server::start().await;
    let mut client = server.client();
    let mut stream = client.watch(watch("g", None)).await.unwrap().into_inner();
    let WatchEvent::State(present) = next(&mut stream).await else { panic!("the state is first") };
    assert_eq!(present.offices[0].leader, None);
    let first = lead(&mut client, "g", "a").await;
    let WatchEvent::LeaderChanged(elected) = next(&mut stream).await else { panic!("no change") };
    assert_eq!(elected.leader.as_ref().unwrap().as_str(), "a");
    drop(stream);

    resign(&mut client, &first).await;
    lead(&mut client, "g", "b").await;
    let resumed = watch("g", Some(elected.cursor.to_string()));
    let mut stream = client.watch(resumed).await.unwrap().into_inner();
    let mut leaders = Vec::new();
    for _ in 0..2 {
        let WatchEvent::LeaderChanged(changed) = next(&mut stream).await else { panic!("a gap") };
        leaders.push(changed.leader.map(|leader| leader.to_string()));
    }
    assert_eq!(leaders, [None, Some("b".to_owned())]);
}

#[tokio::test]
async fn a_cursor_of_another_life_meets_a_gap_with_the_present_state() {
    let server = Server::start().await;
    let mut client = server.client();
    lead(&mut client, "g", "a").await;
    let mut cursor = server.store.watch(scope(), None).await.unwrap().cursor();
    cursor.incarnation.0 ^= 1;
    let request = watch("g", Some(cursor.to_string()));
    let mut stream = client.watch(request).await.unwrap().into_inner();
    let WatchEvent::Gap(gap) = next(&mut stream).await else { panic!("no gap") };
    assert_eq!(gap.present.offices[0].leader.as_ref().unwrap().as_str(), "a");
}

fn scope() -> regent_election::store::Scope {
    regent_election::store::Scope::Prefix(String::new())
}

#[tokio::test]
async fn many_groups_are_watched_by_name_or_by_prefix() {
    let server = Server::start().await;
    let mut client = server.client();
    let named = pb::WatchManyRequest {
        groups: vec!["a".to_owned(), "b".to_owned()],
        ..pb::WatchManyRequest::default()
    };
    let prefixed = pb::WatchManyRequest { prefix: "b".to_owned(), ..named.clone() };
    let refused = client.watch_many(prefixed.clone()).await.unwrap_err();
    problem(&refused, Code::BadRequest);
    let prefixed = pb::WatchManyRequest { groups: Vec::new(), ..prefixed };
    let mut named = client.watch_many(named).await.unwrap().into_inner();
    let mut prefixed = client.watch_many(prefixed).await.unwrap().into_inner();
    next(&mut named).await;
    next(&mut prefixed).await;
    lead(&mut client, "a", "n").await;
    lead(&mut client, "b", "n").await;
    lead(&mut client, "c", "n").await;
    let mut groups = Vec::new();
    for stream in [&mut named, &mut prefixed] {
        let WatchEvent::LeaderChanged(changed) = next(stream).await else { panic!("no change") };
        groups.push(changed.group.to_string());
    }
    assert_eq!(groups, ["a", "b"]);
}

#[tokio::test]
async fn a_closing_server_says_farewell_to_its_watchers() {
    let mut server = Server::start().await;
    let mut client = server.client();
    let mut stream = client.watch(watch("g", None)).await.unwrap().into_inner();
    next(&mut stream).await;
    server.stop();
    server.stopped().await;
    let message = patiently("a farewell", stream.message()).await.unwrap().unwrap();
    assert!(matches!(message.event, Some(Event::Closing(_))), "{message:?}");
    assert!(patiently("the end", stream.message()).await.unwrap().is_none());
}
