//! The flight recorder of a real server, and what it wrote down acted again in the simulator.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

mod process;

use std::fs;

use process::{Ended, Room, Running, Server, fact, json, mode, until};

const TTL: [&str; 2] = ["--ttl", "2s"];

fn keep(room: &Room, server: &Server, node: &str) -> Running {
    let words = ["campaign", "billing", "--node", node, "--keep"];
    server.start(room, &[&words[..], &TTL].concat())
}

fn leads(room: &Room, server: &Server, node: &str) {
    until(node, || server.ask(room, &["leader", "billing"]).stdout.trim() == node);
}

/// The causes of the changes that a recording tells, in order.
fn causes(recorded: &str) -> Vec<String> {
    let rows = recorded.lines().map(json).filter(|row| row["ev"] == "change");
    rows.map(|row| row["cause"].as_str().unwrap().to_owned()).collect()
}

fn replay(room: &Room, text: &str, more: &[&str]) -> Ended {
    fs::write(room.path("trace.jsonl"), text).unwrap();
    room.run(&[&["lab", "replay", "trace.jsonl"], more].concat())
}

#[test]
fn what_a_real_server_recorded_takes_the_same_course_in_the_simulator() {
    let room = Room::new();
    let server = room.server();
    let mut a = keep(&room, &server, "a");
    leads(&room, &server, "a");
    let mut b = keep(&room, &server, "b");
    until("b stands", || server.standbys(&room, "billing") == 1);
    let mut c = keep(&room, &server, "c");
    until("c stands", || server.standbys(&room, "billing") == 2);
    // It gives up in order…
    a.signal("INT");
    assert_eq!(a.wait(), 0);
    leads(&room, &server, "b");
    // …falls silent…
    b.kill();
    leads(&room, &server, "c");
    // …is stepped down…
    let mut d = keep(&room, &server, "d");
    until("d stands", || server.standbys(&room, "billing") == 1);
    server.yes(&room, &["step-down", "billing", "--reason", "kernel update", "--yes"]);
    leads(&room, &server, "d");
    assert_eq!(c.wait(), 76);
    d.signal("INT");
    assert_eq!(d.wait(), 0);
    // …and hands over, by hand.
    let (e, f) = (room.text("e.session"), room.text("f.session"));
    let campaign = |node: &str, file: &str| {
        let words = ["campaign", "billing", "--node", node, "--session-file", file];
        server.ask(&room, &[&words[..], &["--ttl", "20s"]].concat())
    };
    let won = campaign("e", &e);
    let secret = fs::read_to_string(&e).unwrap();
    assert_eq!(fact(&won.stdout, "elected"), "yes", "{won:?}");
    assert_eq!(campaign("f", &f).code, 1);
    server.yes(&room, &["transfer", "billing", "--to", "f", "--session-file", &e]);
    leads(&room, &server, "f");

    let data = room.text("data");
    let wanted = ["elected", "resigned", "expired", "stepped_down", "resigned", "elected"];
    until("the last change is recorded", || {
        causes(&room.run(&["record", &data]).stdout).len() == wanted.len() + 1
    });
    let recorded = room.run(&["record", &data]);
    assert_eq!(recorded.code, 0, "{recorded:?}");
    assert_eq!(causes(&recorded.stdout)[..wanted.len()], wanted);
    assert_eq!(causes(&recorded.stdout)[wanted.len()], "transferred");
    assert!(recorded.stdout.contains("kernel update"), "{}", recorded.stdout);
    let secrets: Vec<&str> = secret.split('"').filter(|word| word.len() >= 26).collect();
    assert!(!secrets.is_empty() || secret.trim().len() >= 26, "{secret}");
    for word in secrets.into_iter().chain([secret.trim()]) {
        assert!(!recorded.stdout.contains(word), "a session's secret is recorded");
    }
    assert_eq!(mode(&room.path("data/flight")), 0o700);

    for seed in ["1", "2", "3"] {
        let acted = replay(&room, &recorded.stdout, &["--seed", seed]);
        assert_eq!(
            acted.code, 0,
            "seed {seed}: {}{}\n{}",
            acted.stdout, acted.stderr, recorded.stdout
        );
        assert!(
            acted.stdout.contains("all 7 changes came about as they were recorded"),
            "{acted:?}"
        );
        assert!(acted.stdout.ends_with("every promise was kept\n"), "{acted:?}");
        assert_eq!(acted.stdout, replay(&room, &recorded.stdout, &["--seed", seed]).stdout);
    }
    // The directory itself is a recording, too, while it is written.
    let acted = room.run(&["lab", "replay", &data, "--json"]);
    assert_eq!(acted.code, 0, "{acted:?}");
    let last = json(acted.stdout.lines().last().unwrap());
    assert_eq!((&last["ev"], &last["same"]), (&"reenacted".into(), &true.into()));

    // A course that nobody's rules would take is another one.
    let other = recorded.stdout.replacen("\"leader\":\"c\"", "\"leader\":\"a\"", 1);
    let acted = replay(&room, &other, &[]);
    assert_eq!(acted.code, 65, "{acted:?}");
    assert!(acted.stdout.contains("1 of 7 changes differ"), "{acted:?}");
}

