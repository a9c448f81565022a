//! A leader whose renewals come later and later is replaced before its lease ends, if somebody does better.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::thread;
use std::time::{Duration, Instant};

use process::slow::Slow;
use process::{Room, Running, Server, json, until};

const TTL: &str = "9s";
const TTL_MS: u64 = 9000;
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// Longer than a whole fall takes on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(150);

fn serve(room: &Room) -> Server {
    let flags = ["--data-dir", &room.text("data"), "--replace-failing", "hand-over"];
    let server = room.serve("127.0.0.1:0", &flags);
    server.yes(room, &["group", "create", "billing", "--minimum-tenure", "0s"]);
    server
}

/// A node that runs a program while it leads, and reaches the server by this road.
fn run(room: &Room, url: &str, node: &str) -> Running {
    let program = ["--", "sleep", "1000"];
    let flags = ["run", "-g", "billing", "--node", node, "--ttl", TTL, "--server", url];
    room.start(&[&flags[..], &program].concat())
}

fn leader(server: &Server) -> (Option<String>, u64) {
    let told = json(&server.get("/v1/groups/billing/leader"));
    (told["leader"].as_str().map(str::to_owned), told["term"].as_u64().unwrap())
}

fn causes(server: &Server) -> Vec<String> {
    let told = json(&server.get("/v1/groups/billing/history"));
    let lines = told["changes"].as_array().unwrap().iter();
    lines.map(|line| line["cause"].as_str().unwrap().to_owned()).collect()
}

fn metric(server: &Server, series: &str) -> f64 {
    let text = server.get("/metrics");
    let found = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no {series} in {text}"))
}

fn predictions(server: &Server, outcome: &str) -> f64 {
    metric(server, &format!("regent_leader_predictions_total{{outcome=\"{outcome}\"}}"))
}

/// Makes the roads longer by a step with every renewal, until something is so, up to this length.
fn slow_down(roads: &[&Slow], step_ms: u64, most_ms: u64, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    let mut delay_ms = 0;
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "it did not come about");
        let steps = since.elapsed().as_millis() / RENEW_EVERY.as_millis();
        let due_ms = (u64::try_from(steps).unwrap() * step_ms).min(most_ms);
        if due_ms != delay_ms {
            delay_ms = due_ms;
            roads.iter().for_each(|road| road.delay(delay_ms));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_leader_that_becomes_slow_is_replaced_before_it_fails() {
    let room = Room::new();
    let server = serve(&room);
    let road = Slow::to(&server.listen());
    let mut a = run(&room, &road.url, "a");
    until("a leads", || leader(&server) == (Some("a".to_owned()), 1));
    let mut b = run(&room, &server.url, "b");
    until("b stands", || server.standbys(&room, "billing") == 1);
    until("both have renewed a few times", || {
        metric(&server, "regent_renew_margin_seconds_count") >= 5.0
    });
    slow_down(&[&road], TTL_MS * 3 / 200, TTL_MS, || leader(&server) == (Some("b".to_owned()), 2));
    let told = causes(&server);
    // In one commit if it was still fast enough to hear that b is warm, otherwise by its own resignation; never because
    // it was not heard any more.
    let ended = told.last().map(String::as_str);
    assert!(matches!(ended, Some("transferred" | "resigned")), "{told:?}: {}", server.log());
    assert_eq!(told[..2], ["elected", "failing"], "{told:?}");
    assert!(!told.contains(&"expired".to_owned()), "{told:?}");
    let history = server.yes(&room, &["history", "billing"]);
    assert!(history.contains("predicted: a's renewals came with "), "{history}");
    assert!(history.contains("and is asked to take over"), "{history}");
    assert_eq!(predictions(&server, "hand_over"), 1.0);
    road.delay(0);
    for node in [&mut a, &mut b] {
        node.signal("TERM");
        node.wait();
    }
}

#[test]
fn what_is_slow_for_both_replaces_nobody() {
    let room = Room::new();
    let server = serve(&room);
    let roads = [Slow::to(&server.listen()), Slow::to(&server.listen())];
    let mut a = run(&room, &roads[0].url, "a");
    until("a leads", || leader(&server) == (Some("a".to_owned()), 1));
    let mut b = run(&room, &roads[1].url, "b");
    until("b stands", || server.standbys(&room, "billing") == 1);
    until("both have renewed a few times", || {
        metric(&server, "regent_renew_margin_seconds_count") >= 5.0
    });
    // Slow, and not so slow that nothing comes through.
    slow_down(&[&roads[0], &roads[1]], TTL_MS / 50, TTL_MS * 3 / 20, || {
        predictions(&server, "nobody_better") >= 1.0
    });
    let told = server.yes(&room, &["history", "billing"]);
    assert!(told.contains("no standby is known to do clearly better"), "{told}");
    assert_eq!(leader(&server), (Some("a".to_owned()), 1));
    assert_eq!(predictions(&server, "hand_over"), 0.0);
    roads.iter().for_each(|road| road.delay(0));
    for node in [&mut a, &mut b] {
        node.signal("TERM");
        node.wait();
    }
}
