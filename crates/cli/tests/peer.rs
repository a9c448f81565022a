//! `regent peer` between real processes: who leads when leaders are killed, stopped and started again, and
//! what becomes of everything that is not said by a peer.
//!
//! What is shown here is weak on purpose: two leaders while one is stopped, an office that comes and goes
//! with a node. A partition cannot be made on loopback without privileges; the lab shows it
//! (`regent lab run bully clean-partition`).

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use process::cluster::own_host;
use process::{Room, Running, becomes_so, json, until};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Slow enough for a machine that is busy with something else: a ring elects the highest that answers in time,
/// and keeps the one it has elected when a higher one was late.
const PACES: [&str; 6] = ["--heartbeat", "400ms", "--patience", "8s..10s", "--answer", "2s"];

/// The first of them.
const HEARTBEAT: Duration = Duration::from_millis(400);

/// Peers of one list, by name.
struct Peers {
    room: Room,
    /// An address that no other test has, so that every port of it is free.
    host: String,
    algorithm: &'static str,
    addresses: BTreeMap<&'static str, SocketAddr>,
    running: BTreeMap<&'static str, (Running, Vec<String>)>,
}

impl Peers {
    fn new(algorithm: &'static str, names: &[&'static str]) -> Self {
        let mut peers = Self {
            room: Room::new(),
            host: own_host(),
            algorithm,
            addresses: BTreeMap::new(),
            running: BTreeMap::new(),
        };
        for name in names {
            peers.add(name);
        }
        peers
    }

    /// One more for the list of those who start from here on.
    fn add(&mut self, name: &'static str) {
        let port = 7501 + self.addresses.len();
        self.addresses.insert(name, format!("{}:{port}", self.host).parse().unwrap());
    }

    /// Somebody who is none of them.
    fn stranger(&self) -> UdpSocket {
        UdpSocket::bind((self.host.as_str(), 0)).unwrap()
    }

    /// All of them, the highest first: nobody is elected before the one that is to win is there.
    fn started(algorithm: &'static str, names: &[&'static str]) -> Self {
        let mut peers = Self::new(algorithm, names);
        for name in names.iter().rev() {
            peers.start(name, &[]);
        }
        peers
    }

    fn list(&self) -> String {
        let peers: Vec<String> =
            self.addresses.iter().map(|(name, address)| format!("{name}={address}")).collect();
        peers.join(",")
    }

    fn start(&mut self, name: &'static str, more: &[&str]) {
        let list = self.list();
        let own = ["peer", "--algorithm", self.algorithm, "--node", name, "--peers", &list];
        let running = self.room.start(&[&own[..], &PACES, more].concat());
        until("it listens", || running.errors().contains("peers by"));
        self.running.insert(name, (running, Vec::new()));
    }

    fn get(&self, name: &str) -> &Running {
        &self.running[name].0
    }

    fn kill(&mut self, name: &str) {
        let (mut running, _) = self.running.remove(name).unwrap();
        running.signal("KILL");
        running.wait();
    }

    /// Everything that a peer has said.
    fn said(&mut self, name: &str) -> &[String] {
        let (running, said) = self.running.get_mut(name).unwrap();
        said.extend(running.so_far());
        said
    }

    fn last(&mut self, name: &str) -> String {
        self.said(name).last().cloned().unwrap_or_default()
    }

    /// Waits until the last word of all of these is that this one leads.
    fn until_all_follow(&mut self, names: &[&str], leader: &str) {
        let agree = becomes_so(|| {
            names.iter().all(|name| {
                let expected = if *name == leader {
                    format!("{name} leads")
                } else {
                    format!("{name} follows {leader}")
                };
                self.last(name) == expected
            })
        });
        let said: Vec<_> = names.iter().map(|name| self.said(name).to_vec()).collect();
        assert!(agree, "{names:?} do not agree on {leader}: {said:?}");
    }
}

