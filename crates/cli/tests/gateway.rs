//! `regent fence gateway` as a process between writers and a storage: overtaking, pauses, death, large
//! bodies, hostile requests.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;

use process::upstream::{Upstream, answered, put, raw};
use process::{Room, Running, Server, json, until};

/// A gateway before a storage.
struct Gateway {
    running: Running,
    address: String,
    metrics: String,
}

fn gateway(room: &Room, upstream: &Upstream, more: &[&str]) -> Gateway {
    let data = room.text("fence");
    let arguments: Vec<&str> =
        [
            &[
                "fence",
                "gateway",
                "--group",
                "billing",
                "--upstream",
                &upstream.url,
                "--data",
                &data,
            ][..],
            &["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"],
            more,
        ]
        .concat();
    let running = room.start(&arguments);
    let after = |line: String, mark: &str| line.split_once(mark).unwrap().1.to_owned();
    let address = after(running.line_with("listens on"), "http://");
    let metrics = after(running.line_with("metrics at"), "http://");
    let metrics = metrics.trim_end_matches("/metrics").to_owned();
    Gateway { running, address, metrics }
}

impl Gateway {
    fn put(&self, path: &str, term: u64) -> process::upstream::Answered {
        put(&self.address, path, Some(term))
    }

    /// A write that goes on by itself.
    fn putting(&self, path: &str, term: u64) -> thread::JoinHandle<process::upstream::Answered> {
        let (address, path) = (self.address.clone(), path.to_owned());
        thread::spawn(move || put(&address, &path, Some(term)))
    }

    /// A number of the metrics; 0 if it is not told.
    fn number(&self, name: &str) -> u64 {
        let text =
            raw(&self.metrics, b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
            .unwrap_or_default()
    }
}

/// S3: through the gateway, a lower term never passes after a higher one.
#[test]
fn a_stale_write_is_refused_with_both_numbers_and_passes_nowhere() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let gateway = gateway(&room, &upstream, &[]);
    assert_eq!(gateway.put("/a", 100).status, 200);
    assert_eq!(gateway.put("/b", 101).status, 200);
    let stale = gateway.put("/c", 100);
    let problem = stale.problem();
    assert_eq!((stale.status, &problem["code"]), (409, &"STALE_TERM".into()));
    assert_eq!((&problem["given_term"], &problem["current_term"]), (&100.into(), &101.into()));
    assert_eq!(gateway.put("/d", 101).status, 200, "one leader writes more than once");
    let missing = put(&gateway.address, "/e", None);
    assert_eq!((missing.status, &missing.problem()["code"]), (428, &"TERM_MISSING".into()));
    assert_eq!(upstream.terms(), [100, 101, 101]);
    assert_eq!(gateway.number("regent_fence_rejections_total{reason=\"STALE_TERM\"}"), 1);
    assert_eq!(gateway.number("regent_fence_mark"), 101);
}

/// A resource reports the terms it acted under; what it refused stands in the group's history.
#[test]
fn a_gateway_tells_the_service_what_it_admitted_and_refused() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let server = room.server();
    for node in ["a", "b"] {
        let flags = ["campaign", "billing", "--node", node, "--session-file", node, "--ttl", "60s"];
        server.yes(&room, &flags);
        if node == "a" {
            let force = ["step-down", "billing", "--reason", "test", "--immediate", "--yes"];
            server.yes(&room, &force);
        }
    }
    let url = format!("http://{}", server.listen());
    let gateway = gateway(&room, &upstream, &["--report", "bucket/orders", "--server", &url]);
    assert_eq!(gateway.put("/a", 2).status, 200);
    assert_eq!(gateway.put("/b", 1).status, 409);
    until("the service knows", || {
        let fences = json(&server.get("/v1/groups/billing/fences"));
        fences["fences"] == serde_json::json!([{"resource": "bucket/orders", "term": 2}])
    });
    until("the history tells", || {
        server.get("/v1/groups/billing/history").contains("wanted to write under term 1")
    });
}

