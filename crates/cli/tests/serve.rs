//! The server as an operator meets it: how it starts, what it refuses, how it ends.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use process::{Room, json, mode, until};

#[test]
fn two_servers_never_share_a_directory() {
    let room = Room::new();
    let _server = room.server();
    let data = room.text("data");
    let second = room.run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &data]);
    assert_eq!(second.code, 69, "{second:?}");
    assert!(second.stderr.contains("in use by another process"), "{second:?}");
    assert!(second.stderr.contains("--data-dir"), "{second:?}");
    assert_eq!(second.stderr.lines().filter(|line| line.starts_with("regent:")).count(), 1);
}

#[test]
fn a_port_in_use_is_told_with_the_way_out() {
    let room = Room::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = room.run(&["serve", "--listen", &address]);
    assert_eq!(ended.code, 69, "{ended:?}");
    assert!(ended.stderr.contains(&format!("{address} is in use")), "{ended:?}");
    assert!(ended.stderr.contains("--listen"), "{ended:?}");
}

#[test]
fn a_cluster_of_one_starts_though_the_port_for_peers_is_in_use() {
    let room = Room::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = room.text("data");
    room.serve("127.0.0.1:0", &["--data-dir", &data]).kill();
    let server = room.serve("127.0.0.1:0", &["--data-dir", &data, "--peer-listen", &address]);
    server.yes(&room, &["campaign", "billing", "--node", "a"]);
    assert!(!server.log().contains("listening to peers"), "{}", server.log());
}

#[test]
fn an_empty_directory_never_becomes_a_member_of_a_larger_cluster() {
    let room = Room::new();
    let data = room.text("data");
    for flag in [&["--peer-listen", "127.0.0.1:0"][..], &["--witness"]] {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &data];
        let ended = room.run(&[&serve[..], flag].concat());
        assert_eq!(ended.code, 78, "{ended:?}");
        assert!(ended.stderr.contains("regent cluster init"), "{ended:?}");
        assert!(ended.stderr.contains("must not vote again"), "{ended:?}");
    }
}

#[test]
fn two_kinds_of_store_never_share_a_directory() {
    let room = Room::new();
    let (one, other) = (room.text("one"), room.text("other"));
    for name in ["journal-0.log", "state-4.snap"] {
        std::fs::create_dir_all(room.path("one")).unwrap();
        std::fs::write(room.path("one").join(name), "x").unwrap();
        let ended = room.run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &one]);
        assert_eq!(ended.code, 78, "{ended:?}");
        assert!(
            ended.stderr.contains(name) && ended.stderr.contains("regent migrate"),
            "{ended:?}"
        );
        std::fs::remove_file(room.path("one").join(name)).unwrap();
    }
    let local = format!("local:{one}");
    let ended = room.run(&["serve", "--listen", "127.0.0.1:0", "--store", &local]);
    assert_eq!(ended.code, 78, "{ended:?}");
    assert!(ended.stderr.contains("regent migrate"), "{ended:?}");
    room.serve("127.0.0.1:0", &["--data-dir", &other]).kill();
    let files = format!("file://{other}");
    let ended = room.run(&["serve", "--listen", "127.0.0.1:0", "--store", &files]);
    assert_eq!(ended.code, 78, "{ended:?}");
    assert!(ended.stderr.contains(&format!("--store replica:{other}")), "{ended:?}");
    std::fs::create_dir(room.path("mine")).unwrap();
    std::fs::write(room.path("mine/letter.txt"), "x").unwrap();
    let mine = room.text("mine");
    let ended = room.run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &mine]);
    assert_eq!(ended.code, 78, "{ended:?}");
    assert!(ended.stderr.contains("letter.txt"), "{ended:?}");
}

#[test]
fn settings_of_the_store_hold_from_the_next_start_on() {
    let room = Room::new();
    let data = room.text("data");
    let serve = |more: &[&str]| room.serve("127.0.0.1:0", &[&["--data-dir", &data], more].concat());
    serve(&[]).kill();
    for _ in 0..2 {
        let server = serve(&["--ttl-max", "5s"]);
        let ended = server.ask(&room, &["campaign", "billing", "--node", "a", "--ttl", "6s"]);
        assert_eq!(ended.code, 77, "{ended:?}");
        server.kill();
    }
    let server = serve(&[]);
    server.yes(&room, &["campaign", "billing", "--node", "a", "--ttl", "6s"]);
}

