//! What survives: a server that is killed at any moment, and the watch of a client that stays.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use process::{Room, fact, json};

#[test]
fn terms_rise_over_every_kill_and_an_acknowledged_leader_stays() {
    let room = Room::new();
    let mut server = room.server();
    let listen = server.listen();
    let mut highest = 0;
    for round in 0..4 {
        let file = room.text(&format!("{round}.session"));
        let node = format!("n{round}");
        let arguments = ["campaign", "billing", "--node", &node, "--session-file", &file];
        let won = server.yes(&room, &arguments);
        let term: u64 = fact(&won, "term").parse().unwrap();
        assert!(term > highest, "term {term} after {highest}");
        highest = term;
        server.kill();
        server = room.serve(&listen, &["--data-dir", &room.text("data")]);
        assert_eq!(server.yes(&room, &["leader", "billing"]), format!("{node}\n"));
        server.yes(&room, &["renew", "billing", "--session-file", &file]);
        server.yes(&room, &["resign", "billing", "--session-file", &file]);
    }
    server.yes(&room, &["group", "delete", "billing", "--yes"]);
    server.kill();
    let server = room.serve(&listen, &["--data-dir", &room.text("data")]);
    let won = server.yes(&room, &["campaign", "billing", "--node", "z", "--output", "json"]);
    assert!(json(&won)["term"].as_u64().unwrap() > highest, "{won}");
}

/// S5: after a cursor every change comes once and in order, though the server was killed in between.
#[test]
fn a_watch_goes_on_over_a_kill_without_losing_or_repeating_a_change() {
    let room = Room::new();
    let mut server = room.server();
    let listen = server.listen();
    let watch = server.start(&room, &["watch", "billing", "--output", "json"]);
    assert_eq!(json(&watch.line())["event"], "STATE");
    let mut terms = Vec::new();
    for round in 0..3 {
        for turn in 0..2 {
            let file = room.text(&format!("{round}-{turn}"));
            let arguments = ["campaign", "billing", "--node", "a", "--session-file", &file];
            server.yes(&room, &arguments);
            server.yes(&room, &["resign", "billing", "--session-file", &file]);
        }
        while terms.len() < 4 * (round + 1) {
            let event = json(&watch.line());
            match event["event"].as_str().unwrap() {
                "LEADER_CHANGED" => {
                    let data = &event["data"];
                    let leads = data["leader"].is_string();
                    terms.push((data["term"].as_u64().unwrap(), leads));
                }
                "BOOKMARK" => {}
                other => panic!("{other}: {event}"),
            }
        }
        server.kill();
        server = room.serve(&listen, &["--data-dir", &room.text("data")]);
    }
    let expected: Vec<_> = (1..=6).flat_map(|term| [(term, true), (term, false)]).collect();
    assert_eq!(terms, expected);
}
