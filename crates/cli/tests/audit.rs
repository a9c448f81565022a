//! The audit log as an operator and an auditor meet it: real processes, a kill, a file that somebody edits; and that no
//! secret of the run is in anything that a server says or writes.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::cell::RefCell;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use process::{Ended, Room, Server, json};

/// Exit codes of the command.
const TAMPERED: i32 = 66;
const REFUSED: i32 = 77;

const BINDINGS: &str = r#"
[[binding]]
who = "node:web-1"
role = "participant"
groups = ["billing"]

[[binding]]
who = "user:alice"
role = "operator"
groups = ["*"]
"#;

/// A server that audits and signs, on which web-1 and alice have tokens; their secrets.
fn guarded(room: &Room, more: &[&str]) -> Server {
    let data = room.text("data");
    let flags = ["--data-dir", &data, "--auth", "required", "--signing-keys", "signing.keys"];
    room.serve("127.0.0.1:0", &[&flags[..], more].concat())
}

fn admin(room: &Room, arguments: &[&str]) -> Ended {
    let socket = format!("unix://{}", room.text("data/run/regent.sock"));
    room.run(&[arguments, &["--server", &socket]].concat())
}

fn yes(ended: Ended) -> String {
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.stdout
}

fn token(room: &Room, who: &str, file: &str) -> String {
    let text = yes(admin(room, &["auth", "token", "create", who]));
    fs::write(room.path(file), &text).unwrap();
    fs::set_permissions(room.path(file), Permissions::from_mode(0o600)).unwrap();
    text.trim().to_owned()
}

fn set_up(room: &Room) -> [String; 2] {
    fs::write(room.path("bindings.toml"), BINDINGS).unwrap();
    yes(admin(room, &["auth", "apply", "--file", "bindings.toml"]));
    [token(room, "node:web-1", "web-1.token"), token(room, "user:alice", "alice.token")]
}

const CAMPAIGN: [&str; 10] = [
    "campaign",
    "billing",
    "--node",
    "web-1",
    "--session-file",
    "s",
    "--ttl",
    "60s",
    "--token-file",
    "web-1.token",
];

fn verify(room: &Room, more: &[&str]) -> (i32, serde_json::Value) {
    let flags = ["audit", "verify", "--dir", "data", "--output", "json"];
    let ended = room.run(&[&flags[..], more].concat());
    (ended.code, json(&ended.stdout))
}

#[test]
fn the_log_tells_who_did_what_survives_a_kill_and_shows_an_edit() {
    let room = Room::new();
    yes(room.run(&["fence", "keys", "new", "signing.keys"]));
    let published = yes(room.run(&["fence", "keys", "publish", "signing.keys"]));
    fs::write(room.path("keys.json"), published).unwrap();
    let server = guarded(&room, &[]);
    set_up(&room);
    yes(server.ask(&room, &CAMPAIGN));
    let step_down = ["step-down", "billing", "--reason", "night shift", "--yes", "--immediate"];
    for _ in 0..3 {
        let flags = [&step_down[..], &["--token-file", "web-1.token"]].concat();
        assert_eq!(server.ask(&room, &flags).code, REFUSED);
    }
    yes(server.ask(&room, &[&step_down[..], &["--token-file", "alice.token"]].concat()));
    // Lines are written beside the requests: the last one is there before the kill.
    process::until("the step-down is written", || {
        let shown = room.run(&["audit", "show", "--dir", "data", "--who", "user:alice"]);
        shown.stdout.contains("step_down")
    });
    server.kill();

    let mut server = guarded(&room, &[]);
    let denied = server.ask(&room, &["leader", "billing"]);
    assert_eq!(denied.code, REFUSED, "{denied:?}");
    server.signal("TERM");
    assert_eq!(server.wait(), 0);

    let shown = yes(room.run(&["audit", "show", "--dir", "data", "--group", "billing"]));
    let line = |part: &str| {
        let found = shown.lines().find(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("no {part} in {shown}")).to_owned()
    };
    let won = line("change  node:web-1 from 127.0.0.1  campaign  OK");
    assert!(won.contains("revision=") && won.contains("right=stand"), "{won}");
    let denied = line("denied  node:web-1 from 127.0.0.1  stepDown  FORBIDDEN");
    assert!(denied.contains("right=operate"), "{denied}");
    let ended = line("change  user:alice from 127.0.0.1  step_down  OK");
    assert!(ended.contains("detail=immediate; night shift"), "{ended}");
    // A stranger's denial is told without the group: strangers name what they like.
    let all = yes(room.run(&["audit", "show", "--dir", "data"]));
    assert!(all.contains("denied  - from 127.0.0.1  leader  UNAUTHENTICATED"), "{all}");
    let made = yes(room.run(&["audit", "show", "--dir", "data/audit", "--output", "json"]));
    let own = format!("unix uid {}", fs::metadata(room.path("data")).unwrap().uid());
    assert!(made.contains(&own) && made.contains("create_token"), "{made}");

    // The kill is told, and the chain holds and is signed.
    let keys = ["--keys", "keys.json"];
    let (code, report) = verify(&room, &keys);
    assert_eq!((code, report["intact"].as_bool()), (0, Some(true)), "{report}");
    assert_eq!(report["complete"], false, "{report}");
    assert_eq!(report["missing"][0]["kind"], "killed", "{report}");
    let head = report["head"].as_str().unwrap().to_owned();
    let last: u64 = head.split(':').next().unwrap().parse().unwrap();
    assert_eq!(report["signed_to"].as_u64(), Some(last - 1), "{report}");

    let file = room.path("data/audit/audit-00000001.jsonl");
    let whole = fs::read_to_string(&file).unwrap();
    // Alice would rather have been somebody else.
    fs::write(&file, whole.replace("night shift", "fire drill")).unwrap();
    let (code, report) = verify(&room, &[]);
    assert_eq!((code, report["intact"].as_bool()), (TAMPERED, Some(false)), "{report}");
    // Or have the last lines gone: the chain holds, but not for those who kept its head.
    let lines: Vec<&str> = whole.lines().collect();
    fs::write(&file, lines[..lines.len() - 4].join("\n") + "\n").unwrap();
    assert_eq!(verify(&room, &[]).0, 0);
    let (code, report) = verify(&room, &["--head", &head]);
    assert_eq!(code, TAMPERED, "{report}");
    assert!(report["defects"][0].as_str().unwrap().contains("cut off"), "{report}");
    let nothing = room.run(&["audit", "verify", "--dir", "."]);
    assert_eq!(nothing.code, 74, "{nothing:?}");
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => files(&path),
            // A socket cannot be read.
            false => path.is_file().then_some(path).into_iter().collect(),
        })
        .collect()
}