#[test]
fn a_place_where_no_data_can_be_kept_is_told_with_the_way_out() {
    let room = Room::new();
    std::fs::write(room.path("file"), "x").unwrap();
    let below = room.text("file/data");
    let ended = room.run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &below]);
    assert_eq!(ended.code, 78, "{ended:?}");
    assert!(ended.stderr.contains(&below) && ended.stderr.contains("--data-dir"), "{ended:?}");
}

#[test]
fn without_a_word_it_runs_durably_in_the_home_of_its_user() {
    let room = Room::new();
    // Only the port is chosen, so that tests can run side by side.
    let server = room.serve("127.0.0.1:0", &[]);
    server.yes(&room, &["campaign", "billing", "--node", "a"]);
    let data = room.path(".local/share/regent");
    assert_eq!(mode(&data), 0o700);
    assert!(std::fs::read_dir(&data).unwrap().count() > 1);
}

#[test]
fn a_store_that_forgets_and_an_address_that_others_reach_are_told_loudly() {
    let room = Room::new();
    let server = room.serve("0.0.0.0:0", &["--store", "memory:", "--insecure"]);
    let log = server.log();
    assert!(log.contains("WARNING") && log.contains("auth is off"), "{log}");
    assert!(log.contains("nothing survives"), "{log}");
    let quiet = room.server();
    assert!(!quiet.log().contains("WARNING"), "{}", quiet.log());
}

#[test]
fn a_signal_ends_watches_with_a_word_and_the_server_in_order() {
    let room = Room::new();
    let mut server = room.server();
    let watch = server.start(&room, &["watch", "billing"]);
    watch.line();
    let file = room.text("a.session");
    server.yes(&room, &["campaign", "billing", "--node", "a", "--session-file", &file]);
    watch.line();
    server.signal("TERM");
    assert_eq!(server.wait(), 0, "{}", server.log());
    assert!(server.log().contains("shut down"), "{}", server.log());
    until("the watch hears of it", || watch.errors().contains("the server is closing"));
    let server = room.serve(&server.listen(), &["--data-dir", &room.text("data")]);
    assert_eq!(server.yes(&room, &["leader", "billing"]), "a\n");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let room = Room::new();
    let patient = ["--store", "memory:", "--shutdown-grace", "10m", "--body-timeout", "10m"];
    let mut server = room.serve("127.0.0.1:0", &patient);
    // A request whose body never ends is under way for as long as the grace allows. The answer to
    // the one before it shows that both have arrived.
    let mut slow = TcpStream::connect(server.listen()).unwrap();
    let requests = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n\
                    POST /v1/groups/g/campaign HTTP/1.1\r\nhost: localhost\r\n\
                    content-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    slow.write_all(requests.as_bytes()).unwrap();
    let mut answer = [0; 16];
    slow.read_exact(&mut answer).unwrap();
    server.signal("TERM");
    until("the server is told", || server.log().contains("told to end"));
    server.signal("TERM");
    assert_eq!(server.wait(), 130, "{}", server.log());
}

