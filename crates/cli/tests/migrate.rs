//! A group that moves between stores, as an operator and the programs that it elects meet it.

#![allow(clippy::unwrap_used, reason = "a test may")]
#![cfg(target_os = "linux")]

mod process;

use process::recorder::Recorder;
use process::{Ended, Room, Server, json, until};

fn store(room: &Room) -> String {
    format!("file://{}", room.path("elections").display())
}

fn migrate(room: &Room, from: &str, to: &str, more: &[&str]) -> Ended {
    let fixed = ["migrate", "--from", from, "--to", to, "--group", "billing", "--output", "json"];
    room.run(&[&fixed, more].concat())
}

/// Moves it, and gives what was printed.
fn moved(room: &Room, from: &str, to: &str, more: &[&str]) -> serde_json::Value {
    let ended = migrate(room, from, to, more);
    assert_eq!(ended.code, 0, "{ended:?}");
    json(&ended.stdout)
}

fn door(server: &Server, room: &Room) -> String {
    let shown = server.yes(room, &["group", "show", "billing", "--output", "json"]);
    json(&shown)["door"]["state"].as_str().unwrap().to_owned()
}

/// A ttl that a busy machine keeps; and programs that do not stop by themselves are not waited for longer than this.
const FLAGS: [&str; 4] = ["--ttl", "8s", "--drain", "1s"];

/// A program that runs where its group is, a standby that comes after it, and a move in each direction: at no
/// instant do two programs run, and every start has a higher term.
#[test]
fn programs_follow_their_group_to_another_store_and_back() {
    let room = Room::new();
    let (server, url) = (room.server(), store(&room));
    let recorder = Recorder::new(&room);
    let flags = [&FLAGS[..], &["--follow-to", &url]].concat();
    let a = recorder.run(&server, "a", &flags, &["tree", "3"]);
    recorder.await_line("deep", "a");
    let b = recorder.run(&server, "b", &flags, &["tree", "3"]);
    until("b stands", || server.standbys(&room, "billing") == 1);

    let first = moved(&room, &server.url, &url, &["--heir-wait", "20s"]);
    assert_eq!((&first["led_by"], &first["last_term"]), (&"a".into(), &1.into()), "{first}");
    // The leader comes first, if its program stops in time; on a busy machine it may not, and the standby leads.
    until("one of them runs", || {
        recorder.count("deep", "a") >= 2 || recorder.count("deep", "b") >= 1
    });
    let is_a = recorder.count("deep", "a") >= 2;
    let (next, mut ended, mut left) = if is_a { ("b", a, b) } else { ("a", b, a) };
    assert_eq!(door(&server, &room), "moved");
    let office = json(&server.ask(&room, &["leader", "billing", "--output", "json"]).stdout);
    assert_eq!(office["moved_to"], url, "{office}");
    // Whoever comes late is told where to go, and goes.
    let late = server.ask(&room, &["campaign", "billing", "--node", "late"]);
    assert_eq!(late.code, 77, "{late:?}");
    assert!(late.stderr.contains(&url), "{late:?}");

    let before = recorder.count("deep", next);
    ended.signal("KILL");
    ended.wait();
    until("the other one runs", || recorder.count("deep", next) > before);
    let back = moved(&room, &url, &server.url, &["--heir-wait", "20s"]);
    assert_eq!(back["led_by"], next, "{back}");
    until("it runs again", || recorder.count("deep", next) > before + 1);
    assert_eq!(door(&server, &room), "open");
    let leader = json(&server.yes(&room, &["leader", "billing", "--output", "json"]));
    assert_eq!(leader["leader"], next, "{leader}");
    left.signal("TERM");
    left.wait();
    recorder.check(4);
}

/// Somebody who may write to a store sends its programs to a store of their own, which pretends that it was told of the
/// move and has granted nothing yet: a term that was granted before is not believed, and nothing runs under it.
#[test]
fn a_store_that_grants_a_term_once_more_is_not_believed() {
    let is_judged = (0..5).any(|_| a_term_is_granted_once_more());
    assert!(is_judged, "each of five grants lapsed before the process heard of it");
}

