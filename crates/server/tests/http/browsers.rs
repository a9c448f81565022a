//! Requests that a browser sends on behalf of somebody else's page (CVE-2018-1098).

use hyper::header::HeaderName;
use regent_api::{Code, LeaderResponse};
use regent_server::ServerConfig;
use serde_json::json;

use crate::support::{Answer, Server, request};

async fn campaign(server: &Server, headers: &[(&'static str, &str)]) -> Answer {
    let body = json!({"node_id": "a"}).to_string();
    let mut request = request("POST", "/v1/groups/g/campaign", Some(body));
    for (name, value) in headers {
        request.headers_mut().insert(HeaderName::from_static(name), value.parse().unwrap());
    }
    server.send(request).await
}

#[tokio::test]
async fn a_page_of_another_site_changes_nothing() {
    let server = Server::start().await;
    for headers in [
        &[("origin", "http://evil.example")][..],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[("host", "evil.example"), ("origin", "http://evil.example")],
        &[("host", "evil.example")],
    ] {
        campaign(&server, headers).await.problem(Code::CrossOrigin);
    }
    campaign(&server, &[("origin", "http://evil.example"), ("content-type", "text/plain")])
        .await
        .problem(Code::CrossOrigin);
    let seen: LeaderResponse = server.get("/v1/groups/g/leader").await.ok();
    assert_eq!(seen.office.leader, None);
    server.serves().await;
}

#[tokio::test]
async fn every_route_refuses_a_rebound_name() {
    let server = Server::start().await;
    for route in regent_api::ROUTES {
        let path = route.path.replace("{group}", "g");
        let body = route.request.map(|_| "{}".to_owned());
        let mut request = request(route.method.word(), &path, body);
        request.headers_mut().insert("host", "evil.example".parse().unwrap());
        server.send(request).await.problem(Code::CrossOrigin);
    }
}

#[tokio::test]
async fn the_servers_own_page_and_configured_names_are_served() {
    let config = ServerConfig {
        hosts_allowed: vec!["regent.example".to_owned()],
        ..ServerConfig::default()
    };
    let server = Server::with(config).await;
    for headers in [
        &[("origin", "http://localhost")][..],
        &[("host", "regent.example"), ("origin", "https://regent.example")],
        &[("host", "127.0.0.1:7000"), ("origin", "http://127.0.0.1:7000")],
        &[("sec-fetch-site", "same-origin")],
    ] {
        let answer = campaign(&server, headers).await;
        assert_eq!(answer.status, 200, "{headers:?}: {}", answer.text());
    }
}
