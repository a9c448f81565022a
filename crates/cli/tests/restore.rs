//! What outlives every machine: backups, restores, and the one replica that is left.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use process::cluster::Cluster;
use process::{Room, Server, fact, json, until};

/// Long enough for a campaign, short enough to wait for twice.
const TTL_MAX: [&str; 2] = ["--ttl-max", "3s"];

fn cluster_of(count: u64) -> Cluster {
    let mut cluster = Cluster::found(count, &TTL_MAX, &TTL_MAX);
    cluster.start_all();
    cluster
}

fn campaign(server: &Server, room: &Room, group: &str) -> Option<u64> {
    let arguments = ["campaign", group, "--node", "n", "--ttl", "2s", "--output", "json"];
    let ended = server.ask(room, &arguments);
    assert!(matches!(ended.code, 0 | 69 | 75), "{ended:?}");
    (ended.code == 0).then(|| json(&ended.stdout)["term"].as_u64().unwrap())
}

fn campaign_soon(server: &Server, room: &Room, group: &str) -> u64 {
    let mut term = None;
    until("a campaign is won", || {
        term = campaign(server, room, group);
        term.is_some()
    });
    term.unwrap()
}

/// S2: restored, a cluster of three grants only terms above all it ever granted, and none while leases
/// of its earlier life may run; restored once more, above those.
#[test]
fn a_restored_cluster_waits_and_then_grants_terms_above_all_before() {
    let mut cluster = cluster_of(3);
    cluster.yes_soon(&["group", "create", "kept", "--allow", "n*", "--ttl-max", "3s"]);
    let before = campaign_soon(cluster.server(1), &cluster.room, "billing");
    let backup = cluster.room.text("b.backup");
    let told = cluster.yes(&["cluster", "backup", "--to", &backup]);
    assert_eq!(fact(&told, "groups"), "2");
    let again = cluster.ask(&["cluster", "backup", "--to", &backup]);
    assert_eq!(again.code, 74, "{again:?}");
    for id in 1..=3 {
        cluster.kill(id);
    }
    let mut highest = before;
    for _ in 0..2 {
        restore_all(&mut cluster, &backup);
        cluster.start_all();
        let held = cluster.server(1).ask(&cluster.room, &["campaign", "billing", "--node", "n"]);
        assert_eq!(held.code, 69, "{held:?}");
        assert!(held.stderr.contains("restored"), "{held:?}");
        let shown = cluster.yes_soon(&["group", "show", "kept"]);
        assert_eq!(fact(&shown, "allows"), "n*");
        for group in ["billing", "kept", "never-seen"] {
            let term = campaign_soon(cluster.server(2), &cluster.room, group);
            assert!(term > highest + (1 << 32) || highest > 1 << 32, "{group}: {term}");
            assert!(term > highest, "{group}: {term} after {highest}");
        }
        highest = campaign_soon(cluster.server(3), &cluster.room, "last");
        for id in 1..=3 {
            cluster.kill(id);
        }
    }
}

/// Restores every replica of a cluster that is down, with the words that the first one prints.
fn restore_all(cluster: &mut Cluster, backup: &str) {
    let mut told = Vec::new();
    for id in 1..=3_u64 {
        let directory = cluster.directory(id);
        std::fs::remove_dir_all(&directory).unwrap();
        let id = id.to_string();
        let mut arguments = vec!["cluster", "restore", "--from", backup, "--id", &id];
        arguments.extend(["--members", &cluster.list, "--data-dir", &directory]);
        arguments.extend(["--output", "json"]);
        arguments.extend(told.iter().map(String::as_str));
        let ended = cluster.room.run(&arguments);
        assert_eq!(ended.code, 0, "{ended:?}");
        let answer = json(&ended.stdout);
        let cluster_id = answer["founded"]["cluster_id"].as_str().unwrap().to_owned();
        assert_ne!(cluster_id, cluster.id);
        let as_of = answer["as_of"].to_string();
        told = vec!["--cluster-id".into(), cluster_id, "--as-of".into(), as_of];
    }
}

