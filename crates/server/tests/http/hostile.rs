//! Input that nobody means well with: a clear problem each, and the server goes on.

use regent_api::{Code, GroupsResponse, ROUTES};
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::support::{Server, example, problem_of, raw, request, status_of, until_closed};

const CAMPAIGN: &str = "/v1/groups/g/campaign";

/// Nothing that was refused left a group behind.
async fn nothing_happened(server: &Server) {
    let groups: GroupsResponse = server.get("/v1/groups").await.ok();
    assert!(groups.groups.is_empty(), "{groups:?}");
    server.serves().await;
}

#[tokio::test]
async fn malformed_json_is_refused_by_every_route_that_takes_some() {
    let server = Server::start().await;
    let deep_list = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let deep_object = format!("{}1{}", r#"{"a":"#.repeat(5_000), "}".repeat(5_000));
    let bodies = [
        "",
        " \n ",
        "{",
        "}",
        "null",
        "[]",
        "\"text\"",
        "17",
        "{\"node_id\":}",
        "{'node_id':'a'}",
        "{\"node_id\":\"a\",}",
        "{} {}",
        "\u{feff}{}",
        "{\"node_id\":\"\\ud800\"}",
        "NaN",
        &deep_list,
        &deep_object,
        &format!(r#"{{"node_id":"a","metadata":{{"k":{deep_list}}}}}"#),
    ];
    for route in ROUTES.iter().filter(|route| route.request.is_some()) {
        let (method, path, _) = example(route.operation, "g");
        for body in bodies {
            let body = Some((*body).to_owned());
            server.send(request(method.word(), &path, body)).await.problem(Code::BadRequest);
        }
        let mut not_utf8 = request(method.word(), &path, Some(String::new()));
        *not_utf8.body_mut() = b"{\"node_id\":\"\xff\xfe\"}".to_vec().into();
        server.send(not_utf8).await.problem(Code::BadRequest);
    }
    nothing_happened(&server).await;
}

#[tokio::test]
async fn wrong_types_and_absurd_durations_are_refused_with_the_field() {
    let server = Server::start().await;
    for (field, value) in [
        ("ttl_ms", "-1"),
        ("ttl_ms", "1.5"),
        ("ttl_ms", "1e3"),
        ("ttl_ms", "\"10s\""),
        ("ttl_ms", "99999999999999999999999"),
        ("ttl_ms", "18446744073709551615"),
        ("ttl_ms", "[]"),
        ("ttl_ms", "true"),
        ("wait_ms", "-9223372036854775808"),
        ("wait_ms", "1e309"),
        ("priority", "40000"),
        ("priority", "\"high\""),
        ("metadata", "[]"),
        ("metadata", "{\"a b\":\"c\"}"),
        ("metadata", "{\"k\":\"line\\nbreak\"}"),
        ("session_id", "\"short\""),
        ("session_id", "\"00000000000000000000000000000000\""),
        ("session_id", "5"),
        ("request_id", "\"no-number\""),
    ] {
        let body = format!(r#"{{"node_id":"a","{field}":{value}}}"#);
        let answer = server.send(request("POST", CAMPAIGN, Some(body))).await;
        let problem = answer.problem(Code::BadRequest);
        let at = problem.facts.field.clone().unwrap_or_default();
        assert!(at.starts_with(field), "{field}={value}: {problem}");
    }
    nothing_happened(&server).await;
}

#[tokio::test]
async fn an_unknown_field_is_refused_with_the_one_that_was_meant() {
    let server = Server::start().await;
    let problem =
        server.post(CAMPAIGN, json!({"node_id": "a", "ttl": 5000})).await.problem(Code::BadRequest);
    assert_eq!(problem.facts.did_you_mean.as_deref(), Some("ttl_ms"));
    server.post(CAMPAIGN, json!({"node_id": "a", "__proto__": {}})).await.problem(Code::BadRequest);
    nothing_happened(&server).await;
}

#[tokio::test]
async fn hostile_group_names_are_refused_wherever_a_name_is_taken() {
    let server = Server::start().await;
    let long = "a".repeat(201);
    for name in [
        "%00",
        "a%00b",
        "%2e%2e",
        "%2E",
        "a%2F..%2Fb",
        "%2Fa",
        "a%2F",
        "a%2F%2Fb",
        "%ff%fe",
        "%c3%28",
        "%zz",
        "%",
        "a%20b",
        "%3Cscript%3E",
        "%E2%98%83",
        "a%0d%0aset-cookie:x",
        "a;b",
        &long,
    ] {
        for route in ROUTES.iter().filter(|route| route.path.contains("{group}")) {
            let (method, path, body) = example(route.operation, name);
            let body = body.map(|body| body.to_string());
            let answer = server.send(request(method.word(), &path, body)).await;
            answer.problem(Code::BadRequest);
        }
    }
    nothing_happened(&server).await;
}

#[tokio::test]
async fn bodies_are_refused_by_size_whether_declared_or_not() {
    let server = Server::start().await;
    for route in ROUTES.iter().filter(|route| route.request.is_some()) {
        let (method, path, _) = example(route.operation, "g");
        let declared = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: 1073741824\r\n\r\n{{"
        );
        let answer = raw(&server, declared.as_bytes()).await;
        assert_eq!(problem_of(&answer).code, Code::PayloadTooLarge, "{path}");
        let fits = format!("{}[]", " ".repeat((64 << 10) - 2));
        let answer = server.send(request(method.word(), &path, Some(fits.clone()))).await;
        answer.problem(Code::BadRequest);
        let answer = server.send(request(method.word(), &path, Some(fits + " "))).await;
        answer.problem(Code::PayloadTooLarge);
    }
    nothing_happened(&server).await;
}

#[tokio::test]
async fn an_endless_chunked_body_is_refused() {
    let server = Server::start().await;
    let stream = server.connect().await;
    let (mut from, mut to) = stream.into_split();
    let sending = tokio::spawn(async move {
        let head = format!(
            "POST {CAMPAIGN} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             transfer-encoding: chunked\r\n\r\n"
        );
        let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
        let mut sent = to.write_all(head.as_bytes()).await;
        while sent.is_ok() {
            sent = to.write_all(chunk.as_bytes()).await;
        }
    });
    let mut answer = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut from, &mut answer);
    let _ = crate::support::patiently("an answer", read).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert_eq!(problem_of(&answer).code, Code::PayloadTooLarge);
    crate::support::patiently("the sender's end", sending).await.unwrap();
    nothing_happened(&server).await;
}

#[tokio::test]
async fn a_body_that_is_not_labelled_json_is_refused() {
    let server = Server::start().await;
    for label in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"]
    {
        let mut request = request("POST", CAMPAIGN, Some(json!({"node_id": "a"}).to_string()));
        request.headers_mut().insert("content-type", label.parse().unwrap());
        server.send(request).await.problem(Code::UnsupportedMediaType);
    }
    let mut unlabelled = request("POST", CAMPAIGN, Some(json!({"node_id": "a"}).to_string()));
    unlabelled.headers_mut().remove("content-type");
    server.send(unlabelled).await.problem(Code::UnsupportedMediaType);
    nothing_happened(&server).await;
    let mut labelled = request("POST", CAMPAIGN, Some(json!({"node_id": "a"}).to_string()));
    let label = "Application/JSON; charset=utf-8".parse().unwrap();
    labelled.headers_mut().insert("content-type", label);
    assert_eq!(server.send(labelled).await.status, 200);
}

#[tokio::test]
async fn a_head_that_is_no_http_or_too_large_ends_its_connection_only() {
    let server = Server::start().await;
    let many: String = (0..200).map(|n| format!("x-{n}: y\r\n")).collect();
    let heads = [
        "\0\0\0\0\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        "GET / HTTP/9.9\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}\r\n\r\n".to_owned(),
        format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(70_000)),
        format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "a".repeat(70_000)),
        format!("GET / HTTP/1.1\r\nhost: localhost\r\n{many}\r\n"),
        format!("POST {CAMPAIGN} HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n"),
        format!(
            "POST {CAMPAIGN} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n"
        ),
    ];
    for head in heads {
        let mut stream = server.connect().await;
        let _ = stream.write_all(head.as_bytes()).await;
        let answer = until_closed(&mut stream).await;
        if !answer.is_empty() {
            let status = status_of(&answer);
            assert!((400..500).contains(&status), "{status}");
        }
        server.serves().await;
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_changes_nothing() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    let head = format!(
        "POST {CAMPAIGN} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: 100\r\n\r\n{{\"node_id\":\"a\"}}"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    until_closed(&mut stream).await;
    nothing_happened(&server).await;
}