#[test]
fn a_wrong_configuration_is_one_sentence_with_its_line() {
    let room = Room::new();
    std::fs::write(room.path("r.toml"), "# mine\nlistn = \"127.0.0.1:1\"\n").unwrap();
    let ended = room.run(&["serve", "--config", "r.toml"]);
    assert_eq!(ended.code, 78, "{ended:?}");
    let expected = "regent: r.toml:2: there is no setting \"listn\"; did you mean listen?\n";
    assert_eq!(ended.stderr, expected);
    for (arguments, part) in [
        (["serve", "--store", "etdc://x"], "names no store"),
        (["serve", "--listen", "7400"], "no address and port"),
        (["serve", "--requests-max", "0"], "more than zero"),
        (["serve", "--ttl-min", "1ms"], "ttl bounds"),
        (["serve", "--heartbeat", "75ms"], "150 ms / 2 = 75 ms"),
        (["serve", "--peer-advertise", "nowhere"], "no host and port"),
        (["serve", "--config", "missing.toml"], "missing.toml"),
    ] {
        let ended = room.run(&[&arguments[..], &[]].concat());
        assert_eq!(ended.code, 78, "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(part), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn the_settings_that_hold_are_shown_with_their_origin() {
    let room = Room::new();
    std::fs::write(room.path("r.toml"), "requests_max = 7\nlisten = \"127.0.0.1:1\"\n").unwrap();
    let mut command = room.command(&["config", "show", "--origin", "--cluster", "blue"]);
    command.env("REGENT_CONFIG", "r.toml").env("REGENT_LISTEN", "127.0.0.1:2");
    let shown = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let line = |name: &str| {
        let line = shown.lines().find(|line| line.starts_with(&format!("{name} ="))).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("listen"), "listen = \"127.0.0.1:2\" # $REGENT_LISTEN");
    assert_eq!(line("requests_max"), "requests_max = 7 # r.toml:1");
    assert_eq!(line("cluster"), "cluster = \"blue\" # --cluster");
    assert_eq!(line("store"), "store = \"replica:\" # default");
    // What is shown is a file that can be used.
    let plain = room.run(&["config", "show"]);
    std::fs::write(room.path("shown.toml"), &plain.stdout).unwrap();
    let again = room.run(&["config", "show", "--config", "shown.toml"]);
    assert_eq!(again.stdout, plain.stdout);
    let sample = room.run(&["config", "sample"]);
    assert_eq!(sample.stdout, include_str!("../../../config/regent.toml"));
    let as_json = json(&room.run(&["config", "show", "--output", "json"]).stdout);
    assert_eq!(as_json["listen"]["origin"], "default");
}

#[test]
fn a_wrong_command_line_is_64_and_help_is_0() {
    let room = Room::new();
    for arguments in [
        &["campain", "billing"][..],
        &["campaign", "bil ling", "--node", "a"],
        &["campaign", "billing"],
        &["campaign", "billing", "--node", "a", "--ttl", "10"],
        &["leader", "billing", "--server", "ftp://regent:7400"],
        &["renew", "billing"],
        &["watch", "--count", "0"],
    ] {
        let ended = room.run(arguments);
        assert_eq!(ended.code, 64, "{arguments:?}: {ended:?}");
        assert!(!ended.stderr.is_empty() && ended.stdout.is_empty(), "{arguments:?}: {ended:?}");
    }
    for arguments in
        [&["--help"][..], &["help", "exit-codes"], &["campaign", "--help"], &["--version"]]
    {
        let ended = room.run(arguments);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{arguments:?}");
    }
    let help = room.run(&["help", "exit-codes"]).stdout;
    assert!(help.contains("76  the leadership is not yours"), "{help}");
    let ttl = room.run(&["campaign", "billing", "--node", "a", "--ttl", "10"]);
    assert!(ttl.stderr.contains("like 500ms, 10s, 2m or 1h"), "{ttl:?}");
}

#[test]
fn a_server_that_is_away_is_69_with_the_way_out() {
    let room = Room::new();
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{away}");
    for arguments in [
        &["leader", "billing"][..],
        &["campaign", "billing", "--node", "a"],
        &["group", "list", "--output", "json"],
    ] {
        let ended = room.run(&[arguments, &["--server", &url]].concat());
        assert_eq!(ended.code, 69, "{ended:?}");
        assert!(ended.stderr.contains("regent serve"), "{ended:?}");
    }
    let listed = room.run(&["group", "list", "--output", "json", "--server", &url]);
    assert_eq!(json(listed.stderr.lines().last().unwrap())["code"], "UNAVAILABLE");
}

#[test]
fn a_reader_that_has_seen_enough_ends_us_quietly() {
    let room = Room::new();
    let mut command = room.command(&["completions", "bash"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    assert_eq!(said, "");
}