#[test]
fn reads_pass_without_a_term_if_that_is_allowed() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let read = b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let strict_room = Room::new();
    let without = gateway(&strict_room, &upstream, &[]);
    assert_eq!(answered(&raw(&without.address, read)).status, 428);
    let with = gateway(&room, &upstream, &["--allow-reads"]);
    let answer = answered(&raw(&with.address, read));
    assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
    assert_eq!(put(&with.address, "/a", None).status, 428);
}

/// S3: checking and passing on are two steps, and nothing gets between them.
#[test]
fn a_write_on_its_way_is_not_overtaken_by_a_higher_term() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let gateway = gateway(&room, &upstream, &["--drain-timeout", "60s"]);
    let old = gateway.putting("/hold", 100);
    until("the old write is with the storage", || upstream.held() == 1);
    let new = gateway.putting("/new", 101);
    until("the new one waits", || gateway.number("regent_fence_waiting") == 1);
    assert_eq!(gateway.put("/late", 100).status, 409, "nothing lower is admitted any more");
    assert!(upstream.applied().is_empty(), "{:?}", upstream.applied());
    upstream.release();
    assert_eq!((old.join().unwrap().status, new.join().unwrap().status), (200, 200));
    assert_eq!(upstream.terms(), [100, 101]);
}

/// A leader that was paused past its lease, between its check and its write.
#[test]
fn a_leader_that_was_paused_between_check_and_write_is_refused() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let server = room.server();
    let gateway = gateway(&room, &upstream, &["--strict", "--server", &server.url]);
    let a = keep(&server, &room, "a");
    a.line_with("a leads, term 1");
    let checked = room.path("checked");
    let script = format!(
        "touch {}; sleep 1; exec curl -s -o {} -w '%{{http_code}}\\n' -X PUT -d a -H 'Regent-Term: 1' http://{}/a",
        checked.display(),
        room.text("answer"),
        gateway.address
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    let mut writer = Running::start(&room, command);
    until("it has checked", || checked.exists());
    writer.signal("STOP");
    a.signal("STOP");
    let b = keep(&server, &room, "b");
    b.line_with("b leads, term 2");
    assert_eq!(gateway.put("/b", 2).status, 200);
    writer.signal("CONT");
    assert_eq!(writer.line(), "409");
    assert_eq!(writer.wait(), 0);
    let problem = process::json(&fs::read_to_string(room.path("answer")).unwrap());
    assert_eq!(problem["code"], "STALE_TERM");
    assert_eq!(upstream.terms(), [2]);
    a.signal("CONT");
}

fn keep(server: &Server, room: &Room, node: &str) -> Running {
    server.start(room, &["campaign", "billing", "--node", node, "--ttl", "1s", "--keep"])
}

#[test]
fn in_strict_mode_an_old_term_is_refused_before_the_new_one_has_written() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let server = room.server();
    let gateway = gateway(&room, &upstream, &["--strict", "--server", &server.url]);
    let elect = |node: &str| {
        let file = room.text(&format!("{node}.session"));
        server.yes(
            &room,
            &["campaign", "billing", "--node", node, "--ttl", "30s", "--session-file", &file],
        );
        file
    };
    let a = elect("a");
    assert_eq!(gateway.put("/a", 1).status, 200);
    assert_eq!(gateway.put("/forged", 9).problem()["code"], "NEVER_GRANTED");
    server.yes(&room, &["resign", "billing", "--session-file", &a]);
    assert_eq!(gateway.put("/a", 1).problem()["code"], "TERM_OVER", "nobody is in office");
    elect("b");
    assert_eq!(gateway.put("/a", 1).problem()["code"], "STALE_TERM");
    assert_eq!(gateway.put("/b", 2).status, 200);
    server.kill();
    let unknown = gateway.put("/b", 2);
    assert_eq!((unknown.status, &unknown.problem()["code"]), (503, &"FENCE_CLOSED".into()));
    assert!(unknown.head.to_ascii_lowercase().contains("retry-after: 1"), "{unknown:?}");
    assert_eq!(upstream.terms(), [1, 2]);
}