/// False if the process did not hear of the grant within a third of its ttl: the store then passes it over and grants the
/// next term, which is above, as the test's machine may be too busy for anything else.
fn a_term_is_granted_once_more() -> bool {
    let room = Room::new();
    let (server, hostile) = (room.server(), room.serve("127.0.0.1:0", &["--store", "memory:"]));
    let recorder = Recorder::new(&room);
    let mut a = recorder.run(&server, "a", &FLAGS, &["tree", "3"]);
    recorder.await_line("deep", "a");
    let step = |to: &Server, body: String| json(&to.post("/v1/groups/billing/move", &body));
    let expected = step(&hostile, format!(r#"{{"step":"expect","from":"{}"}}"#, server.url));
    let departed = step(&server, format!(r#"{{"step":"depart","to":"{}"}}"#, hostile.url));
    assert_eq!(departed["door"]["state"], "moved", "{departed}");
    until("it stands there", || hostile.standbys(&room, "billing") == 1);
    let since = &expected["door"]["since"];
    step(&hostile, format!(r#"{{"step":"arrive","since":{since},"above":0}}"#));
    let refused = "term 1 of billing is not above 1";
    until("it believes or refuses", || {
        a.errors().contains(refused) || recorder.count("deep", "a") > 1
    });
    if !a.errors().contains(refused) {
        let office = json(&hostile.get("/v1/groups/billing/leader"));
        assert!(office["term"].as_u64().unwrap() > 1, "{office}: {}", a.errors());
        a.signal("TERM");
        a.wait();
        return false;
    }
    assert_eq!(a.wait(), 77, "{}", a.errors());
    assert_eq!(recorder.count("deep", "a"), 1, "it ran once");
    true
}

/// The same with a store that was told nothing: it hears nothing of the group either.
#[test]
fn a_program_does_not_follow_to_a_store_that_does_not_expect_its_group() {
    let room = Room::new();
    let (server, unrelated) = (room.server(), room.serve("127.0.0.1:0", &["--store", "memory:"]));
    let recorder = Recorder::new(&room);
    let mut a = recorder.run(&server, "a", &FLAGS, &["tree", "3"]);
    recorder.await_line("deep", "a");
    let body = format!(r#"{{"step":"depart","to":"{}"}}"#, unrelated.url);
    server.post("/v1/groups/billing/move", &body);
    until("it says so", || a.errors().contains("the store there neither expects billing"));
    let groups = json(&unrelated.get("/v1/groups"));
    assert_eq!(groups["groups"], serde_json::json!([]), "{groups}");
    a.signal("TERM");
    a.wait();
    assert_eq!(recorder.count("deep", "a"), 1, "it ran once");
}

/// A place that the operator of a program has not allowed is not gone to.
#[test]
fn a_program_does_not_follow_to_a_host_that_its_operator_has_not_allowed() {
    let room = Room::new();
    let server = room.server();
    let recorder = Recorder::new(&room);
    let mut a = recorder.run(&server, "a", &FLAGS, &["tree", "3"]);
    recorder.await_line("deep", "a");
    let body = r#"{"step":"depart","to":"http://192.0.2.1:7400"}"#;
    server.post("/v1/groups/billing/move", body);
    until("it says so", || a.errors().contains("it may follow only to the hosts"));
    a.signal("TERM");
    a.wait();
}

#[test]
fn a_move_that_was_interrupted_is_finished_by_the_same_command_and_turned_round_by_the_opposite() {
    let room = Room::new();
    let (server, url) = (room.server(), store(&room));
    let won = ["campaign", "billing", "--node", "a", "--session-file", "a", "--ttl", "60s"];
    server.yes(&room, &won);
    // The holder neither stops nor renews: the move may not go on before its ttl is over.
    let stopped = migrate(&room, &server.url, &url, &["--timeout", "1s"]);
    assert_eq!(stopped.code, 77, "{stopped:?}");
    assert!(stopped.stderr.contains("say the same again"), "{stopped:?}");
    assert_eq!(door(&server, &room), "moved");
    let elsewhere = server.ask(&room, &["campaign", "billing", "--node", "b"]);
    assert!(elsewhere.stderr.contains(&url), "{elsewhere:?}");
    let other = room.serve("127.0.0.1:0", &["--store", &url]);
    let early = other.ask(&room, &["campaign", "billing", "--node", "c"]);
    assert_eq!(early.code, 1, "nobody is elected while it is on its way: {early:?}");
    // The holder confirms, and the same command goes on where it stopped.
    server.yes(&room, &["resign", "billing", "--session-file", "a"]);
    let first = moved(&room, &server.url, &url, &[]);
    assert_eq!(first["last_term"], 1, "{first}");
    let again = moved(&room, &server.url, &url, &[]);
    assert_eq!(again["last_term"], 1, "{again}");
    let won = other.yes(&room, &["campaign", "billing", "--node", "c", "--output", "json"]);
    assert_eq!(json(&won)["term"], 2, "{won}");
    // To two places at once it cannot go; back it can, its leader's ttl being over.
    let third = format!("file://{}", room.path("third").display());
    let refused = migrate(&room, &server.url, &third, &[]);
    assert_eq!(refused.code, 77, "{refused:?}");
    // Nor can a store that it never went to give it away, or it come back from where it is not.
    let refused = migrate(&room, &third, &server.url, &[]);
    assert!(refused.code == 77 && refused.stderr.contains("has moved to"), "{refused:?}");
    moved(&room, &url, &server.url, &[]);
    let won = server.yes(&room, &["campaign", "billing", "--node", "d", "--output", "json"]);
    assert_eq!(json(&won)["term"], 3, "{won}");
    assert_eq!(server.ask(&room, &["group", "delete", "billing", "--yes"]).code, 0);
    assert_eq!(other.ask(&room, &["group", "delete", "billing", "--yes"]).code, 77);
}

/// The leader is dead, nobody else takes part, and the command that told it to stop was given up: the next one
/// must see to it that the old office ends all the same.
#[test]
fn a_move_away_from_a_store_that_nobody_looks_after_is_finished_by_the_same_command() {
    let room = Room::new();
    let (server, url) = (room.server(), store(&room));
    let recorder = Recorder::new(&room);
    let flags = ["--ttl", "4s", "--store", &url];
    let mut a = recorder.run_at("http://127.0.0.1:1", "a", &flags, &["meek"]);
    recorder.await_line("start", "a");
    a.signal("KILL");
    a.wait();
    let stopped = migrate(&room, &url, &server.url, &["--timeout", "500ms"]);
    assert_eq!(stopped.code, 77, "{stopped:?}");
    let first = moved(&room, &url, &server.url, &["--heir-wait", "1ms"]);
    assert_eq!(first["last_term"], 1, "{first}");
    let won = server.yes(&room, &["campaign", "billing", "--node", "b", "--output", "json"]);
    assert_eq!(json(&won)["term"], 2, "{won}");
    // Restored from before the move, a store is closed again without touching the new one.
    let closed = format!("file://{}", room.path("restored").display());
    moved(&room, &closed, &server.url, &["--close-only"]);
    let again = room.serve("127.0.0.1:0", &["--store", &closed]);
    let late = again.ask(&room, &["campaign", "billing", "--node", "c"]);
    assert!(late.code == 77 && late.stderr.contains(&server.url), "{late:?}");
}

#[test]
fn a_move_that_makes_no_sense_is_refused_before_anything_happens() {
    let room = Room::new();
    let (server, url) = (room.server(), store(&room));
    server.yes(&room, &["campaign", "billing", "--node", "a"]);
    let other = room.serve("127.0.0.1:0", &["--store", &url]);
    let weaker = room.serve("127.0.0.1:0", &["--store", "memory:"]);
    let alias = server.url.replace("127.0.0.1", "localhost");
    for (from, to, code, part) in [
        (server.url.as_str(), weaker.url.as_str(), 77, "--allow-weaker"),
        (&server.url, &server.url, 64, "the same store"),
        (&server.url, "memory:", 78, "one process alone"),
        (&server.url, "zebra://x", 78, "zebra"),
        (&server.url, &alias, 77, "two names of the same store"),
    ] {
        let ended = migrate(&room, from, to, &[]);
        assert_eq!(ended.code, code, "{from} {to}: {ended:?}");
        assert!(ended.stderr.contains(part), "{from} {to}: {ended:?}");
    }
    assert_eq!(door(&server, &room), "open");
    // Nobody leads the other store's group, so only the move itself can find out that both are one.
    other.yes(&room, &["group", "create", "billing"]);
    let ended = migrate(&room, &other.url, &url, &[]);
    assert!(ended.stderr.contains("two names of the same store"), "{ended:?}");
    assert_eq!(door(&other, &room), "open");
}

/// The steps by hand, up to the point where the old office is vacant: by then its leader stands in the new store,
/// so that nothing is left to wait for but the arrival.
#[test]
fn a_leader_stands_in_the_new_store_before_it_gives_up_its_term_in_the_old_one() {
    let room = Room::new();
    let (server, url) = (room.server(), store(&room));
    let new = room.serve("127.0.0.1:0", &["--store", &url]);
    let recorder = Recorder::new(&room);
    let mut a = recorder.run(&server, "a", &["--ttl", "20s", "--follow-to", &url], &["meek"]);
    recorder.await_line("start", "a");
    let path = "/v1/groups/billing/move";
    let expected = new.post(path, &format!(r#"{{"step": "expect", "from": "{}"}}"#, server.url));
    assert_eq!(json(&expected)["door"]["state"], "expected", "{expected}");
    let departed = server.post(path, &format!(r#"{{"step": "depart", "to": "{url}"}}"#));
    assert_eq!(json(&departed)["door"]["state"], "moved", "{departed}");
    until("the old office is vacant", || {
        json(&server.get("/v1/groups/billing/leader"))["state"] == "vacant"
    });
    let group = json(&new.get("/v1/groups/billing"));
    assert_eq!(group["standbys"][0]["node_id"], "a", "{group}");
    assert_eq!(
        group["leader"],
        serde_json::Value::Null,
        "nobody is granted before it arrives: {group}"
    );
    a.signal("TERM");
    a.wait();
}