impl Peers {
    /// Waits until all of these name the same leader, which is one of them and says so, and stay with it for two of
    /// its heartbeats.
    fn until_all_agree(&mut self, names: &[&str]) -> String {
        let (mut since, mut last) = (Instant::now(), String::new());
        let agree = becomes_so(|| {
            let words: Vec<String> = names.iter().map(|name| self.last(name)).collect();
            let leads = words.iter().find_map(|word| word.strip_suffix(" leads")).unwrap_or("");
            let is_so = |(name, word): (&&str, &String)| {
                *word == format!("{name} leads") && *name == leads
                    || *word == format!("{name} follows {leads}")
            };
            if leads != last || !names.iter().zip(&words).all(is_so) {
                (since, last) = (Instant::now(), leads.to_owned());
            }
            !last.is_empty() && since.elapsed() > 2 * HEARTBEAT
        });
        let said: Vec<_> = names.iter().map(|name| self.said(name).to_vec()).collect();
        assert!(agree, "{names:?} do not agree: {said:?}");
        last
    }
}

/// Killed, succeeded, started again; then stopped and continued. What differs is said by the caller.
fn a_leader_is_killed_started_stopped_and_continued(algorithm: &'static str) {
    let is_bully = algorithm == "bully";
    let mut peers = Peers::started(algorithm, &NAMES);
    peers.until_all_follow(&NAMES, "e");
    let greeting = peers.get("a").errors();
    for part in ["lead beside another leader", "no term", "where a wrong leader is harmless"] {
        assert!(greeting.contains(part), "{greeting}");
    }

    // kill -9: the next highest leads.
    peers.kill("e");
    peers.until_all_follow(&NAMES[..4], "d");

    // Started again, the bully takes the office back from a leader that held it well; a ring does not.
    peers.start("e", &[]);
    let leader = if is_bully { "e" } else { "d" };
    peers.until_all_follow(&NAMES, leader);

    // Stopped: another one leads, and the stopped one has not taken back what it said. Two leaders.
    let standby = if is_bully { "d" } else { "e" };
    let others: Vec<&str> = NAMES.into_iter().filter(|name| *name != leader).collect();
    let said_before = peers.said(leader).len();
    peers.get(leader).signal("STOP");
    peers.until_all_follow(&others, standby);
    assert_eq!(peers.last(leader), format!("{leader} leads"));
    assert_eq!(peers.last(standby), format!("{standby} leads"));

    // Continued: one again. Both show themselves, and the lower gives way. In a ring a token that waited for the
    // stopped node may go round meanwhile and elect that one once more; all of them agree on it then.
    peers.get(leader).signal("CONT");
    let last = if algorithm == "ring" { peers.until_all_agree(&NAMES) } else { "e".to_owned() };
    peers.until_all_follow(&NAMES, &last);
    assert!([leader, standby].contains(&last.as_str()), "{last} leads");
    if is_bully {
        // It never knew: to itself it has led all the time.
        assert_eq!(peers.said(leader).len(), said_before, "{:?}", peers.said(leader));
    }
    for name in NAMES {
        let (mut running, _) = peers.running.remove(name).unwrap();
        running.signal("TERM");
        assert_eq!(running.wait(), 0, "{}", running.errors());
    }
}

#[test]
fn bullies_are_killed_started_stopped_and_continued() {
    a_leader_is_killed_started_stopped_and_continued("bully");
}

#[test]
fn a_ring_is_killed_started_stopped_and_continued() {
    a_leader_is_killed_started_stopped_and_continued("ring");
}

#[test]
fn chang_roberts_is_killed_started_stopped_and_continued() {
    a_leader_is_killed_started_stopped_and_continued("chang-roberts");
}

