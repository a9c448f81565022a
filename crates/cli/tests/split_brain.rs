//! Two that hold themselves for the leader: found though nobody writes, told everywhere, and healed.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use process::{Room, Server, json, until};
use serde_json::{Value, json as object};

/// A group that had two leaders: the first was succeeded by force, as one is that does not answer.
fn two_terms(room: &Room, server: &Server) {
    for node in ["a", "b"] {
        let flags = ["campaign", "billing", "--node", node, "--session-file", node, "--ttl", "60s"];
        server.yes(room, &flags);
        if node == "a" {
            let force = ["step-down", "billing", "--reason", "test", "--immediate", "--yes"];
            server.yes(room, &force);
        }
    }
}

/// The sign of life of a client that nobody tested: it claims what it likes.
fn heartbeat(server: &Server, session: &str, node: &str, ttl_ms: u64, claims: &Value) -> Value {
    let beliefs = object!({"node_id": node, "ttl_ms": ttl_ms, "claims": claims});
    let body = object!({"session_id": session, "beliefs": beliefs});
    json(&server.post("/v1/sessions/heartbeat", &body.to_string()))
}

/// The session of a node that has campaigned by [`two_terms`].
fn session_of(room: &Room, node: &str) -> String {
    let file = fs::read_to_string(room.path(node)).unwrap();
    let mut words = file.split(|letter: char| !letter.is_ascii_hexdigit());
    words.find(|word| word.len() == 32).unwrap().to_owned()
}

/// A session of a node that leads nothing.
fn opened(server: &Server, node: &str) -> String {
    let body = object!({"node_id": node, "ttl_ms": 60_000}).to_string();
    json(&server.post("/v1/sessions/open", &body))["session_id"].as_str().unwrap().to_owned()
}

fn claim(term: u64, left_ms: u64, digest: &str) -> Value {
    object!([{"group": "billing", "term": term, "left_ms": left_ms, "digest": digest}])
}