#[test]
fn a_recording_goes_on_after_a_crash_and_may_be_turned_off() {
    let room = Room::new();
    let server = room.server();
    let session = room.text("a.session");
    server.yes(&room, &["campaign", "billing", "--node", "a", "--session-file", &session]);
    let data = room.text("data");
    until("it is recorded", || causes(&room.run(&["record", &data]).stdout) == ["elected"]);
    server.kill();
    let mut server = room.server();
    server.yes(&room, &["resign", "billing", "--session-file", &session]);
    server.signal("TERM");
    assert_eq!(server.wait(), 0);
    let recorded = room.run(&["record", &data]).stdout;
    let rows: Vec<String> =
        recorded.lines().map(|line| json(line)["ev"].as_str().unwrap().to_owned()).collect();
    assert_eq!(causes(&recorded), ["elected", "resigned"], "nothing twice: {recorded}");
    assert_eq!(rows.iter().filter(|ev| *ev == "begin").count(), 2, "{recorded}");
    assert!(!rows.contains(&"gap".to_owned()), "{recorded}");
    assert_eq!(rows.last().map(String::as_str), Some("end"), "{recorded}");
    let acted = replay(&room, &recorded, &[]);
    assert_eq!(acted.code, 0, "{acted:?}");

    let none = room.text("none");
    let server = room.serve("127.0.0.1:0", &["--data-dir", &none, "--flight-bytes", "0"]);
    server.yes(&room, &["campaign", "billing", "--node", "a"]);
    drop(server);
    let ended = room.run(&["record", &none]);
    assert_eq!(ended.code, 74, "{ended:?}");
    assert!(ended.stderr.contains("holds no recording"), "{ended:?}");
}

#[test]
fn a_recording_that_makes_no_sense_is_refused_at_its_line() {
    let room = Room::new();
    let change = |rev: u64, cause: &str| {
        format!(
            r#"{{"ev":"change","at_ms":{rev},"rev":{rev},"group":"g","term":1,"leader":null,"cause":"{cause}"}}"#
        )
    };
    let good = change(2, "resigned");
    let refused = |text: &str, what: &str| {
        let ended = replay(&room, text, &[]);
        assert_eq!(ended.code, 74, "{ended:?}");
        assert!(ended.stderr.contains(what), "{what}: {ended:?}");
    };
    refused(&format!("{good}\n{}\n", &good[..30]), "trace.jsonl:2: EOF");
    refused(
        &format!("{good}\n{}\n", change(3, "bored")),
        "trace.jsonl:2: there is no cause \"bored\"",
    );
    refused(
        &format!("{good}\n{}\n", change(1, "deleted")),
        "trace.jsonl:2: revision 1 comes after 2",
    );
    refused("\n", "there is nothing in it");
    refused(&format!("{good}\n").repeat(1_000_000), "trace.jsonl:100001: more than 100000 lines");
    let missing = room.run(&["lab", "replay", "nowhere.jsonl"]);
    assert_eq!(missing.code, 74, "{missing:?}");
    let both = room.run(&["lab", "replay", "trace.jsonl", "--members", "2"]);
    assert_eq!(both.code, 64, "{both:?}");
    assert_eq!(room.run(&["lab", "replay"]).code, 64);
}
