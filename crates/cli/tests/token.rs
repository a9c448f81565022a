//! The token service as a script and a resource meet it, on every kind of store that needs no server.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use process::{Room, Server, json};

/// A group that had two leaders: the first was succeeded by force, as one is that does not answer.
fn two_terms(room: &Room, server: &Server) {
    for (node, term) in [("a", 1), ("b", 2)] {
        let flags = ["campaign", "billing", "--node", node, "--session-file", node, "--ttl", "60s"];
        let won = server.yes(room, &[&flags[..], &["--output", "json"]].concat());
        assert_eq!(json(&won)["term"], term, "{won}");
        if node == "a" {
            let force = ["step-down", "billing", "--reason", "test", "--immediate", "--yes"];
            server.yes(room, &force);
        }
    }
}

fn validate(room: &Room, server: &Server, term: &str, at: Option<&str>) -> (i32, String) {
    let mut words = vec!["token", "validate", "billing", "--term", term];
    if let Some(at) = at {
        words.extend(["--resource", at]);
    }
    let ended = server.ask(room, &words);
    (ended.code, ended.stderr)
}

fn a_stale_term_is_refused_with_both_numbers(room: &Room, server: &Server) {
    two_terms(room, server);
    let shown = json(&server.yes(room, &["token", "show", "billing", "--output", "json"]));
    assert_eq!((&shown["term"], &shown["leader"]), (&2.into(), &"b".into()), "{shown}");
    assert_eq!(shown["token"], serde_json::Value::Null, "nobody has proved to be the holder");

    // Without a resource only the current term is good.
    assert_eq!(validate(room, server, "2", None).0, 0);
    let (code, said) = validate(room, server, "1", None);
    assert!(code != 0 && said.contains("term 1 < current 2"), "{code}: {said}");
    let (code, said) = validate(room, server, "3", None);
    assert!(code != 0 && said.contains("never granted"), "{code}: {said}");

    // The first fence of a group begins at its current term; then each resource has its own.
    let (code, said) = validate(room, server, "1", Some("db/orders"));
    assert!(code != 0 && said.contains("term 1 < current 2"), "{code}: {said}");
    assert_eq!(validate(room, server, "2", Some("db/orders")).0, 0);
    let path = "/v1/groups/billing/token/validate";
    let refused = json(&server.post(path, r#"{"term": 1, "resource": "db/orders"}"#));
    assert_eq!(refused["code"], "STALE_TERM", "{refused}");
    assert_eq!((&refused["given_term"], &refused["current_term"]), (&1.into(), &2.into()));
    let listed = server.yes(room, &["token", "fences", "billing"]);
    assert!(listed.contains("db/orders"), "{listed}");

    // Forgotten, it refuses what it refused before; so does every other one.
    server.yes(room, &["token", "forget", "billing", "--resource", "db/orders", "--yes"]);
    for at in ["db/orders", "db/invoices"] {
        let (code, said) = validate(room, server, "1", Some(at));
        assert!(code != 0 && said.contains("term 1 < current 2"), "{code}: {said}");
    }
    let again = ["token", "forget", "billing", "--resource", "db/orders", "--yes"];
    assert_ne!(server.ask(room, &again).code, 0, "there is nothing to forget any more");

    // A term that its holder gave up is nobody's, though no higher one was granted.
    server.yes(room, &["resign", "billing", "--session-file", "b"]);
    let (code, said) = validate(room, server, "2", None);
    assert!(code != 0 && said.contains("is over"), "{code}: {said}");

    for body in [r#"{"term": 0}"#, r#"{"term": -1}"#, r#"{"term": 1, "resource": ""}"#, "[]"] {
        let refused = json(&server.post(path, body));
        assert!(refused["status"].as_u64().unwrap() >= 400, "{body}: {refused}");
    }
    let metrics = server.get("/metrics");
    let counted = r#"regent_fence_rejections_total{reason="STALE_TERM"}"#;
    assert!(metrics.lines().any(|line| line.starts_with(counted) && !line.ends_with(" 0")));
}

#[test]
fn the_token_service_of_our_own_store_refuses_a_stale_term() {
    let room = Room::new();
    let server = room.server();
    a_stale_term_is_refused_with_both_numbers(&room, &server);
}

#[test]
fn the_token_service_over_files_refuses_a_stale_term() {
    let room = Room::new();
    let url = format!("file://{}", room.path("elections").display());
    let server = room.serve("127.0.0.1:0", &["--store", &url]);
    a_stale_term_is_refused_with_both_numbers(&room, &server);
}

/// What a resource has admitted survives the power cut of the service.
#[test]
fn a_fence_outlives_the_service_that_raised_it() {
    let room = Room::new();
    let server = room.server();
    two_terms(&room, &server);
    assert_eq!(validate(&room, &server, "2", Some("db/orders")).0, 0);
    let listen = server.listen();
    server.kill();
    let server = room.serve(&listen, &["--data-dir", &room.text("data")]);
    let (code, said) = validate(&room, &server, "1", Some("db/orders"));
    assert!(code != 0 && said.contains("term 1 < current 2"), "{code}: {said}");
}