#[test]
fn what_is_no_backup_or_from_the_future_is_refused_and_nothing_is_written() {
    let room = Room::new();
    let server = room.serve("127.0.0.1:0", &["--data-dir", &room.text("data")]);
    server.yes(&room, &["campaign", "billing", "--node", "a"]);
    let backup = room.text("b");
    server.yes(&room, &["cluster", "backup", "--to", &backup]);
    assert_eq!(process::mode(&room.path("b")), 0o600);
    let restore = |from: &str, more: &[&str]| {
        let into = room.text("into");
        let mut arguments = vec!["cluster", "restore", "--from", from, "--id", "1"];
        arguments.extend(["--members", "1=a:1/a:2", "--data-dir", &into]);
        arguments.extend(more);
        let ended = room.run(&arguments);
        assert!(ended.code != 0 && !room.path("into").exists(), "{ended:?}");
        ended
    };
    let whole = std::fs::read(&backup).unwrap();
    for (name, bytes) in [
        ("cut", whole[..whole.len() - 1].to_vec()),
        ("flipped", whole.iter().enumerate().map(|(i, b)| b ^ u8::from(i == 70)).collect()),
        ("foreign", b"hello".to_vec()),
    ] {
        std::fs::write(room.path(name), bytes).unwrap();
        assert_eq!(restore(&room.text(name), &[]).code, 74, "{name}");
    }
    // The head says when it was taken, in seconds, at byte 40; its checksum stands at byte 56.
    let id = "0".repeat(31) + "1";
    let past = restore(&backup, &["--as-of", "1000", "--cluster-id", &id]);
    assert_eq!(past.code, 77, "{past:?}");
    assert!(past.stderr.contains("the wall clock says 1000 s"), "{past:?}");
    let late = u64::MAX / 4;
    let late = restore(&backup, &["--as-of", &late.to_string(), "--cluster-id", &id]);
    assert_eq!(late.code, 77, "{late:?}");
    let members =
        room.run(&["cluster", "restore", "--from", &backup, "--id", "2", "--members", "1=a:1/a:2"]);
    assert_eq!(members.code, 64, "{members:?}");
}