/// The weakness of the bully by name: the office goes along with a node that comes and goes.
#[test]
fn a_bully_that_flaps_takes_the_office_along() {
    let names = &NAMES[..3];
    let mut peers = Peers::started("bully", names);
    peers.until_all_follow(names, "c");
    for _ in 0..2 {
        peers.kill("c");
        peers.until_all_follow(&names[..2], "b");
        peers.start("c", &[]);
        peers.until_all_follow(names, "c");
    }
    let of_b = peers.said("b").iter().filter(|line| *line == "b leads").count();
    assert!(of_b >= 2, "{:?}", peers.said("b"));
}

#[test]
fn whoever_is_left_alone_leads_alone() {
    for algorithm in ["bully", "ring", "chang-roberts"] {
        let mut peers = Peers::new(algorithm, &NAMES[..3]);
        peers.start("a", &[]);
        peers.until_all_follow(&["a"], "a");
    }
}

#[test]
fn garbage_is_counted_and_told_once_and_nobody_falls() {
    let names = &NAMES[..3];
    let mut peers = Peers::started("ring", names);
    peers.until_all_follow(names, "c");
    let stranger = peers.stranger();
    let targets: Vec<SocketAddr> = peers.addresses.values().copied().collect();
    let head = b"rgpr\x01\x02\x00\x20";
    for target in &targets {
        for number in 0..50_u8 {
            for bytes in [&[number; 40][..], b"", head, &[b'x'; 2000], b"rgpr\x07"] {
                stranger.send_to(bytes, target).unwrap();
            }
        }
    }
    for name in names {
        let running = peers.get(name);
        until("it tells of each reason", || {
            let errors = running.errors();
            ["it cannot be read", "longer than any of ours", "version 7"]
                .iter()
                .all(|part| errors.contains(part))
        });
        let told = running.errors().matches("it cannot be read").count();
        assert_eq!(told, 1, "{}", running.errors());
    }
    peers.kill("c");
    peers.until_all_follow(&names[..2], "b");
    let (mut running, _) = peers.running.remove("a").unwrap();
    running.signal("TERM");
    assert_eq!(running.wait(), 0);
    let errors = running.errors();
    assert!(errors.contains("datagrams dropped: ") && errors.contains(" unreadable"), "{errors}");
}

/// A port that is always readable leaves time for elections, and for the end.
#[test]
fn a_flood_stops_neither_elections_nor_the_end() {
    let names = &NAMES[..3];
    let mut peers = Peers::started("bully", names);
    peers.until_all_follow(names, "c");
    let is_over = Arc::new(AtomicBool::new(false));
    let flood = {
        let (target, is_over) = (peers.addresses["b"], Arc::clone(&is_over));
        let stranger = peers.stranger();
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let _ = stranger.send_to(&[7; 60], target);
            }
        })
    };
    let b = peers.get("b");
    until("the flood is there", || b.errors().contains("it cannot be read"));
    let (mut b, _) = peers.running.remove("b").unwrap();
    b.signal("TERM");
    assert_eq!(b.wait(), 0);
    is_over.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    peers.until_all_follow(&["a", "c"], "c");
}

#[test]
fn processes_that_were_given_different_lists_refuse_each_other_and_say_so() {
    let mut peers = Peers::started("bully", &NAMES[..2]);
    peers.until_all_follow(&NAMES[..2], "b");
    // The same names and addresses, and one more.
    peers.add("c");
    peers.start("c", &[]);
    let c = peers.addresses["c"];
    for name in &NAMES[..2] {
        let running = peers.get(name);
        let line = format!("what {c} sends is dropped: its sender was given other --peers");
        until("it is told of", || running.errors().contains(&line));
        until("it is told of once", || running.errors().matches(&line).count() == 1);
    }
    // To itself it leads; the others go on as they were.
    peers.until_all_follow(&["c"], "c");
    peers.until_all_follow(&NAMES[..2], "b");
}

