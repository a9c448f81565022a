//! Two operators for what can hurt most: real processes, a restart between the two, and who did what in the audit log.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use process::{Ended, Room, Server, until};

/// Exit code of the command: refused by the server.
const REFUSED: i32 = 77;

const BINDINGS: &str = r#"
[[binding]]
who = "node:web-1"
role = "participant"
groups = ["*"]

[[binding]]
who = "user:*"
role = "administrator"
groups = ["*"]
"#;

fn guarded(room: &Room) -> Server {
    room.serve("127.0.0.1:0", &["--data-dir", &room.text("data"), "--auth", "required"])
}

fn admin(room: &Room, arguments: &[&str]) -> Ended {
    let socket = format!("unix://{}", room.text("data/run/regent.sock"));
    room.run(&[arguments, &["--server", &socket]].concat())
}

fn yes(ended: Ended) -> String {
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.stdout
}

fn token(room: &Room, who: &str) {
    let text = yes(admin(room, &["auth", "token", "create", who]));
    let path = room.path(&format!("{}.token", who.split(':').nth(1).unwrap()));
    fs::write(&path, &text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
}

/// Asks as one of those who have a token.
fn ask(server: &Server, room: &Room, who: &str, arguments: &[&str]) -> Ended {
    server.ask(room, &[arguments, &["--token-file", &format!("{who}.token")]].concat())
}

fn proposed(ended: &Ended, by: &str) {
    assert_eq!(ended.code, REFUSED, "{ended:?}");
    let wanted = format!("by user:{by} is noted; another operator must send the very same");
    assert!(ended.stderr.contains(&wanted), "{ended:?}");
}

#[test]
fn a_forced_step_down_and_a_deletion_take_two_operators_across_a_restart() {
    let room = Room::new();
    let server = guarded(&room);
    fs::write(room.path("bindings.toml"), BINDINGS).unwrap();
    yes(admin(&room, &["auth", "apply", "--file", "bindings.toml"]));
    ["node:web-1", "user:alice", "user:bob"].iter().for_each(|who| token(&room, who));
    let campaign =
        ["campaign", "billing", "--node", "web-1", "--session-file", "s", "--ttl", "10m"];
    yes(ask(&server, &room, "web-1", &campaign));
    let shown =
        yes(ask(&server, &room, "alice", &["group", "set", "billing", "--four-eyes", "true"]));
    assert!(shown.contains("two operators are needed"), "{shown}");

    let force = ["step-down", "billing", "--reason", "stuck", "--immediate", "--yes"];
    for _ in 0..2 {
        proposed(&ask(&server, &room, "alice", &force), "alice");
    }
    // Bob asks for something else: that is not what Alice wants, and has a place of its own.
    proposed(&ask(&server, &room, "bob", &["group", "delete", "billing", "--yes"]), "bob");
    // The log is written beside the answers, and the server is killed.
    let show = ["audit", "show", "--dir", "data", "--group", "billing"];
    until("bob's deletion is in the log", || yes(room.run(&show)).contains("bob from"));
    drop(server);

    let server = guarded(&room);
    let led = yes(ask(&server, &room, "bob", &["leader", "billing", "--output", "json"]));
    assert!(led.contains("\"leader\":\"web-1\""), "{led}");
    yes(ask(&server, &room, "bob", &force));
    let led = ask(&server, &room, "bob", &["leader", "billing", "--output", "json"]);
    assert!(led.stdout.contains("\"leader\":null"), "{led:?}");
    // Switching it off takes two as well; after that one is enough.
    let off = ["group", "set", "billing", "--four-eyes", "false"];
    proposed(&ask(&server, &room, "bob", &off), "bob");
    yes(ask(&server, &room, "alice", &off));
    yes(ask(&server, &room, "alice", &["group", "delete", "billing", "--yes"]));
    until("the deletion is in the log", || yes(room.run(&show)).contains("delete  OK"));
    drop(server);

    let told = yes(room.run(&show));
    for line in [
        "refused  user:alice from 127.0.0.1  step_down  SECOND_APPROVAL_NEEDED",
        "refused  user:bob from 127.0.0.1  delete  SECOND_APPROVAL_NEEDED",
        "change  user:bob from 127.0.0.1  step_down  OK",
        "change  user:alice from 127.0.0.1  delete  OK",
    ] {
        assert!(told.contains(line), "no {line} in {told}");
    }
}