#[test]
fn without_an_answer_the_fence_stays_shut_until_the_outcome_is_settled() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let times = ["--drain-timeout", "300ms", "--settle", "500ms"];
    let gateway = gateway(&room, &upstream, &times);
    let old = gateway.putting("/hold", 100);
    until("the old write is with the storage", || upstream.held() == 1);
    let shut = gateway.put("/new", 101);
    assert_eq!((shut.status, &shut.problem()["code"]), (503, &"FENCE_CLOSED".into()));
    assert!(shut.problem()["retry_after_ms"].as_u64().unwrap() > 0);
    let old = old.join().unwrap();
    assert_eq!((old.status, &old.problem()["code"]), (504, &"UNCERTAIN".into()));
    assert_eq!(old.problem()["current_term"], 101, "it may have happened, and the office is lost");
    until("it opens", || gateway.put("/new", 101).status == 200);
    assert_eq!(upstream.terms(), [101]);
}

/// A write of a lower term whose body still comes is cut, and the higher one need not wait for it.
#[test]
fn an_upload_of_a_lower_term_is_cut_when_a_higher_one_comes() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let gateway = gateway(&room, &upstream, &["--settle", "200ms"]);
    let mut slow = TcpStream::connect(&gateway.address).unwrap();
    slow.write_all(
        b"PUT /slow HTTP/1.1\r\nhost: x\r\nregent-term: 100\r\ncontent-length: 1000\r\n\r\nhalf",
    )
    .unwrap();
    until("it is inside", || gateway.number("regent_fence_in_flight") == 1);
    assert_eq!(gateway.put("/new", 101).status, 200);
    let mut told = String::new();
    slow.read_to_string(&mut told).unwrap();
    let told = answered(&told);
    assert_eq!((told.status, &told.problem()["code"]), (504, &"UNCERTAIN".into()));
    assert_eq!(upstream.terms(), [101]);
}

#[test]
fn a_gateway_that_is_killed_between_raising_and_passing_on_remembers_the_mark() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let mut first = gateway(&room, &upstream, &["--drain-timeout", "60s", "--settle", "300ms"]);
    let old = first.putting("/hold", 100);
    until("the old write is with the storage", || upstream.held() == 1);
    let address = first.address.clone();
    let new = thread::spawn(move || {
        raw(
            &address,
            b"PUT /n HTTP/1.1\r\nhost: x\r\nregent-term: 101\r\ncontent-length: 0\r\n\r\n",
        )
    });
    until("the mark is kept", || {
        fs::read_to_string(room.path("fence").join("mark")).unwrap().contains("term 101\n")
    });
    first.running.kill();
    assert_eq!(new.join().unwrap(), "", "it was not passed on");
    drop(old);
    let second = gateway(&room, &upstream, &["--settle", "300ms"]);
    assert_eq!(second.put("/old", 100).problem()["current_term"], 101);
    assert_eq!(second.put("/new", 101).status, 200, "after what was on its way is given time");
    assert_eq!(upstream.terms(), [101]);
}

#[test]
fn a_gateway_that_is_told_to_end_answers_what_is_under_way_and_ends_quietly() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let mut first = gateway(&room, &upstream, &[]);
    let old = first.putting("/hold", 100);
    until("the write is with the storage", || upstream.held() == 1);
    first.running.signal("TERM");
    until("it does not listen any more", || TcpStream::connect(&first.address).is_err());
    upstream.release();
    assert_eq!(old.join().unwrap().status, 200);
    assert_eq!(first.running.wait(), 0, "{}", first.running.errors());
    let mark = fs::read_to_string(room.path("fence").join("mark")).unwrap();
    assert!(mark.contains("term 100\nended quiet\n"), "{mark}");
    // Nothing has to settle: a settling of an hour would be noticed.
    let second = gateway(&room, &upstream, &["--settle", "1h"]);
    assert_eq!(second.put("/new", 101).status, 200);
}

