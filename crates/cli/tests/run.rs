//! `regent run` in good weather: the program starts when elected, is told what it needs, and its end is
//! the end of the leadership.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use process::recorder::Recorder;
use process::{Room, json, until};

/// Long where a busy machine must not matter.
const LONG: [&str; 2] = ["--ttl", "20s"];

#[test]
fn a_program_is_told_its_term_and_its_code_is_passed_on() {
    let room = Room::new();
    let server = room.server();
    let script = "echo $REGENT_GROUP $REGENT_NODE $REGENT_TERM; cat $REGENT_FILE; exit 7";
    let arguments = ["run", "-g", "billing", "--node", "a", "--", "sh", "-c", script];
    let ended = server.ask(&room, &arguments);
    assert_eq!(ended.code, 7, "{ended:?}");
    let (told, file) = ended.stdout.split_once('\n').unwrap();
    assert_eq!(told, "billing a 1");
    assert_eq!(json(file)["group"], "billing", "{file}");
    assert!(ended.stderr.contains("everything the program starts is held by "), "{ended:?}");
    assert_eq!(server.ask(&room, &["leader", "billing"]).code, 1, "the office is given up");
    let again = server.ask(&room, &["run", "-g", "billing", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(again.code, 137, "{again:?}");
    let history = server.yes(&room, &["history", "billing"]);
    assert!(!history.contains("expired"), "{history}");
}

#[test]
fn a_program_that_cannot_be_run_ends_like_in_a_shell() {
    let room = Room::new();
    let server = room.server();
    let ended = server.ask(&room, &["run", "-g", "billing", "--", "/no/such/program"]);
    assert_eq!(ended.code, 127, "{ended:?}");
    assert!(ended.stderr.contains("/no/such/program: no such file or directory"), "{ended:?}");
    assert_eq!(server.ask(&room, &["run", "-g", "billing", "--", "/tmp"]).code, 126);
    assert_eq!(server.ask(&room, &["leader", "billing"]).code, 1);
}

#[test]
fn the_next_in_line_starts_when_the_first_has_ended_and_not_before() {
    let room = Room::new();
    let server = room.server();
    let recorder = Recorder::new(&room);
    let mut a = recorder.run(&server, "a", &LONG, &["meek"]);
    recorder.await_line("start", "a");
    let mut b = recorder.run(&server, "b", &LONG, &["meek"]);
    until("b stands", || server.standbys(&room, "billing") == 1);
    a.signal("USR1");
    recorder.await_line("usr1", "a");
    a.signal("TERM");
    assert_eq!(a.wait(), 5, "{}", a.errors());
    recorder.await_line("start", "b");
    b.signal("INT");
    b.wait();
    assert!(recorder.is_quiet());
    recorder.check(2);
    assert_eq!(recorder.count("stop", "a"), 1);
    let history = server.yes(&room, &["history", "billing"]);
    assert!(!history.contains("expired"), "nobody had to wait for a ttl: {history}");
}

#[test]
fn what_a_program_leaves_behind_is_ended_before_the_office_is_given_up() {
    let room = Room::new();
    let server = room.server();
    for contain in ["auto", "descendants"] {
        let left = room.text(&format!("left-{contain}"));
        let script = format!(
            "setsid sh -c 'trap \"\" TERM; echo $$ >{left}; exec sleep 1000' & \
                              while [ ! -s {left} ]; do :; done; exit 3"
        );
        let flags = ["run", "-g", "billing", "--contain", contain, "--", "sh", "-c", &script];
        let mut command = room.command(&flags);
        command.env("REGENT_SERVER", &server.url).env("MARK", &left);
        let ended = command.output().unwrap();
        assert_eq!(ended.status.code(), Some(3), "{ended:?}");
        let mark = format!("MARK={left}");
        let lives = fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|pair| pair == mark.as_bytes())
        });
        assert!(!lives, "{contain}");
    }
}

#[test]
fn whoever_does_not_wait_is_told_so() {
    let room = Room::new();
    let server = room.server();
    let recorder = Recorder::new(&room);
    let _a = recorder.run(&server, "a", &LONG, &["meek"]);
    recorder.await_line("start", "a");
    for flags in [&["--once"][..], &["--wait", "300ms"]] {
        let mut b = recorder.run(&server, "b", &[&LONG, flags].concat(), &["meek"]);
        assert_eq!(b.wait(), 1, "{}", b.errors());
        assert!(b.errors().contains("not elected in billing: a leads, term 1"), "{}", b.errors());
    }
    assert_eq!(server.standbys(&room, "billing"), 0);
    recorder.check(1);
}