#[test]
fn no_secret_of_a_run_is_in_a_log_an_error_a_history_a_metric_a_file_or_an_argument() {
    let room = Room::new();
    yes(room.run(&["fence", "keys", "new", "signing.keys"]));
    let server = guarded(&room, &["--log-level", "trace", "--segment-bytes", "65536"]);
    let [web, alice] = set_up(&room);
    let told = RefCell::new(String::new());
    let hear = |ended: Ended| told.borrow_mut().push_str(&format!("{ended:?}\n"));
    hear(server.ask(&room, &CAMPAIGN));
    let session = fs::read_to_string(room.path("s")).unwrap();
    let session = json(&session)["session_id"].as_str().unwrap().to_owned();
    // Renewed, denied, refused, mistyped, resigned with a token that is over.
    let with = |arguments: &[&str], file: &str| {
        server.ask(&room, &[arguments, &["--token-file", file]].concat())
    };
    let renew = ["renew", "billing", "--session-file", "s"];
    hear(with(&renew, "web-1.token"));
    hear(with(&renew, "alice.token"));
    hear(with(&["step-down", "billing", "--reason", "x", "--yes"], "web-1.token"));
    hear(with(&["step-down", "nothing", "--reason", "x", "--yes"], "alice.token"));
    let forged = format!("{}x", &web[..web.len() - 1]);
    fs::write(room.path("forged.token"), &forged).unwrap();
    fs::set_permissions(room.path("forged.token"), Permissions::from_mode(0o600)).unwrap();
    hear(with(&renew, "forged.token"));
    let guessed = format!(r#"{{"session_id":"{session}","term":1}}"#);
    told.borrow_mut().push_str(&server.post("/v1/groups/billing/renew", &guessed));
    hear(with(&["history", "billing"], "web-1.token"));
    hear(with(&["group", "show", "billing", "--output", "json"], "alice.token"));
    hear(admin(&room, &["auth", "token", "list"]));
    hear(admin(&room, &["auth", "token", "revoke", web.split('_').nth(1).unwrap()]));
    hear(with(&renew, "web-1.token"));
    hear(with(&["resign", "billing", "--session-file", "s"], "web-1.token"));
    told.borrow_mut().push_str(&server.get_as("/metrics", &alice));
    let line = fs::read(format!("/proc/{}/cmdline", server.id())).unwrap();
    told.borrow_mut().push_str(&String::from_utf8_lossy(&line));
    let environment = fs::read(format!("/proc/{}/environ", server.id())).unwrap_or_default();
    told.borrow_mut().push_str(&String::from_utf8_lossy(&environment));
    let log = server.log();
    drop(server);

    // The secret part alone would be enough to guess the rest; so would half of it.
    let part = |token: &str| token.split('_').nth(2).unwrap()[..20].to_owned();
    let secrets = [part(&web), part(&alice), session[..20].to_owned()];
    let own = ["s", "web-1.token", "alice.token", "forged.token"].map(|name| room.path(name));
    let mut searched = vec![
        ("what was told".to_owned(), told.into_inner().into_bytes()),
        ("the log".to_owned(), log.into_bytes()),
    ];
    for file in files(&room.path("")).into_iter().filter(|file| !own.contains(file)) {
        searched.push((file.display().to_string(), fs::read(&file).unwrap()));
    }
    for (place, bytes) in &searched {
        for secret in &secrets {
            let is_there = bytes.windows(secret.len()).any(|it| it == secret.as_bytes());
            assert!(!is_there, "{place} holds a secret");
        }
    }
    // The search would have found them: what was done is there.
    let seen = |place: &str, part: &str| {
        let found = searched.iter().find(|(name, _)| name.contains(place));
        let (_, bytes) = found.unwrap_or_else(|| panic!("{place} was not searched"));
        assert!(bytes.windows(part.len()).any(|it| it == part.as_bytes()), "{part} in {place}");
    };
    for (place, part) in [
        ("what was told", "the credential is revoked"),
        ("what was told", "regent_audit_lines"),
        ("what was told", "--auth"),
        ("the log", "denied"),
        ("audit-00000001", "FORBIDDEN"),
        ("wal-", "billing"),
        ("flight", "billing"),
    ] {
        seen(place, part);
    }
}
