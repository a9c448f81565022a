//! What `regent run` and `regent campaign` say and conclude when there is no election to be had: no server, a server
//! that is stopped, a refusal that will never change.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use process::{Ended, Room, Server};

/// The answer is no; the server cannot be asked; refused.
const NO: i32 = 1;
const UNAVAILABLE: i32 = 69;
const REFUSED: i32 = 77;

/// Nothing listens there.
const NOWHERE: &str = "http://127.0.0.1:1";

/// A program that must not run.
const PROGRAM: [&str; 4] = ["--", "sh", "-c", "echo ran >ran"];

fn run<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    [&["run", "-g", "billing", "--node", "b"], flags, &PROGRAM].concat()
}

fn says(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!(ended.code, code, "{ended:?}");
    for part in parts {
        assert!(ended.stderr.contains(part), "no {part:?} in {ended:?}");
    }
}

/// "Another node leads" would make a script go home in peace though nothing runs anywhere.
#[test]
fn without_a_server_nobody_is_said_to_lead() {
    let room = Room::new();
    for flags in [&["--once"][..], &["--wait", "1s"]] {
        let all = run(&[&["--ttl", "1s", "--server", NOWHERE], flags].concat());
        says(&room.run(&all), UNAVAILABLE, &["not elected in billing", "--server"]);
    }
    let keep = ["campaign", "billing", "--node", "b", "--wait", "1s", "--server", NOWHERE];
    says(&room.run(&keep), UNAVAILABLE, &["--server"]);
    says(&room.run(&[&keep[..], &["--keep"]].concat()), UNAVAILABLE, &["--server"]);
    assert!(!room.path("ran").exists());
}

#[test]
fn a_server_that_is_stopped_has_not_said_that_another_node_leads() {
    let room = Room::new();
    let server = room.server();
    server.yes(&room, &["campaign", "billing", "--node", "a", "--ttl", "60s"]);
    says(&server.ask(&room, &run(&["--wait", "1s"])), NO, &["a leads, term 1"]);
    says(&server.ask(&room, &run(&["--once"])), NO, &["a leads, term 1"]);
    server.signal("STOP");
    says(&server.ask(&room, &run(&["--ttl", "1s", "--once"])), UNAVAILABLE, &["not elected"]);
    server.signal("CONT");
    assert!(!room.path("ran").exists());
}

/// What the server will say the same every time is said once, with the flag that helps.
#[test]
fn a_refusal_that_will_not_change_ends_the_candidate() {
    let room = Room::new();
    let server = room.server();
    server.yes(&room, &["group", "create", "billing", "--allow", "web-*", "--ttl-min", "5s"]);
    let keep = ["campaign", "billing", "--node", "b", "--keep"];
    for not_allowed in [run(&[]), keep.to_vec()] {
        says(&server.ask(&room, &not_allowed), REFUSED, &["--node", "regent group set"]);
    }
    let short = ["run", "-g", "billing", "--node", "web-1", "--ttl", "1s", "--", "true"];
    says(&server.ask(&room, &short), REFUSED, &["--ttl", "5000 ms"]);
    assert!(!room.path("ran").exists());
}

fn guarded(room: &Room) -> Server {
    room.serve("127.0.0.1:0", &["--data-dir", &room.text("data"), "--auth", "required"])
}

#[test]
fn a_candidate_that_the_server_does_not_know_ends_and_names_the_flag_for_its_token() {
    let room = Room::new();
    let server = guarded(&room);
    let keep = ["campaign", "billing", "--node", "b", "--keep"];
    for unknown in [run(&[]), keep.to_vec()] {
        says(&server.ask(&room, &unknown), REFUSED, &["no credential was shown", "--token-file"]);
    }
    let blind = server.ask(&room, &["status"]);
    assert_eq!(blind.code, REFUSED, "{blind:?}");
    assert!(blind.stdout.contains("unknown") && blind.stdout.contains("--token-file"), "{blind:?}");
    let socket = format!("unix://{}", room.text("data/run/regent.sock"));
    let token = room.run(&["auth", "token", "create", "node:b", "--server", &socket]);
    assert_eq!(token.code, 0, "{token:?}");
    // Known, but bound to nothing.
    let mut command = room.command(&run(&[]));
    command.env("REGENT_SERVER", &server.url).env("REGENT_TOKEN", token.stdout.trim());
    let denied = process::finish(command);
    says(&denied, REFUSED, &["no binding names it", "--token-file"]);
    assert!(!room.path("ran").exists());
}