/// A crash loop costs the group its leader again and again, and its history the changes that mattered.
#[test]
fn a_program_that_fails_at_once_takes_the_office_less_and_less_often() {
    let room = Room::new();
    let server = room.server();
    let flags = ["run", "-g", "billing", "--ttl", "1s", "--restart", "--", "sh", "-c"];
    let a = server.start(&room, &[&flags[..], &["echo x >>begun; exit 1"]].concat());
    std::thread::sleep(std::time::Duration::from_secs(6));
    a.signal("TERM");
    let begun = fs::read_to_string(room.path("begun")).unwrap().lines().count();
    assert!((2..=5).contains(&begun), "{begun} terms in six seconds: {}", a.errors());
    assert!(a.errors().contains("in a row; this process stands again in"), "{}", a.errors());
    let why = server.yes(&room, &["why", "billing"]);
    assert!(why.contains("times in a row since"), "the history shows it: {why}");
}

#[test]
fn an_operator_ends_a_program_and_it_stands_again_or_goes() {
    let room = Room::new();
    let server = room.server();
    let recorder = Recorder::new(&room);
    let mut a = recorder.run(&server, "a", &["--ttl", "3s"], &["meek"]);
    recorder.await_line("start", "a");
    server.yes(&room, &["step-down", "billing", "--reason", "test"]);
    until("a starts again", || recorder.count("start", "a") >= 2);
    assert_eq!(recorder.count("stop", "a"), 1, "it was told to stop: {}", a.errors());
    a.signal("TERM");
    assert_eq!(a.wait(), 5, "{}", a.errors());
    let mut b = recorder.run(&server, "b", &["--ttl", "3s", "--exit-on-lost"], &["stubborn"]);
    recorder.await_line("start", "b");
    server.yes(&room, &["step-down", "billing", "--reason", "test"]);
    assert_eq!(b.wait(), 76, "{}", b.errors());
    assert!(recorder.is_quiet());
    recorder.check(3);
}

#[test]
fn a_candidate_that_may_never_stand_is_told_at_once() {
    let room = Room::new();
    let server = room.server();
    server.yes(&room, &["group", "create", "billing", "--allow", "web-*"]);
    let refused = server.ask(&room, &["run", "-g", "billing", "--node", "db-1", "--", "true"]);
    assert_eq!(refused.code, 77, "{refused:?}");
    assert!(refused.stderr.contains("db-1 may not campaign in billing"), "{refused:?}");
}

#[test]
fn nothing_starts_before_whoever_led_before_is_fenced() {
    let room = Room::new();
    let server = room.server();
    let (log, ready) = (room.text("fenced"), room.text("ready"));
    let fence = format!(
        "echo $REGENT_PREVIOUS_NODE $REGENT_PREVIOUS_TERM $REGENT_TERM >>{log}; test -e {ready}"
    );
    let first = ["run", "-g", "billing", "--node", "a", "--fence-previous", &fence, "--", "true"];
    let ended = server.ask(&room, &first);
    assert_eq!(ended.code, 0, "nobody is to be fenced: {ended:?}");
    assert!(!room.path("fenced").exists());
    let recorder = Recorder::new(&room);
    let flags = ["--ttl", "2s", "--fence-previous", &fence];
    let b = recorder.run(&server, "b", &flags, &["meek"]);
    until("the fence fails", || fs::read_to_string(&log).is_ok_and(|log| log.contains("a 1 2\n")));
    assert_eq!(recorder.count("start", "b"), 0, "{}", b.errors());
    fs::write(&ready, "").unwrap();
    recorder.await_line("start", "b");
    recorder.check(1);
}

