//! A server that lies to whoever asks it: what the command prints.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use process::Room;

/// What moves a cursor, renames a window, or turns the order of letters: ESC, BEL, DEL, two of C1, carriage
/// return, and overrides of direction.
const EVIL: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{7f}\u{9b}31m\u{85}\r\u{202e}\u{2066}\u{200f}";

/// A server that gives everybody the same answer.
fn liar(status: &str, kind: &str, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut read: Vec<u8> = Vec::new();
            while !read.windows(4).any(|part| part == b"\r\n\r\n") {
                let mut some = [0; 4096];
                match stream.read(&mut some) {
                    Ok(count) if count > 0 => read.extend(&some[..count]),
                    Ok(_) | Err(_) => break,
                }
            }
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    url
}

/// Nothing that a terminal obeys is left but the end of a line.
fn is_harmless(text: &str) -> bool {
    let moves = |letter| matches!(letter, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !text.chars().any(|letter| (letter.is_control() && letter != '\n') || moves(letter))
}

#[test]
fn a_hostile_problem_does_not_reach_the_terminal() {
    let problem = serde_json::json!({
        "type": "urn:regent:problem:bad_request", "title": EVIL, "status": 400,
        "code": "BAD_REQUEST", "detail": format!("no{EVIL}thing"),
    });
    let url = liar("400 Bad Request", "application/problem+json", problem.to_string());
    let room = Room::new();
    let verbs = [
        &["leader", "billing"][..],
        &["group", "list"],
        &["group", "show", "billing"],
        &["cluster", "status"],
        &["history", "billing"],
    ];
    for verb in verbs {
        let ended = room.run(&[verb, &["--server", &url]].concat());
        assert!(is_harmless(&ended.stdout) && is_harmless(&ended.stderr), "{verb:?}: {ended:?}");
        assert!(ended.stderr.contains("owned"), "it is shown, escaped: {ended:?}");
    }
    let ended = room.run(&["leader", "billing", "--server", &url, "--output", "json"]);
    assert!(is_harmless(&ended.stderr), "{ended:?}");
    let last = ended.stderr.lines().last().unwrap();
    let told: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(told["detail"], format!("no{EVIL}thing"), "JSON says the same, escaped");
}

#[test]
fn a_hostile_answer_does_not_reach_the_terminal() {
    let office = serde_json::json!({
        "group": "billing", "leader": "web-1", "term": 7, "state": "leading", "revision": 1,
        "cursor": "1-1", "consistency": "linearizable", "metadata": { "zone": "a\u{202e}b" },
    });
    let url = liar("200 OK", "application/json", office.to_string());
    let room = Room::new();
    let ended = room.run(&["leader", "billing", "--verbose", "--server", &url]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(is_harmless(&ended.stdout) && ended.stdout.contains("zone=a"), "{ended:?}");
    let ended = room.run(&["leader", "billing", "--server", &url, "--output", "json"]);
    assert!(is_harmless(&ended.stdout), "{ended:?}");
    let told: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(told["metadata"]["zone"], "a\u{202e}b");
}

#[test]
fn a_hostile_server_cannot_make_a_login_say_more_than_it_is() {
    let binding = |role: String| serde_json::json!({ "who": "*", "role": role, "groups": [format!("x{EVIL}\nknown as  root")], "nodes": [] });
    let bindings: Vec<_> = (0..500).map(|n| binding(format!("role-{n}"))).collect();
    let answer = serde_json::json!({
        "cluster_id": "0", "replica": 1, "role": "leader", "raft_term": 1, "leader": 1,
        "leader_address": EVIL, "leader_changes": 1, "voters": 1, "quorum": 1,
        "failures_survived": 0, "changing": false, "last_index": 1, "committed_index": 1,
        "applied_index": 1, "snapshot_index": 0, "log_bytes": 0, "snapshot_bytes": 0,
        "members": [], "warnings": [], "auth": EVIL,
        "caller": { "principal": format!("user:alice\nrights{EVIL}"), "bindings": bindings },
    });
    let url = liar("200 OK", "application/json", answer.to_string());
    let room = Room::new();
    let ended = room.run(&["login", &url]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(is_harmless(&ended.stdout) && is_harmless(&ended.stderr), "{ended:?}");
    assert_eq!(ended.stdout.lines().filter(|line| line.starts_with("known as")).count(), 1);
    assert!(ended.stdout.lines().count() < 50 && !ended.stdout.contains("alice"), "{ended:?}");
    let ended = room.run(&["login", &url, "--json"]);
    assert!(is_harmless(&ended.stdout), "{ended:?}");
    let told: serde_json::Value = serde_json::from_str(ended.stdout.trim()).unwrap();
    assert_eq!(told["principal"], serde_json::Value::Null);
}