#[test]
fn a_term_floor_is_obeyed() {
    let room = Room::new();
    let data = room.text("data");
    let server = room.serve("127.0.0.1:0", &["--data-dir", &data, "--ttl-max", "1s"]);
    server.yes(&room, &["campaign", "billing", "--node", "a", "--ttl", "1s"]);
    let backup = room.text("b");
    server.yes(&room, &["cluster", "backup", "--to", &backup]);
    server.kill();
    let into = room.text("into");
    let floor = 1_u64 << 52;
    let ended = room.run(&[
        "cluster",
        "restore",
        "--from",
        &backup,
        "--id",
        "1",
        "--members",
        "1=127.0.0.1:1/127.0.0.1:2",
        "--data-dir",
        &into,
        "--term-floor",
        &floor.to_string(),
    ]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let server = room.serve("127.0.0.1:0", &["--data-dir", &into]);
    let mut term = None;
    until("the hold is over", || {
        let arguments = ["campaign", "billing", "--node", "a", "--ttl", "1s", "--output", "json"];
        let ended = server.ask(&room, &arguments);
        term = (ended.code == 0).then(|| json(&ended.stdout)["term"].as_u64().unwrap());
        term.is_some()
    });
    assert_eq!(term, Some(floor + 1));
    // The settings of this server did not count while the leases of the earlier life might run.
    assert!(server.log().contains("are those of the backup"), "{}", server.log());
}

/// Semantics 23: the wait is as long as the longest lease of the earlier life, which an operator may know better than the
/// settings in the backup, an hour by default. Nobody sends clients there before it is over.
#[test]
fn a_restored_cluster_is_not_ready_until_its_wait_is_over_which_a_flag_makes_shorter() {
    let room = Room::new();
    let server = room.serve("127.0.0.1:0", &["--data-dir", &room.text("data")]);
    server.yes(&room, &["campaign", "billing", "--node", "a", "--ttl", "2s"]);
    let backup = room.text("b");
    server.yes(&room, &["cluster", "backup", "--to", &backup]);
    server.kill();
    let restore = |into: &str, more: &[&str]| {
        let mut arguments = vec!["cluster", "restore", "--from", &backup, "--id", "1"];
        arguments.extend(["--members", "1=127.0.0.1:1/127.0.0.1:2", "--data-dir", into]);
        arguments.extend(more);
        room.command(&arguments)
    };
    let into = room.text("long");
    let long = process::finish(restore(&into, &[]));
    assert_eq!(long.code, 0, "{long:?}");
    assert!(long.stdout.contains("grants nothing for 1h after it starts"), "{long:?}");
    assert!(long.stdout.contains("--ttl-max"), "the way out: {long:?}");
    // What holds for the new life says nothing about leases of the earlier one.
    let into_json = room.text("by-variable");
    let mut by_variable = restore(&into_json, &["--output", "json"]);
    by_variable.env("REGENT_TTL_MAX", "3s");
    let by_variable = process::finish(by_variable);
    assert_eq!(json(&by_variable.stdout)["hold_ms"], 3_600_000, "{by_variable:?}");
    let held = room.serve("127.0.0.1:0", &["--data-dir", &into]);
    let ready = held.get("/readyz");
    assert!(ready.contains("STORE_UNAVAILABLE") && ready.contains("another 3600 s"), "{ready}");
    assert!(held.get("/livez").contains("true"), "the process is in order");

    let into = room.text("short");
    let short = process::finish(restore(&into, &["--ttl-max", "4s"]));
    assert_eq!(short.code, 0, "{short:?}");
    assert!(short.stdout.contains("grants nothing for 4s after it starts"), "{short:?}");
    assert!(short.stdout.contains("shorter than the 1h of the backup"), "{short:?}");
    let server = room.serve("127.0.0.1:0", &["--data-dir", &into]);
    assert!(server.get("/readyz").contains("was restored"), "{}", server.log());
    let told = server.ask(&room, &["cluster", "status"]);
    assert!(told.stdout.contains("grants nothing for another"), "{told:?}");
    until("it is ready", || server.get("/readyz").contains("\"ready\":true"));
    assert!(campaign(&server, &room, "billing").is_some(), "what is ready grants");
}

/// The quorum is gone for good: what one replica remembers becomes a cluster of one, loudly.
#[test]
fn a_lost_quorum_is_recovered_from_one_replica_by_breaking_the_glass() {
    let mut cluster = cluster_of(3);
    cluster.yes_soon(&["group", "create", "kept"]);
    let before = campaign_soon(cluster.server(1), &cluster.room, "billing");
    until("replica 3 has heard of it", || {
        let applied = |id| cluster.status_of(id)["applied_index"].clone();
        applied(3) == applied(1)
    });
    let (from, into) = (cluster.directory(3), cluster.room.text("recovered"));
    let recover = ["cluster", "recover", "--data-dir", &from, "--into", &into];
    let yes = ["--yes-i-lost-the-quorum"];
    let running = cluster.room.run(&[&recover[..], &yes].concat());
    assert_eq!(running.code, 69, "a replica that runs is not lost: {running:?}");
    for id in 1..=3 {
        cluster.kill(id);
    }
    let unsaid = cluster.room.run(&recover);
    assert_eq!(unsaid.code, 64, "{unsaid:?}");
    assert!(unsaid.stderr.contains("two clusters elect two leaders"), "{unsaid:?}");
    let done = cluster.room.run(&[&recover[..], &yes].concat());
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("WARNING: break glass"), "{done:?}");
    assert_ne!(fact(&done.stdout, "cluster"), cluster.id);
    let listen = cluster.replicas[&3].client.clone();
    let server = cluster.room.serve(&listen, &["--data-dir", &into, "--ttl-max", "3s"]);
    assert!(campaign_soon(&server, &cluster.room, "billing") > before + (1 << 32));
    assert!(server.yes(&cluster.room, &["group", "list"]).contains("kept"));
}