fn metric(server: &Server, name: &str) -> Option<f64> {
    let metrics = server.get("/metrics");
    let line = metrics.lines().find(|line| line.starts_with(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn standings(server: &Server) -> Vec<(String, u64, String)> {
    let claims = json(&server.get("/v1/claims?group=billing"));
    let Some(group) = claims["groups"].as_array().unwrap().first().cloned() else {
        return Vec::new();
    };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let believers = group["believers"].as_array().unwrap().iter();
    let told =
        |it: &Value| (text(&it["node_id"]), it["term"].as_u64().unwrap(), text(&it["standing"]));
    let mut told: Vec<_> = believers.map(told).collect();
    told.sort();
    told
}

fn told(who: &str, term: u64, standing: &str) -> (String, u64, String) {
    (who.to_owned(), term, standing.to_owned())
}

fn two_claimants_are_found(room: &Room, server: &Server) {
    two_terms(room, server);
    let (leader, stranger) = (session_of(room, "b"), session_of(room, "a"));
    // The leader is left alone, however often it says so.
    for _ in 0..3 {
        heartbeat(server, &leader, "b", 60_000, &claim(2, 50_000, "sha256:bb"));
    }
    until("the leader agrees", || standings(server) == [told("b", 2, "agrees")]);
    assert_eq!(server.ask(room, &["doctor", "split-brain"]).code, 0);

    // One that believes to have time left is not accused before a ttl of its own has passed.
    heartbeat(server, &stranger, "a", 1000, &claim(1, 900, "sha256:aa"));
    let before = [told("a", 1, "contradicted"), told("b", 2, "agrees")];
    until("it is contradicted", || standings(server) == before);
    let counted = "split_brain_detected_total{group_id=\"billing\"}";
    assert_eq!(
        metric(server, counted),
        Some(0.0),
        "it begins at zero, so that an alert sees it rise"
    );
    until("it is accused", || {
        heartbeat(server, &stranger, "a", 1000, &claim(1, 900, "sha256:aa"));
        standings(server) == [told("a", 1, "accused"), told("b", 2, "agrees")]
    });
    assert_eq!(metric(server, counted), Some(1.0));
    assert_eq!(
        metric(server, "active_leaders_count{group_id=\"billing\",expected=\"1\"}"),
        Some(2.0)
    );
    until("the history tells", || {
        let history = server.yes(room, &["history", "billing"]);
        history.contains("a acts under term 1, but b leads under term 2; their states differ")
    });
    let ended = server.ask(room, &["doctor", "split-brain"]);
    assert_eq!(ended.code, 77, "{ended:?}");
    assert!(ended.stdout.contains("a acts under term 1 and must not"), "{ended:?}");
    assert!(ended.stdout.contains("their states differ"), "{ended:?}");

    // It stops, and says so.
    heartbeat(server, &stranger, "a", 1000, &object!([]));
    assert_eq!(
        metric(server, "active_leaders_count{group_id=\"billing\",expected=\"1\"}"),
        Some(1.0)
    );
    assert_eq!(metric(server, counted), Some(1.0), "once");
    assert_eq!(server.ask(room, &["doctor", "split-brain"]).code, 0);
}

#[test]
fn two_claimants_are_found_though_nobody_writes() {
    let room = Room::new();
    let alarm = room.text("alarm");
    let line = format!("env > {alarm}.part && mv {alarm}.part {alarm}");
    let data = room.text("data");
    let server = room.serve("127.0.0.1:0", &["--data-dir", &data, "--on-split-brain", &line]);
    two_claimants_are_found(&room, &server);
    until("the alarm is raised", || fs::exists(&alarm).unwrap());
    let alarm = fs::read_to_string(&alarm).unwrap();
    for line in [
        "REGENT_GROUP=billing",
        "REGENT_CLAIMANT=a",
        "REGENT_CLAIMANT_TERM=1",
        "REGENT_LEADER=b",
        "REGENT_TERM=2",
        "REGENT_DIVERGED=true",
    ] {
        assert!(alarm.lines().any(|told| told == line), "{line} in {alarm}");
    }
}

#[test]
fn two_claimants_are_found_over_files() {
    let room = Room::new();
    let url = format!("file://{}", room.path("elections").display());
    let server = room.serve("127.0.0.1:0", &["--store", &url]);
    two_claimants_are_found(&room, &server);
}

/// A term that this store never granted: from another cluster, or from a backup that was restored twice.
#[test]
fn a_term_from_elsewhere_is_found_at_once() {
    let room = Room::new();
    let server = room.server();
    two_terms(&room, &server);
    let stranger = opened(&server, "z");
    heartbeat(&server, &stranger, "z", 60_000, &claim(9, 50_000, "sha256:zz"));
    until("it is accused", || standings(&server) == [told("z", 9, "accused")]);
    let claims = json(&server.get("/v1/claims?disputed=true"));
    assert_eq!(claims["groups"][0]["believers"][0]["fault"], "never_granted", "{claims}");
}

#[test]
fn near_misses_and_stale_attempts_are_remembered() {
    let room = Room::new();
    let server = room.server();
    two_terms(&room, &server);
    let beliefs = object!({
        "node_id": "b", "ttl_ms": 10_000, "margin_ms": 70, "claims": claim(2, 9000, "x"),
        "refused": [{"group": "billing", "term": 1}],
    });
    let body = object!({"session_id": session_of(&room, "b"), "beliefs": beliefs}).to_string();
    // Claims of a session that this server does not know yet wait until the store has said whose it is, and only the
    // last one of a session waits.
    // The first two tell nothing of a renewal that this server heard from a leader.
    let refused = "regent_fence_rejections_total{reason=\"STALE_TERM\"}";
    for (count, misses) in [(1.0, 0.0), (2.0, 0.0), (3.0, 1.0), (4.0, 2.0)] {
        server.post("/v1/sessions/heartbeat", &body);
        until("it counts", || metric(&server, refused) == Some(count));
        assert_eq!(metric(&server, "regent_near_misses_total"), Some(misses));
    }
    assert_eq!(metric(&server, "regent_renew_margin_seconds_count"), Some(2.0));
    let history = || json(&server.get("/v1/groups/billing/history"))["changes"].clone();
    until("the history tells both", || {
        let causes: Vec<_> =
            history().as_array().unwrap().iter().map(|it| it["cause"].clone()).collect();
        causes.ends_with(&["stale_attempt".into(), "near_miss".into()])
    });
    let told = history().to_string();
    assert!(told.contains("b renewed term 2 with 70 ms left"), "{told}");
    assert!(told.contains("b wanted to write under term 1; a fence refused it"), "{told}");
    let nonsense = [
        r#"{"session_id": "000000000000000000000000000000ff", "beliefs": {"node_id": "a"}}"#,
        r#"{"session_id": "000000000000000000000000000000ff", "beliefs": {"node_id": "a", "ttl_ms": 1, "claims": [{"group": "", "term": 1, "left_ms": 0}]}}"#,
        r#"{"session_id": "000000000000000000000000000000ff", "beliefs": []}"#,
    ];
    for body in nonsense {
        let refused = json(&server.post("/v1/sessions/heartbeat", body));
        assert_eq!(refused["code"], "BAD_REQUEST", "{body}: {refused}");
    }
}

/// The walk of an operator at night: first somebody does not stop, then it is ended.
#[test]
fn the_way_back_to_one_leader_is_walked() {
    let room = Room::new();
    let server = room.server();
    let policy = ["group", "create", "billing", "--lock-delay", "10ms"];
    server.yes(&room, &policy);
    let run = ["run", "-g", "billing", "--node", "b", "--ttl", "3s", "--", "sleep", "1000"];
    let mut leader = server.start(&room, &run);
    let term = || json(&server.get("/v1/groups/billing/leader"))["term"].as_u64().unwrap();
    until("somebody leads", || server.ask(&room, &["leader", "billing"]).code == 0);
    let first = term();
    let (save, merged) = (room.text("saved.json"), room.text("merged"));
    let reconcile = format!("test $REGENT_GROUP = billing && echo \"$REGENT_FINDINGS\" > {merged}");
    let walk = |wait| {
        let words = ["doctor", "split-brain", "--group", "billing", "--recover", "--yes"];
        let more = ["--save", &save, "--reconcile", &reconcile, "--wait", wait];
        server.ask(&room, &[&words[..], &more].concat())
    };
    // What an earlier walk has left behind is not what holds now; and nobody is stopped without a word.
    fs::write(&save, r#"{"group": "billing", "policy": null}"#).unwrap();
    let words = ["doctor", "split-brain", "--group", "billing", "--recover", "--save", &save];
    assert_eq!(server.ask(&room, &words).code, 64);
    assert_eq!(term(), first);
    let (acts, stranger) = (AtomicBool::new(true), opened(&server, "a"));
    thread::scope(|scope| {
        scope.spawn(|| {
            while acts.load(Ordering::Relaxed) {
                heartbeat(&server, &stranger, "a", 1000, &claim(first + 7, 900, "x"));
                thread::sleep(Duration::from_millis(100));
            }
        });
        until("it is accused", || standings(&server).contains(&told("a", first + 7, "accused")));
        let ended = walk("4s");
        assert_eq!(ended.code, 75, "{ended:?}");
        assert!(ended.stderr.contains(&format!("a under term {}", first + 7)), "{ended:?}");
        assert!(
            ended.stderr.contains("billing has no leader until the recovery is finished"),
            "{ended:?}"
        );
        assert_eq!(
            server.ask(&room, &["leader", "billing"]).code,
            1,
            "nobody is elected meanwhile"
        );
        assert!(!fs::exists(&merged).unwrap(), "nothing is reconciled while somebody acts");
        acts.store(false, Ordering::Relaxed);
    });
    let ended = walk("60s");
    assert_eq!(ended.code, 0, "{ended:?}");
    for step in ["1. stop", "2. compare", "3. reconcile", "4. elect", "5. resume"] {
        assert!(ended.stdout.contains(step), "{step} in {ended:?}");
    }
    assert!(term() > first);
    let merged = fs::read_to_string(&merged).unwrap();
    assert!(merged.contains("which was never granted"), "{merged}");
    assert!(!fs::exists(&save).unwrap());
    let group = json(&server.get("/v1/groups/billing"));
    assert_eq!(group["policy"]["lock_delay_ms"], 10, "{group}");
    assert_eq!(group["policy"]["allow"], object!([]), "{group}");
    leader.signal("TERM");
    leader.wait();
}
