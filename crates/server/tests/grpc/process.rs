//! What the process says about itself: health, reflection, metrics, and one port for both faces.

use regent_api::Code;
use regent_api::grpc::SERVICE;
use regent_server::ServerConfig;
use tokio_stream::StreamExt;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::support::{Server, channel, lead, patiently, problem};

fn named(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

#[tokio::test]
async fn health_tells_of_the_process_and_of_the_store() {
    let mut server = Server::start().await;
    let mut health = HealthClient::with_origin(channel(), server.url().parse().unwrap());
    for service in ["", SERVICE] {
        let answer = health.check(named(service)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving);
    }
    let unknown = health.check(named("other.Service")).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);

    let mut watched = health.watch(named(SERVICE)).await.unwrap().into_inner();
    let first = patiently("a status", watched.message()).await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);
    server.stop();
    server.stopped().await;
    let last = patiently("a status", watched.message()).await.unwrap().unwrap();
    assert_eq!(last.status(), ServingStatus::NotServing);
}

#[tokio::test]
async fn strangers_that_watch_health_or_reflection_take_no_place_of_sessions() {
    let server = Server::with(ServerConfig { waiting_max: 8, ..ServerConfig::default() }).await;
    let url = || server.url().parse().unwrap();
    let mut health = HealthClient::with_origin(channel(), url());
    let mut mirror = ServerReflectionClient::with_origin(channel(), url());
    let mut watched = Vec::new();
    let refusal = loop {
        match health.watch(named(SERVICE)).await {
            Ok(stream) => watched.push(stream),
            Err(refusal) => break refusal,
        }
    };
    problem(&refusal, Code::RateLimited);
    assert_eq!(watched.len(), 2, "a quarter of those that may wait");
    let refusal = mirror.server_reflection_info(tokio_stream::pending()).await.unwrap_err();
    problem(&refusal, Code::RateLimited);
    // All places of those that wait are free.
    let mut watches = Vec::new();
    for _ in 0..8 {
        let prefix = regent_api::grpc::WatchManyRequest::default();
        watches.push(server.client().watch_many(prefix).await.unwrap());
    }
    drop(watched);
    patiently("a place", async {
        while health.watch(named(SERVICE)).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn reflection_lists_the_service_and_shows_its_file() {
    let server = Server::start().await;
    let mut mirror = ServerReflectionClient::with_origin(channel(), server.url().parse().unwrap());
    let ask = |message_request| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(message_request),
    };
    let asks = [
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol(SERVICE.to_owned())),
    ];
    let answers = mirror.server_reflection_info(tokio_stream::iter(asks)).await.unwrap();
    let answers: Vec<_> =
        patiently("answers", answers.into_inner().map(Result::unwrap).collect()).await;
    let Some(MessageResponse::ListServicesResponse(list)) = &answers[0].message_response else {
        panic!("{answers:?}");
    };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&SERVICE) && names.contains(&"grpc.health.v1.Health"), "{names:?}");
    let Some(MessageResponse::FileDescriptorResponse(files)) = &answers[1].message_response else {
        panic!("{answers:?}");
    };
    assert!(!files.file_descriptor_proto.is_empty());
}

#[tokio::test]
async fn calls_are_counted_under_the_route_of_their_verb() {
    let server = Server::start().await;
    lead(&mut server.client(), "g", "a").await;
    let (_, text) = server.http("/metrics").await;
    let counted = text.lines().any(|line| {
        line.starts_with("regent_http_request_duration_seconds_count")
            && line.contains("route=\"/v1/groups/{group}/campaign\"")
            && line.contains("code=\"OK\"")
            && line.ends_with(" 1")
    });
    assert!(counted, "{text}");
    // One series for each cause.
    let elected = text.lines().filter(|line| {
        line.starts_with("election_duration_seconds_count{result=\"success\"")
            && line.ends_with(" 1")
    });
    assert_eq!(elected.count(), 1, "{text}");
}

#[tokio::test]
async fn one_connection_carries_both_faces() {
    let server = Server::start().await;
    let connection = channel();
    let url = format!("{}/healthz", server.url()).parse().unwrap();
    let healthz = patiently("an answer", connection.get(url)).await.unwrap();
    assert_eq!(healthz.status(), 200);
    let mut client = regent_api::grpc::regent_client::RegentClient::with_origin(
        connection,
        server.url().parse().unwrap(),
    );
    lead(&mut client, "g", "a").await;
}
