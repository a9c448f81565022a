//! `regent fence` as a process: fences that hold, fences that do not, and one in a real PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use process::Room;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn files_pass_and_nothing_is_left_of_the_trials() {
    let room = Room::new();
    std::fs::create_dir(room.path("here")).unwrap();
    let url = format!("file://{}", room.text("here"));
    let ended = room.run(&["fence", "test", &url, "--trials", "200", "-o", "json"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let told = json(&ended.stdout);
    assert_eq!((&told["verdict"], &told["trials"]), (&"pass".into(), &200.into()), "{told}");
    assert_eq!(told["stale_writes"], 0);
    assert!(told["refused"].as_u64().unwrap() > 50, "{told}");

    let unfenced = ["fence", "test", &url, "--trials", "200", "--unfenced", "--seed", "7"];
    let ended = room.run(&unfenced);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stdout.contains("was accepted after one under term"), "{ended:?}");
    assert!(ended.stdout.contains("--seed 7 --unfenced"), "{ended:?}");
    assert_eq!(std::fs::read_dir(room.path("here")).unwrap().count(), 0);
}

/// How a server of ours is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    NotAtAll,
    /// It compares when it has read the head, and writes when it has read the body.
    ComparesTooEarly,
    /// It compares with what is written now and remembers nothing of what was refused or deleted.
    NoFence,
    /// It refuses everybody.
    Closed,
}

type Rows = Arc<Mutex<BTreeMap<String, (u64, String)>>>;

/// A storage over HTTP that somebody wrote in an afternoon; its address.
fn storage(wrong: Wrong) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/things", listener.local_addr().unwrap());
    let rows = Rows::default();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let rows = Arc::clone(&rows);
            std::thread::spawn(move || serve(stream, wrong, &rows));
        }
    });
    url
}

