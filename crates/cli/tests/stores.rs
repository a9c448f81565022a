//! Elections on a store that is not our own, as an operator meets them: several servers without any
//! state on one store, and the examination of a deployment before it is trusted.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

#[cfg(target_os = "linux")]
use process::recorder::Recorder;
use process::{Room, fact, json};

fn store(room: &Room) -> String {
    format!("file://{}", room.path("elections").display())
}

#[test]
fn servers_on_one_store_are_one_service() {
    let room = Room::new();
    let url = store(&room);
    let one = room.serve("127.0.0.1:0", &["--store", &url]);
    let other = room.serve("127.0.0.1:0", &["--store", &url]);
    let won = one.yes(&room, &["campaign", "billing", "--node", "a", "--session-file", "a"]);
    assert_eq!(fact(&won, "term"), "1");
    let lost = other.ask(&room, &["campaign", "billing", "--node", "b"]);
    assert_eq!(lost.code, 1, "{lost:?}");
    assert_eq!(fact(&lost.stdout, "leader"), "a");
    // What one server opened is renewed at the other, and outlives the first.
    one.kill();
    other.yes(&room, &["renew", "billing", "--session-file", "a"]);
    other.yes(&room, &["resign", "billing", "--session-file", "a"]);
    let won = other.yes(&room, &["campaign", "billing", "--node", "b"]);
    assert_eq!(fact(&won, "term"), "2");
    other.kill();
    let again = room.serve("127.0.0.1:0", &["--store", &url]);
    let leader = again.yes(&room, &["leader", "billing", "--output", "json"]);
    assert_eq!((&json(&leader)["leader"], &json(&leader)["term"]), (&"b".into(), &2.into()));
}

#[test]
fn a_leader_whose_server_dies_with_it_is_succeeded_through_another() {
    let room = Room::new();
    let url = store(&room);
    let one = room.serve("127.0.0.1:0", &["--store", &url]);
    let other = room.serve("127.0.0.1:0", &["--store", &url]);
    one.yes(&room, &["campaign", "billing", "--node", "a", "--ttl", "1s"]);
    let standby =
        other.start(&room, &["campaign", "billing", "--node", "b", "--ttl", "1s", "--keep"]);
    standby.line_with("standing by");
    one.kill();
    let line = standby.line_with("b leads");
    assert!(line.contains("term 2"), "{line}");
}

/// No server anywhere: the wrappers meet on the store itself. One is stopped past its ttl, the next one is
/// killed, and at no instant do two programs run.
#[cfg(target_os = "linux")]
#[test]
fn programs_are_elected_on_a_store_with_no_server_between() {
    const NO_SERVER: &str = "http://127.0.0.1:1";
    let room = Room::new();
    let url = store(&room);
    let flags = ["--ttl", "2s", "--store", &url];
    let recorder = Recorder::new(&room);
    let mut a = recorder.run_at(NO_SERVER, "a", &flags, &["tree", "3"]);
    recorder.await_line("deep", "a");
    let mut b = recorder.run_at(NO_SERVER, "b", &flags, &["tree", "3"]);
    a.signal("STOP");
    recorder.await_line("deep", "b");
    a.signal("CONT");
    b.signal("KILL");
    b.wait();
    process::until("a starts again", || recorder.count("start", "a") >= 2);
    let started = std::time::Instant::now();
    a.signal("TERM");
    a.wait();
    let mut c = recorder.run_at(NO_SERVER, "c", &["--ttl", "60s", "--store", &url], &["meek"]);
    recorder.await_line("start", "c");
    assert!(started.elapsed().as_secs() < 50, "an office that was given up is free at once");
    c.signal("TERM");
    assert_eq!(c.wait(), 5, "{}", c.errors());
    recorder.check(4);
}

#[cfg(target_os = "linux")]
#[test]
fn a_store_that_cannot_hold_an_election_for_others_is_refused_before_anybody_stands() {
    let room = Room::new();
    let url = store(&room);
    for (flags, code, part) in [
        (&["--store", "memory:"][..], 78, "one process alone"),
        (&["--store", "local:data"], 78, "regent migrate"),
        (&["--store", "zebra://a:secret@b"], 78, "names no store"),
        (&["--store", &url, "--fence-previous", "true"], 64, "keeps no history"),
    ] {
        let arguments = [&["run", "-g", "billing"], flags, &["--", "true"]].concat();
        let ended = room.run(&arguments);
        assert_eq!(ended.code, code, "{flags:?}: {ended:?}");
        assert!(ended.stderr.contains(part), "{flags:?}: {ended:?}");
        assert!(!ended.stderr.contains("secret"), "{ended:?}");
    }
}

#[test]
fn a_sound_deployment_is_certified_and_a_wrong_one_is_told() {
    let room = Room::new();
    let url = store(&room);
    let ended = room.run(&["doctor", "--store", &url, "--output", "json"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let report = json(&ended.stdout);
    assert_eq!((&report["store"], &report["keeps_the_contract"]), (&"file".into(), &true.into()));
    let checks = report["checks"].as_array().unwrap();
    let held = checks.iter().filter(|check| check["result"] == "held").count();
    assert!(held >= 15, "{held} of {}", checks.len());
    for (url, code, part) in [
        ("memory:", 78, "one process alone"),
        ("zebra://a:secret@b", 78, "names no store"),
        ("file:", 78, "no directory is named"),
        ("file:///proc/nowhere", 78, "cannot make"),
    ] {
        let ended = room.run(&["doctor", "--store", url]);
        assert_eq!(ended.code, code, "{url}: {ended:?}");
        assert!(ended.stderr.contains(part), "{url}: {ended:?}");
        assert!(!ended.stderr.contains("secret"), "{ended:?}");
    }
}

#[test]
fn every_store_is_listed_with_what_it_claims() {
    let room = Room::new();
    let listed = json(&room.run(&["store", "list", "--output", "json"]).stdout);
    let find = |name: &str| {
        let rows = listed.as_array().unwrap();
        rows.iter().find(|row| row["store"] == name).unwrap().clone()
    };
    assert_eq!(find("replica")["level"], "strict");
    assert_eq!(find("file")["built_in"], true);
    assert_eq!(find("redis")["level"], "lease-only");
    let shown = room.run(&["store", "list"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.stdout.starts_with("STORE"), "{shown:?}");
}
