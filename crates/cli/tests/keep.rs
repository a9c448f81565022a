//! `regent campaign --keep` as a process among processes: paused, cut off, deposed, interrupted.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use process::{Room, Running, Server, json, until};

/// The ttl is as short as the test has to wait for it, and long where a busy machine must not matter.
fn keep(server: &Server, room: &Room, node: &str, ttl: &str) -> Running {
    let arguments = ["campaign", "billing", "--node", node, "--ttl", ttl, "--keep"];
    server.start(room, &arguments)
}

#[test]
fn an_interrupted_leader_resigns_and_the_next_in_line_leads_at_once() {
    let room = Room::new();
    let server = room.server();
    let mut a = keep(&server, &room, "a", "20s");
    assert!(a.line().starts_with("billing: a leads, term 1, valid for "));
    let mut b = keep(&server, &room, "b", "20s");
    assert_eq!(b.line(), "billing: standing by; a leads, term 1");
    until("b stands", || server.standbys(&room, "billing") == 1);
    a.signal("INT");
    assert_eq!(a.wait(), 0, "{}", a.errors());
    assert!(b.line().starts_with("billing: b leads, term 2, valid for "));
    b.signal("TERM");
    assert_eq!(b.wait(), 0, "{}", b.errors());
    let history = server.yes(&room, &["history", "billing"]);
    assert!(!history.contains("expired"), "{history}");
    assert_eq!(server.ask(&room, &["leader", "billing"]).code, 1);
}

/// S13: after a pause of any length the first thing a leader says is that it leads no more.
#[test]
fn a_paused_leader_says_lost_on_waking() {
    let room = Room::new();
    let server = room.server();
    let mut a = keep(&server, &room, "a", "1s");
    a.line_with("a leads");
    let b = keep(&server, &room, "b", "1s");
    a.signal("STOP");
    b.line_with("b leads, term 2");
    a.signal("CONT");
    let said = a.line();
    assert!(said.starts_with("billing: a has lost term 1"), "{said}");
    assert_eq!(a.wait(), 76, "{}", a.errors());
    assert_eq!(server.yes(&room, &["leader", "billing"]), "b\n");
}

#[test]
fn a_leader_that_is_cut_off_warns_stops_and_says_so_before_its_lease_is_over() {
    let room = Room::new();
    let server = room.server();
    let mut a = keep(&server, &room, "a", "3s");
    a.line_with("a leads");
    server.kill();
    let said: Vec<String> = a.rest();
    assert!(said[0].contains("in jeopardy") && said[0].contains("valid for"), "{said:?}");
    assert!(said[1].contains("must stop") && said[1].contains("valid for"), "{said:?}");
    assert!(said[2].contains("has stopped"), "{said:?}");
    assert_eq!(a.wait(), 76, "{}", a.errors());
}

#[test]
fn a_leader_that_an_operator_ends_confirms_before_its_ttl_is_over() {
    let room = Room::new();
    let server = room.server();
    let arguments =
        ["campaign", "billing", "--node", "a", "--ttl", "3s", "--keep", "--output", "json"];
    let mut a = server.start(&room, &arguments);
    assert_eq!(json(&a.line())["phase"], "leading");
    server.yes(&room, &["step-down", "billing", "--reason", "test"]);
    let stopping = json(&a.line_with("stopping"));
    assert_eq!(stopping["why"], "told to stop");
    assert_eq!(a.wait(), 76, "{}", a.errors());
    let history = server.yes(&room, &["history", "billing"]);
    assert!(history.contains("stepped_down  test"), "{history}");
}

#[test]
fn a_candidate_that_may_never_stand_is_told_at_once() {
    let room = Room::new();
    let server = room.server();
    server.yes(&room, &["group", "create", "billing", "--allow", "web-*"]);
    let arguments = ["campaign", "billing", "--node", "db-1", "--keep"];
    let refused = server.ask(&room, &arguments);
    assert_eq!(refused.code, 77, "{refused:?}");
    assert!(refused.stderr.contains("db-1 may not campaign in billing"), "{refused:?}");
}

#[test]
fn a_candidate_that_waits_in_vain_leaves_nothing_behind() {
    let room = Room::new();
    let server = room.server();
    server.yes(&room, &["campaign", "billing", "--node", "a", "--ttl", "1m"]);
    let arguments = ["campaign", "billing", "--node", "b", "--keep", "--wait", "500ms"];
    let ended = server.ask(&room, &arguments);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert_eq!(server.standbys(&room, "billing"), 0);
}

/// A group moves to another store while one candidate waits in its line: the candidate goes on there.
#[test]
fn a_candidate_follows_its_group_to_another_store() {
    let room = Room::new();
    let old = room.server();
    let new = room.serve("127.0.0.1:0", &["--data-dir", &room.text("new")]);
    let won = ["campaign", "billing", "--node", "a", "--session-file", "a", "--ttl", "1m"];
    old.yes(&room, &won);
    let mut b = keep(&old, &room, "b", "3s");
    assert_eq!(b.line(), "billing: standing by; a leads, term 1");
    until("b stands", || old.standbys(&room, "billing") == 1);
    let migrate = |more: &[&str]| {
        let fixed = ["migrate", "--from", &old.url, "--to", &new.url, "--group", "billing"];
        room.run(&[&fixed, more].concat())
    };
    let begun = migrate(&["--timeout", "1s"]);
    assert_eq!(begun.code, 77, "a has not stopped yet: {begun:?}");
    old.yes(&room, &["resign", "billing", "--session-file", "a"]);
    let moved = migrate(&[]);
    assert_eq!(moved.code, 0, "{moved:?}");
    assert!(b.line_with("b leads").starts_with("billing: b leads, term 2, valid for "));
    assert_eq!(new.yes(&room, &["leader", "billing"]), "b\n");
    b.signal("INT");
    assert_eq!(b.wait(), 0, "{}", b.errors());
    assert_eq!(new.ask(&room, &["leader", "billing"]).code, 1, "it resigned there");
}