#[test]
fn a_program_that_fails_its_probe_gives_the_office_up() {
    let room = Room::new();
    let server = room.server();
    let recorder = Recorder::new(&room);
    let (well, asked) = (room.text("well"), room.text("asked"));
    fs::write(&well, "").unwrap();
    let probe = format!("test -e {well} && touch {asked}");
    let flags = ["--ttl", "3s", "--probe", &probe, "--exit-on-lost"];
    let mut a = recorder.run(&server, "a", &flags, &["meek"]);
    recorder.await_line("start", "a");
    until("the probe proves something", || room.path("asked").exists());
    fs::remove_file(&well).unwrap();
    assert_eq!(a.wait(), 76, "{}", a.errors());
    assert!(recorder.is_quiet());
    let history = server.yes(&room, &["history", "billing"]);
    assert!(history.contains("resigned") && !history.contains("expired"), "{history}");
}

#[test]
fn hooks_tell_of_the_beginning_and_of_the_end() {
    let room = Room::new();
    let server = room.server();
    let log = room.text("hooks");
    let hook = format!("echo $REGENT_EVENT $REGENT_NODE $REGENT_TERM >>{log}");
    let program = format!("while ! grep -q elected {log}; do :; done");
    let arguments = [
        &["run", "-g", "billing", "--node", "a", "--on-elected", &hook, "--on-lost", &hook][..],
        &["--", "sh", "-c", &program],
    ]
    .concat();
    assert_eq!(server.ask(&room, &arguments).code, 0);
    assert_eq!(fs::read_to_string(&log).unwrap(), "elected a 1\nlost a 1\n");
}

#[test]
fn a_sidecar_says_who_leads_and_for_how_long() {
    let room = Room::new();
    let server = room.server();
    let recorder = Recorder::new(&room);
    let status = ["--ttl", "20s", "--status-listen", "127.0.0.1:0"];
    let a = recorder.run(&server, "a", &status, &["meek"]);
    let file = room.text("state");
    let also = [&status[..], &["--state-file", &file]].concat();
    recorder.await_line("start", "a");
    let b = recorder.run(&server, "b", &also, &["meek"]);
    let address = |errors: String| {
        let (_, rest) = errors.split_once("status is at http://")?;
        Some(rest.split_once('/')?.0.to_owned())
    };
    let get = |running: &process::Running, path: &str| {
        until("a status", || address(running.errors()).is_some());
        let mut stream = TcpStream::connect(address(running.errors()).unwrap()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().to_owned(), json(body))
    };
    until("a shows that it leads", || get(&a, "/").1["phase"] == "leading");
    let (code, shown) = get(&a, "/leading");
    assert_eq!((code.as_str(), &shown["leader"]), ("200", &"a".into()));
    assert!(shown["remaining_ms"].as_u64().unwrap() > 0, "{shown}");
    until("b sees who leads", || get(&b, "/").1["leader"] == "a");
    assert_eq!(get(&b, "/leading").0, "503");
    assert_eq!(json(&fs::read_to_string(&file).unwrap())["phase"], "standby");
}

#[test]
fn a_service_manager_is_told_and_the_program_is_not_mistaken_for_the_service() {
    let room = Room::new();
    let server = room.server();
    let socket = room.path("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    let hidden = "test -z \"$NOTIFY_SOCKET$WATCHDOG_USEC\"";
    let mut command = room.command(&["run", "-g", "billing", "--", "sh", "-c", hidden]);
    command.env("REGENT_SERVER", &server.url);
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "30000000");
    let ended = command.output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    manager.set_nonblocking(true).unwrap();
    let mut told = String::new();
    let mut datagram = [0; 4096];
    while let Ok(count) = manager.recv(&mut datagram) {
        told.push_str(&String::from_utf8_lossy(&datagram[..count]));
        told.push('\n');
    }
    for line in ["READY=1", "WATCHDOG=1", "STOPPING=1"] {
        assert!(told.lines().any(|said| said == line), "{line}: {told}");
    }
    assert!(told.contains("STATUS=billing: ") && told.contains("the program runs"), "{told}");
}

/// Waiting for something that is no Regent would never end, and would never say why.
#[test]
fn a_server_that_is_no_regent_is_refused_at_once() {
    let room = Room::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (mut stream, mut request) = (stream, [0; 4096]);
            let _ = stream.read(&mut request);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
        }
    });
    let ended = room.run(&["run", "-g", "billing", "--server", &url, "--", "touch", "ran"]);
    assert_eq!(ended.code, 64, "{ended:?}");
    assert!(ended.stderr.contains(&url), "it says which: {ended:?}");
    assert!(!room.path("ran").exists(), "nothing was run");
}
