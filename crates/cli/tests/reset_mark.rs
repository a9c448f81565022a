//! `regent fence gateway --reset-mark`: an operator sets the mark of a gateway that does not run.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::fs;

use process::Room;

#[test]
fn an_operator_sets_the_mark_of_a_stopped_gateway() {
    let room = Room::new();
    let data = room.text("fence");
    let mark = |more: &[&str]| {
        let verb = ["fence", "gateway", "--group", "billing", "--data", &data];
        room.run(&[&verb, more].concat())
    };
    let ended = mark(&["--reset-mark", "7", "--yes"]);
    assert_eq!(ended.code, 64, "without a reason: {ended:?}");
    let why = ["--reset-mark", "7", "--reason", "a stranger sent it"];
    let ended = mark(&[&why[..], &["--yes"]].concat());
    assert!(ended.stderr.contains("holds no mark"), "{ended:?}");
    let upstream = ["--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"];
    let verb = ["fence", "gateway", "--group", "billing", "--data", &data];
    let running = room.start(&[&verb[..], &upstream].concat());
    running.line_with("listens on");
    let ended = mark(&[&why[..], &["--yes"]].concat());
    assert!(ended.stderr.contains("in use by another gateway"), "{ended:?}");
    drop(running);
    let ended = mark(&why);
    assert_eq!(ended.code, 64, "nobody is there to ask: {ended:?}");
    assert!(ended.stderr.contains("will be able to write"), "{ended:?}");
    let ended = mark(&[&why[..], &["--yes"]].concat());
    assert_eq!(
        (ended.code, ended.stdout.trim()),
        (0, "the mark of billing was 0 and is 7"),
        "{ended:?}"
    );
    let notes = fs::read_to_string(room.path("fence/resets")).unwrap();
    assert!(notes.ends_with(" from 0 to 7: a stranger sent it\n"), "{notes}");
}