#[test]
fn a_mark_that_is_damaged_missing_or_in_use_is_a_refusal_to_start() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let mut first = gateway(&room, &upstream, &[]);
    assert_eq!(first.put("/a", 7).status, 200);
    let again = |group: &str| {
        let data = room.text("fence");
        room.run(&[
            "fence",
            "gateway",
            "--group",
            group,
            "--upstream",
            &upstream.url,
            "--data",
            &data,
            "--listen",
            "127.0.0.1:0",
        ])
    };
    let twice = again("billing");
    assert_eq!(twice.code, 69, "{twice:?}");
    assert!(twice.stderr.contains("in use by another gateway"), "{twice:?}");
    first.running.kill();
    assert_eq!(again("other").code, 78, "another group's mark");
    let mark = room.path("fence").join("mark");
    let whole = fs::read(&mark).unwrap();
    fs::write(&mark, &whole[..whole.len() - 1]).unwrap();
    let damaged = again("billing");
    assert_eq!(damaged.code, 74, "{damaged:?}");
    assert!(damaged.stderr.contains("is damaged"), "{damaged:?}");
    fs::remove_file(&mark).unwrap();
    let missing = again("billing");
    assert_eq!(missing.code, 74, "{missing:?}");
    assert!(missing.stderr.contains("is missing although"), "{missing:?}");
}