fn serve(stream: TcpStream, wrong: Wrong, rows: &Rows) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let header = |name: &str| {
        lines.iter().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let (method, rest) = lines.first()?.split_once(' ')?;
    let path = rest.split(' ').next()?.to_owned();
    let given: u64 = header("regent-term").and_then(|term| term.parse().ok()).unwrap_or_default();
    let refused = |current: u64| {
        let body = format!("STALE_TERM: term {given} < current {current}");
        ("409 Conflict", body)
    };
    let mark = || rows.lock().unwrap().get(&path).map_or(0, |row| row.0);
    let early = (wrong == Wrong::ComparesTooEarly && given < mark()).then(|| refused(mark()));
    let mut body = vec![0; header("content-length").and_then(|it| it.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let value = String::from_utf8(body).ok()?;
    let (status, answer) = match (method, wrong, early) {
        ("GET", _, _) => match rows.lock().unwrap().get(&path) {
            Some(row) => ("200 OK", row.1.clone()),
            None => ("404 Not Found", String::new()),
        },
        (_, Wrong::Closed, _) => ("403 Forbidden", "no".to_owned()),
        (_, _, Some(refusal)) => refusal,
        (_, wrong, None) => {
            let mut rows = rows.lock().unwrap();
            let row = rows.entry(path).or_default();
            if wrong == Wrong::NotAtAll && given < row.0 {
                refused(row.0)
            } else {
                *row = (given.max(row.0), value);
                ("204 No Content", String::new())
            }
        }
    };
    let length = answer.len();
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{answer}"
    )
    .ok()
}

#[test]
fn a_storage_of_somebody_elses_passes_by_the_contract() {
    let room = Room::new();
    let url = storage(Wrong::NotAtAll);
    let ended = room.run(&["fence", "test", &url, "--trials", "200", "-o", "json"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(json(&ended.stdout)["verdict"], "pass");
}

#[test]
fn a_storage_that_compares_before_it_has_the_body_is_caught() {
    let room = Room::new();
    let url = storage(Wrong::ComparesTooEarly);
    let ended = room.run(&["fence", "test", &url, "--trials", "300", "--seed", "3", "-o", "json"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    let told = json(&ended.stdout);
    assert!(told["refused"].as_u64().unwrap() > 0, "it looks like a fence: {told}");
    assert!(told["stale_writes"].as_u64().unwrap() > 0, "{told}");
    assert_eq!(told["seed"], 3);
    let code = told["told"][0]["code"].as_str().unwrap();
    assert!(code.starts_with("STALE_"), "{told}");
}

#[test]
fn a_storage_without_a_fence_is_shown_its_stale_write() {
    let room = Room::new();
    let ended = room.run(&["fence", "test", &storage(Wrong::NoFence), "--trials", "100"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stdout.contains("a write under term"), "{ended:?}");
    assert!(ended.stdout.contains("fail: http, fenced: 100 trials"), "{ended:?}");
}

#[test]
fn nothing_is_concluded_from_a_target_that_does_nothing() {
    let room = Room::new();
    let ended = room.run(&["fence", "test", &storage(Wrong::Closed), "--trials", "20"]);
    assert_eq!(ended.code, 69, "{ended:?}");
    assert!(ended.stdout.contains("void"), "{ended:?}");
    assert!(ended.stderr.contains("403"), "{ended:?}");
    let nobody = room.run(&["fence", "test", "http://127.0.0.1:1/x", "--trials", "20"]);
    assert_eq!(nobody.code, 69, "{nobody:?}");
}

#[test]
fn what_cannot_be_a_target_is_refused_and_shows_no_secret() {
    let room = Room::new();
    for (target, code, told) in [
        ("zebra://me:secret@x", 64, "known are"),
        ("file://relative", 64, "three slashes"),
        ("https://host/x", 64, "no TLS"),
        ("exec:/no/such/program", 69, "does not start"),
        ("file:///no/such/directory", 74, "regent-trial"),
    ] {
        let ended = room.run(&["fence", "test", target]);
        assert_eq!(ended.code, code, "{target}: {ended:?}");
        assert!(ended.stderr.contains(told), "{target}: {ended:?}");
        assert!(!ended.stderr.contains("secret"), "{ended:?}");
    }
}

/// A writer in the shell: files in its own directory, under a lock that `mkdir` makes.
const WRITER: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 1
field() { printf '%s' "$line" | sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }
while IFS= read -r line; do
  r=$(field read)
  if [ -n "$r" ]; then
    if [ -f "$r" ]; then printf '{"value":"%s"}\n' "$(cat "$r")"; else echo '{"value":null}'; fi
    continue
  fi
  r=$(field write); term=$(field term); value=$(field value)
  until mkdir "$r.lock" 2>/dev/null; do :; done
  mark=$(cat "$r.term" 2>/dev/null || echo 0)
  if COMPARE; then
    answer="{\"stale\":{\"given\":$term,\"current\":$mark}}"
  else
    echo "$term" > "$r.term"; printf '%s' "$value" > "$r.next"; mv "$r.next" "$r"
    answer='{"done":true}'
  fi
  rmdir "$r.lock"
  echo "$answer"
done
"#;

fn writer(room: &Room, name: &str, compare: &str) -> String {
    let path = room.path(name);
    std::fs::create_dir(&path).unwrap();
    let program = path.join("writer");
    std::fs::write(&program, WRITER.replace("COMPARE", compare)).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("exec:{}", program.display())
}

#[test]
fn a_program_of_somebody_elses_is_tried_in_its_own_language() {
    let room = Room::new();
    let honest = writer(&room, "honest", "[ \"$term\" -lt \"$mark\" ]");
    let ended = room.run(&["fence", "test", &honest, "--trials", "60", "-o", "json"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(json(&ended.stdout)["verdict"], "pass");
    // The same with the comparison the wrong way round by one.
    let broken = writer(&room, "broken", "[ \"$term\" -lt \"$((mark - 1))\" ]");
    let ended = room.run(&["fence", "test", &broken, "--trials", "60", "-o", "json"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(json(&ended.stdout)["stale_writes"].as_u64().unwrap() > 0, "{ended:?}");
}

#[cfg(not(feature = "postgres"))]
#[test]
fn without_a_driver_the_sql_is_shown_and_nothing_is_installed() {
    let room = Room::new();
    let url = "postgres://me:secret@db/shop";
    let shown = room.run(&["fence", "install", url, "--table", "orders", "--dry-run"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.stdout.contains("EXECUTE FUNCTION regent.guard_table('public.orders')"));
    let ended = room.run(&["fence", "install", url, "--table", "orders"]);
    assert_eq!(ended.code, 78, "{ended:?}");
    assert!(ended.stderr.contains("--features postgres"), "{ended:?}");
    let bad = room.run(&["fence", "install", url, "--table", "a.b.c", "--dry-run"]);
    assert_eq!(bad.code, 64, "{bad:?}");
    let other = room.run(&["fence", "install", "redis://x", "--table", "a"]);
    assert_eq!(other.code, 64, "{other:?}");
}

#[cfg(feature = "postgres")]
#[test]
fn a_fence_is_installed_tried_and_removed_in_a_real_database() {
    let Some(server) =
        regent_servers::or_skip("fence postgres", regent_servers::postgres::postgres())
    else {
        return;
    };
    let room = Room::new();
    let url = server.url.as_str();
    let install = |more: &[&str]| room.run(&[&["fence", "install", url], more].concat());
    let missing = install(&["--table", "public.nowhere"]);
    assert_eq!(missing.code, 77, "{missing:?}");
    assert!(missing.stderr.contains("there is no table public.nowhere"), "{missing:?}");
    let own = install(&["--table", "regent.fence"]);
    assert_eq!(own.code, 64, "{own:?}");
    // Makes a table that can be fenced.
    let table = "public.regent_entries";
    assert_eq!(room.run(&["doctor", "--store", url]).code, 0);
    let tried = room.run(&["fence", "test", url, "--trials", "100", "-o", "json"]);
    assert_eq!(tried.code, 0, "{tried:?}");
    assert_eq!(json(&tried.stdout)["verdict"], "pass");
    for _ in 0..2 {
        let done = install(&["--table", table, "--key", "name", "-o", "json"]);
        assert_eq!(done.code, 0, "it may be run again: {done:?}");
        assert_eq!(json(&done.stdout)["mark_per"], "row");
    }
    let shown = install(&["--table", table, "--dry-run"]);
    assert!(shown.code == 0 && shown.stdout.contains("CREATE TRIGGER"), "{shown:?}");
    let fenced = room.run(&["doctor", "--store", url]);
    assert_ne!(fenced.code, 0, "whoever writes without a term is refused: {fenced:?}");
    assert!(fenced.stderr.contains("NO_TERM") || fenced.stdout.contains("NO_TERM"), "{fenced:?}");
    let removed = install(&["--table", table, "--remove"]);
    assert_eq!(removed.code, 0, "{removed:?}");
    assert_eq!(room.run(&["doctor", "--store", url]).code, 0);
    let column = install(&["--table", table, "--key", "nothing"]);
    assert_eq!(column.code, 77, "{column:?}");
    assert!(column.stderr.contains("has no column nothing"), "{column:?}");
    let again = room.run(&["fence", "test", url, "--trials", "50", "--unfenced"]);
    assert_eq!(again.code, 1, "{again:?}");
    regent_servers::report("fence install", &server.version, 1, 0, "installed, tried, removed");
}
