//! `regent status` and `regent version` in good weather and bad: no server, one that is stopped, no quorum.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use process::cluster::Cluster;
use process::{Room, json, until};

/// Exit codes: something is wrong and elections go on; nobody can be elected.
const WRONG: i32 = 1;
const DOWN: i32 = 69;

#[test]
fn a_service_that_is_well_says_so_and_one_that_does_not_answer_is_down() {
    let room = Room::new();
    let server = room.server();
    server.yes(&room, &["campaign", "billing", "--node", "a", "--ttl", "60s"]);
    let well = server.yes(&room, &["status"]);
    assert!(well.contains("nothing is wrong") && well.contains("1 led, 0 vacant"), "{well}");
    let version = server.yes(&room, &["version", "--output", "json"]);
    let version = json(&version);
    assert_eq!(version["command"], version["servers"][0]["version"], "{version}");

    let two = format!("{},http://127.0.0.1:1", server.url);
    let one_silent = room.run(&["status", "--server", &two, "--timeout", "5s"]);
    assert_eq!(one_silent.code, WRONG, "{one_silent:?}");
    assert!(one_silent.stdout.contains("http://127.0.0.1:1  does not answer"), "{one_silent:?}");

    server.signal("STOP");
    let flags = ["--server", &server.url, "--timeout", "500ms", "--output", "json"];
    let stopped = room.run(&[&["status"][..], &flags].concat());
    let version = room.run(&[&["version"][..], &flags].concat());
    server.signal("CONT");
    assert_eq!((stopped.code, version.code), (DOWN, DOWN), "{stopped:?} {version:?}");
    let told = json(&stopped.stdout);
    assert_eq!((&told["cluster"], &told["groups"]), (&().into(), &().into()), "unknown: {told}");
    assert_eq!(told["findings"][0]["severity"], "down", "{told}");
}

#[test]
fn a_cluster_that_lost_replicas_is_said_to_survive_less_until_nobody_can_be_elected() {
    let mut cluster = Cluster::start(3);
    cluster.yes_soon(&["campaign", "billing", "--node", "a", "--ttl", "60s"]);
    until("all is well", || cluster.ask(&["status"]).code == 0);
    let followers = cluster.followers();
    cluster.kill(followers[0]);
    let mut told = String::new();
    until("a silent replica is told", || {
        let ended = cluster.ask(&["status", "--timeout", "2s"]);
        told = ended.stdout;
        ended.code == WRONG && told.contains("2 of 3 heard")
    });
    assert!(told.contains("survives no further failure"), "{told}");
    cluster.kill(followers[1]);
    until("no quorum is told", || {
        let ended = cluster.ask(&["status", "--timeout", "2s"]);
        told = ended.stdout;
        ended.code == DOWN && told.contains("no quorum")
    });
    assert!(told.contains("groups") && told.contains("unknown"), "{told}");
}

/// A missing number could mean anything; only the replica that leads the log counts leases.
#[test]
fn a_replica_that_cannot_say_how_long_a_leader_lasts_says_why() {
    let cluster = Cluster::start(3);
    cluster.yes_soon(&["campaign", "billing", "--node", "a", "--ttl", "60s"]);
    let at = |id: u64| {
        let url = cluster.server(id).url.clone();
        json(&cluster.yes(&["leader", "billing", "--verbose", "--json", "--server", &url]))
    };
    let leads = at(cluster.leader());
    assert!(leads["valid_for_ms"].as_u64().is_some_and(|ms| ms <= 60_000), "{leads}");
    assert!(leads["valid_for_unknown"].is_null(), "{leads}");
    let follows = at(cluster.followers()[0]);
    assert!(follows["valid_for_ms"].is_null(), "{follows}");
    let why = follows["valid_for_unknown"].as_str().unwrap();
    assert!(why.contains("only the replica that leads the log"), "{follows}");
}