/// S12: bodies of any size pass both ways, and none is gathered.
#[test]
fn fifty_megabytes_stream_both_ways_in_bounded_memory() {
    const BYTES: usize = 50 << 20;
    let (room, upstream) = (Room::new(), Upstream::start());
    let gateway = gateway(&room, &upstream, &[]);
    assert_eq!(gateway.put("/warm", 1).status, 200);
    let before = peak_kib(gateway.running.id());
    let mut stream = TcpStream::connect(&gateway.address).unwrap();
    let mut reading = stream.try_clone().unwrap();
    let reader = thread::spawn(move || {
        let (mut total, mut part) = (0, vec![0; 1 << 16]);
        while let Ok(count) = reading.read(&mut part) {
            if count == 0 {
                break;
            }
            total += count;
        }
        total
    });
    let head = format!("PUT /big/{BYTES} HTTP/1.1\r\nhost: x\r\nregent-term: 1\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n").unwrap();
    let part = vec![b'y'; 1 << 16];
    for _ in 0..BYTES / part.len() {
        write!(stream, "{:x}\r\n", part.len()).unwrap();
        stream.write_all(&part).unwrap();
        stream.write_all(b"\r\n").unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    assert!(reader.join().unwrap() > BYTES);
    assert_eq!(upstream.applied()[1].bytes, BYTES);
    let grown = peak_kib(gateway.running.id()) - before;
    assert!(grown < 16 << 10, "the gateway grew by {grown} KiB for two bodies of 50 MiB");
}

/// The largest size that a process has had.
fn peak_kib(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

/// S12: whatever comes, the next request is answered, and nothing but whole writes with one plain term reach
/// the storage.
#[test]
fn hostile_requests_reach_nobody_and_the_next_one_is_answered() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let gateway =
        gateway(&room, &upstream, &["--head-timeout", "500ms", "--idle-timeout", "500ms"]);
    let put = "PUT /h HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    let long = format!("{put}regent-term: 7\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    let longer = format!("{put}regent-term: 7\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    let many = format!("{put}regent-term: 7\r\n{}\r\n", "a: b\r\n".repeat(200));
    let hostile: &[(&str, &str)] = &[
        ("400", &format!("{put}regent-term: 7\r\nregent-term: 7\r\ncontent-length: 0\r\n\r\n")),
        ("400", &format!("{put}regent-term: +7\r\ncontent-length: 0\r\n\r\n")),
        ("400", &format!("{put}regent-term: 7, 8\r\ncontent-length: 0\r\n\r\n")),
        ("400", &format!("{put}regent-term: 0\r\ncontent-length: 0\r\n\r\n")),
        ("400", &format!("{put}regent-term: 9007199254740992\r\ncontent-length: 0\r\n\r\n")),
        ("428", &format!("{put}regent_term: 7\r\ncontent-length: 0\r\n\r\n")),
        ("400", &format!("{put}regent-term: 7\r\nregent-term : 8\r\n\r\n")),
        ("400", &format!("{put}regent-term: 7\r\nupgrade: websocket\r\n\r\n")),
        ("400", &format!("{put}regent-term: 7\r\nhost: y\r\n\r\n")),
        (
            "400",
            &format!("{put}regent-term: 7\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nabcd"),
        ),
        ("400", &format!("{put}regent-term: 7\r\ncontent-length: -1\r\n\r\n")),
        ("400", &format!("{put}regent-term: 7\r\ntransfer-encoding: chunked, gzip\r\n\r\n")),
        ("405", "CONNECT x:80 HTTP/1.1\r\nhost: x\r\nregent-term: 7\r\n\r\n"),
        ("400", "PUT /h HTTP/1.1\r\nregent-term: 7\r\ncontent-length: 0\r\n\r\n"),
        ("400", "GET / HTTP/9.9\r\n\r\n"),
        ("400", "\u{1}\u{2}\u{3} nothing at all\r\n\r\n"),
        ("400", &long),
        ("431", &longer),
        ("431", &many),
        // A head or a body that never ends: closed in time.
        ("", "PUT /h HTTP/1.1\r\nhost: x\r\nregent-term"),
        ("504", &format!("{put}regent-term: 7\r\ncontent-length: 100\r\n\r\nhalf")),
        ("504", &format!("{put}regent-term: 7\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n")),
    ];
    for (number, (status, request)) in hostile.iter().enumerate() {
        let answer = raw(&gateway.address, request.as_bytes());
        let got = answer.split(' ').nth(1).unwrap_or_default();
        assert_eq!(
            got,
            *status,
            "{number}: {:?} -> {answer:?}",
            &request[..request.len().min(200)]
        );
        assert_eq!(gateway.put("/good", 7).status, 200, "after {number}");
    }
    let applied = upstream.applied();
    assert_eq!(applied.len(), hostile.len(), "{applied:?}");
    assert!(applied.iter().all(|write| write.path == "/good" && write.term == Some(7)));
}

/// A body that says two things about its length is one request here and the same one behind.
#[test]
fn no_request_is_smuggled_behind_another() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let gateway = gateway(&room, &upstream, &[]);
    let inner = "PUT /smuggled HTTP/1.1\r\nhost: x\r\nregent-term: 9\r\ncontent-length: 0\r\n\r\n";
    let chunked = format!("{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len());
    for lengths in [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n",
        "transfer-encoding: chunked\r\nconnection: content-length\r\ncontent-length: 4\r\n",
    ] {
        let request = format!(
            "PUT /outer HTTP/1.1\r\nhost: x\r\nregent-term: 7\r\nconnection: close\r\n{lengths}\r\n{chunked}"
        );
        let _ = raw(&gateway.address, request.as_bytes());
        assert_eq!(gateway.put("/good", 7).status, 200);
    }
    let applied = upstream.applied();
    assert!(applied.iter().all(|write| write.path != "/smuggled"), "{applied:?}");
    assert!(applied.iter().all(|write| write.term == Some(7)), "{applied:?}");
}

/// An upstream that is not there is told as such; nothing was passed on.
#[test]
fn an_upstream_that_is_away_is_told_and_tried_again() {
    let room = Room::new();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let data = room.text("fence");
    let away = format!("http://{nobody}");
    let running = room.start(&[
        "fence",
        "gateway",
        "--group",
        "billing",
        "--upstream",
        &away,
        "--data",
        &data,
        "--listen",
        "127.0.0.1:0",
    ]);
    let line = running.line_with("listens on");
    let address = line.split_once("http://").unwrap().1;
    let answer = put(address, "/a", Some(1));
    assert_eq!((answer.status, &answer.problem()["code"]), (502, &"UPSTREAM_UNAVAILABLE".into()));
    // Nothing has to settle, because nothing has left.
    let higher = put(address, "/a", Some(2));
    assert_eq!(higher.problem()["code"], "UPSTREAM_UNAVAILABLE");
}
