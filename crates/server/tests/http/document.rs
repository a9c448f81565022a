//! The OpenAPI document says what is served, and what is served is in it.

use std::collections::BTreeSet;

use regent_api::{Code, Problem, ROUTES};
use serde_json::Value;

use crate::support::{Server, example, request};

const METHODS: [&str; 8] =
    ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"];

/// Every path of the served document with its methods.
async fn documented(server: &Server) -> Vec<(String, BTreeSet<String>)> {
    let document: Value = serde_json::from_slice(&server.get("/openapi.json").await.body).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    paths
        .iter()
        .map(|(path, operations)| {
            let methods = operations.as_object().unwrap().keys();
            (path.clone(), methods.map(|method| method.to_uppercase()).collect())
        })
        .collect()
}

#[tokio::test]
async fn every_documented_route_is_served() {
    let server = Server::start().await;
    let mut asked = 0;
    for (path, methods) in documented(&server).await {
        for method in methods {
            let body = matches!(method.as_str(), "POST" | "PUT").then(|| "{}".to_owned());
            let path = path.replace("{group}", "g");
            let answer = server.send(request(&method, &path, body)).await;
            let problem = serde_json::from_slice::<Problem>(&answer.body).ok();
            let code = problem.map(|problem| problem.code);
            assert!(
                !matches!(code, Some(Code::NotFound | Code::MethodNotAllowed)),
                "{method} {path} is documented and not served"
            );
            asked += 1;
        }
    }
    assert_eq!(asked, ROUTES.len());
}

#[tokio::test]
async fn every_row_of_the_table_is_in_the_served_document() {
    let server = Server::start().await;
    let documented = documented(&server).await;
    for route in ROUTES {
        let (_, methods) = documented
            .iter()
            .find(|(path, _)| path == route.path)
            .unwrap_or_else(|| panic!("{} is not documented", route.path));
        assert!(methods.contains(route.method.word()), "{} {}", route.method, route.path);
    }
}

#[tokio::test]
async fn undocumented_methods_are_refused_with_those_that_are_known() {
    let server = Server::start().await;
    for (path, methods) in documented(&server).await {
        let address = path.replace("{group}", "g");
        let mut allowed = methods.clone();
        if methods.contains("GET") {
            allowed.insert("HEAD".to_owned());
        }
        for method in METHODS.iter().filter(|method| !methods.contains(**method)) {
            let answer = server.send(request(method, &address, None)).await;
            let listed: BTreeSet<_> =
                answer.header("allow").split(", ").map(ToOwned::to_owned).collect();
            assert_eq!(listed, allowed, "{method} {address}");
            assert_eq!(answer.headers.get_all("allow").iter().count(), 1);
            answer.problem(Code::MethodNotAllowed);
        }
    }
}

#[tokio::test]
async fn what_can_be_read_can_be_asked_for_its_head_alone() {
    let server = Server::start().await;
    let answer = server.send(request("HEAD", "/v1/groups/g/leader", None)).await;
    assert_eq!(answer.status, 200);
    assert!(answer.body.is_empty());
}

#[tokio::test]
async fn every_route_that_needs_a_body_refuses_an_empty_object_or_takes_it() {
    let server = Server::start().await;
    for route in ROUTES.iter().filter(|route| route.request.is_some()) {
        let (method, path, body) = example(route.operation, "g");
        let body = body.map(|body| body.to_string());
        let answer = server.send(request(method.word(), &path, body)).await;
        // Only our own store has replicas; the one here says so to whatever could be understood.
        let has_no_replicas = answer.status == 501 && path.starts_with("/v1/cluster");
        if answer.status != 200 && !has_no_replicas {
            let problem = answer.problem(Code::BadRequest);
            assert!(problem.detail.contains("missing field"), "{}: {problem}", route.id);
        }
    }
}

#[tokio::test]
async fn unknown_addresses_are_problems_that_show_the_way() {
    let server = Server::start().await;
    for path in
        ["/v2/groups", "/v1", "/v1/", "/v1/groups/", "/v1/groups/g/", "/v1/groups/g/x", "//"]
    {
        for method in ["GET", "POST", "DELETE"] {
            let problem = server.send(request(method, path, None)).await.problem(Code::NotFound);
            assert!(problem.detail.contains("/openapi.json"), "{problem}");
        }
    }
}