#[test]
fn processes_of_different_algorithms_or_paces_refuse_each_other_and_say_so() {
    for (more, why) in [
        (&["--heartbeat", "201ms"][..], "other --peers or other paces"),
        (&["--algorithm", "ring"][..], "its sender runs"),
    ] {
        let peers = Peers::new("bully", &NAMES[..2]);
        let list = peers.list();
        let start = |name: &str, more: &[&str]| {
            let paces = ["--patience", "2s..3s", "--answer", "500ms"];
            let own = ["peer", "--node", name, "--peers", &list];
            peers.room.start(&[&own[..], &paces, more].concat())
        };
        let (a, b) = (start("a", &[]), start("b", more));
        for running in [&a, &b] {
            until("it is told of", || running.errors().contains(why));
        }
        a.line_with("a leads");
        b.line_with("b leads");
    }
}

#[test]
fn a_command_is_told_of_changes_and_of_the_end() {
    let mut peers = Peers::new("bully", &NAMES[..2]);
    let seen = peers.room.path("seen");
    let line = format!("echo $REGENT_NODE/$REGENT_LEADER/$REGENT_IS_LEADER >> {}", seen.display());
    let told = || fs::read_to_string(&seen).unwrap_or_default();
    peers.start("b", &["--output", "json"]);
    peers.start("a", &["--on-change", &line]);
    until("a was told of b", || told().ends_with("a/b/false\n"));
    let object = json(&peers.get("b").line_with("true"));
    assert_eq!(object, serde_json::json!({"node": "b", "leader": "b", "is_leader": true}));
    peers.kill("b");
    until("a was told of itself", || told().ends_with("a/a/true\n"));
    let (mut a, _) = peers.running.remove("a").unwrap();
    a.signal("INT");
    assert_eq!(a.wait(), 0);
    assert!(told().ends_with("a/a/true\na//false\n"), "{}", told());
}

/// A command that hangs holds nothing up.
#[test]
fn a_command_that_hangs_does_not_keep_a_peer_from_its_election() {
    let mut peers = Peers::new("bully", &NAMES[..2]);
    peers.start("b", &[]);
    peers.start("a", &["--on-change", "sleep 1000"]);
    peers.until_all_follow(&["a", "b"], "b");
    peers.kill("b");
    peers.until_all_follow(&["a"], "a");
    let (mut a, _) = peers.running.remove("a").unwrap();
    a.signal("TERM");
    until("it leaves", || a.errors().contains("SIGTERM: leaves"));
    a.signal("TERM");
    assert_eq!(a.wait(), 130, "{}", a.errors());
}

#[test]
fn what_cannot_work_is_refused_with_the_reason() {
    let room = Room::new();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = format!("a={},b=127.0.0.1:9", taken.local_addr().unwrap());
    let pair = "a=127.0.0.1:7501,b=127.0.0.1:7502";
    for (node, peers, more, code, why) in [
        ("x", pair, &[][..], 64, "x is not in --peers, which names a, b"),
        ("a", "a=127.0.0.1:7501", &[], 64, "1 peers are refused: 2 to 26"),
        ("a", "a=127.0.0.1:7501,a=127.0.0.1:7502", &[], 64, "two peers are called a"),
        ("a", "a=127.0.0.1:7501,b=127.0.0.1:7501", &[], 64, "the same address"),
        ("a", "a=127.0.0.1:7501,b=elsewhere", &[], 64, "write IP:PORT"),
        ("a", "a=10.0.0.1:7501,b=10.0.0.2:7501", &[], 64, "nothing is authenticated"),
        ("a", "a=192.0.2.1:7501,b=192.0.2.2:7501", &["--allow-remote"], 69, "cannot listen on"),
        ("a", pair, &["--patience", "100ms..200ms"], 64, "2 x 100ms + 100ms = 300ms"),
        ("a", pair, &["--algorithm", "raft"], 64, "possible values: bully, ring, chang-roberts"),
        ("a", &taken, &[], 69, "is a running already?"),
    ] {
        let ended = room.run(&[&["peer", "--node", node, "--peers", peers], more].concat());
        assert_eq!(ended.code, code, "{ended:?}");
        assert!(ended.stderr.contains(why), "{why}: {ended:?}");
    }
}
