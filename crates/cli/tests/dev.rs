//! `regent dev` as real processes: a cluster in one command, killed in part, ended whole.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

mod process;

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use process::{Ended, Room, Running, fact, json, until};

/// A cluster that runs, and what it said of itself.
struct Dev {
    running: Running,
    servers: String,
    pids: Vec<String>,
    addresses: Vec<String>,
    place: String,
}

impl Dev {
    fn start(room: &Room, more: &[&str]) -> Self {
        let running = room.start(&[&["dev"], more].concat());
        let (mut pids, mut addresses, mut place) = (Vec::new(), Vec::new(), String::new());
        let servers = loop {
            let line = running.line();
            if let Some((_, servers)) = line.split_once("export REGENT_SERVER=") {
                break servers.to_owned();
            }
            if let Some((_, rest)) = line.split_once("http://")
                && let Some((address, pid)) = rest.split_once("  process ")
            {
                addresses.push(address.to_owned());
                pids.push(pid.split_whitespace().next().unwrap().to_owned());
            }
            if let Some(rest) = line.strip_prefix("data and logs are in ") {
                place = rest.split_whitespace().next().unwrap().to_owned();
            }
        };
        running.line_with("Ctrl-C ends everything");
        Self { running, servers, pids, addresses, place }
    }

    fn ask(&self, room: &Room, arguments: &[&str]) -> Ended {
        room.run(&[arguments, &["--server", &self.servers]].concat())
    }

    fn nobody_listens(&self) -> bool {
        self.addresses.iter().all(|address| TcpStream::connect(address).is_err())
    }
}

fn campaign(dev: &Dev, room: &Room, node: &str) -> u64 {
    // While the lead of the log changes hands, a campaign may have to be repeated.
    let mut term = 0;
    until("a campaign is won", || {
        let ended = dev.ask(room, &["campaign", "billing", "--node", node, "--ttl", "1s"]);
        if ended.code == 0 {
            term = fact(&ended.stdout, "term").parse().unwrap();
        }
        ended.code == 0
    });
    term
}

#[test]
fn a_cluster_in_one_command_survives_the_death_of_a_replica_and_leaves_nothing_behind() {
    let room = Room::new();
    let mut dev = Dev::start(&room, &["--port", "0"]);
    assert_eq!((dev.pids.len(), dev.addresses.len()), (3, 3));
    assert!(Path::new(&dev.place).join("replica-1.log").exists());
    let first = campaign(&dev, &room, "a");
    dev.running.line_with("billing: a leads, term 1 (elected)");

    let mut leader = None;
    until("a leader of the log is known", || {
        let status = json(&dev.ask(&room, &["cluster", "status", "--output", "json"]).stdout);
        leader = status["leader"].as_u64();
        leader.is_some()
    });
    let leader = usize::try_from(leader.unwrap()).unwrap();
    let line = format!("kill -KILL {}", dev.pids[leader - 1]);
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    dev.running.line_with(&format!("replica {leader} ended (signal 9)"));
    dev.running.line_with("leads the log");
    assert!(campaign(&dev, &room, "b") > first, "the others go on");
    dev.running.line_with(&format!("replica {leader} is started again"));
    dev.running.line_with(&format!("replica {leader} answers"));

    dev.running.signal("INT");
    assert_eq!(dev.running.wait(), 0, "{}", dev.running.errors());
    until("everything ended", || dev.nobody_listens());
    assert!(!Path::new(&dev.place).exists(), "temporary data are removed");
}

/// Two of three are gone: nothing is said of groups that nobody could vouch for.
#[test]
fn with_two_of_three_replicas_lost_it_says_that_there_is_no_quorum() {
    let room = Room::new();
    let mut dev = Dev::start(&room, &["--port", "0"]);
    campaign(&dev, &room, "a");
    let signal = |name: &str, replica: usize| {
        let line = format!("kill -{name} {}", dev.pids[replica]);
        assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    };
    signal("KILL", 0);
    dev.running.line_with("2 of 3 heard, survives no further failure");
    signal("KILL", 1);
    dev.running.line_with("1 of 3 heard, no quorum: groups unknown");
    dev.running.line_with("3 of 3 heard, survives 1 failure");
    dev.running.signal("INT");
    assert_eq!(dev.running.wait(), 0, "{}", dev.running.errors());
}

#[test]
fn replicas_end_with_the_process_that_started_them_even_if_it_was_killed() {
    let room = Room::new();
    let mut dev = Dev::start(&room, &["--port", "0", "--witness"]);
    assert_eq!(dev.servers.split(',').count(), 2, "a witness serves no clients");
    dev.running.kill();
    until("everything ended", || dev.nobody_listens());
    fs::remove_dir_all(&dev.place).unwrap();
}

#[test]
fn a_kept_cluster_is_gone_on_with_and_only_as_it_is() {
    let room = Room::new();
    let place = room.text("cluster");
    let term = {
        let mut dev = Dev::start(&room, &["--port", "0", "--nodes", "5", "--data-dir", &place]);
        assert_eq!(dev.pids.len(), 5);
        let term = campaign(&dev, &room, "a");
        dev.running.signal("TERM");
        assert_eq!(dev.running.wait(), 0, "{}", dev.running.errors());
        term
    };
    let other = room.run(&["dev", "--nodes", "3", "--data-dir", &place]);
    assert_eq!(other.code, 64, "{other:?}");
    assert!(other.stderr.contains("holds a cluster of 5"), "{other:?}");
    let mut dev = Dev::start(&room, &["--data-dir", &place]);
    assert_eq!(dev.pids.len(), 5);
    assert!(campaign(&dev, &room, "b") > term, "terms go on");
    dev.running.signal("INT");
    assert_eq!(dev.running.wait(), 0, "{}", dev.running.errors());

    fs::write(room.path("something"), "else").unwrap();
    let strange = room.run(&["dev", "--data-dir", &room.text("")]);
    assert_eq!(strange.code, 78, "{strange:?}");
    assert!(strange.stderr.contains("choose an empty directory"), "{strange:?}");
}

#[cfg(feature = "tls")]
#[test]
fn a_cluster_with_tls_is_made_in_one_command_and_speaks_nothing_else() {
    let room = Room::new();
    let running = room.start(&["dev", "--port", "0", "--tls"]);
    let line = running.line_with("export REGENT_SERVER=https://");
    let (_, exports) = line.split_once("REGENT_SERVER=").unwrap();
    let (servers, ca) = exports.split_once(" REGENT_CA=").unwrap();
    running.line_with("Ctrl-C ends everything");
    until("a campaign is won", || {
        let campaign = ["campaign", "billing", "--node", "a", "--server", servers, "--ca", ca];
        room.run(&campaign).code == 0
    });
    running.line_with("billing: a leads, term 1 (elected)");
    let plain = servers.replace("https://", "http://");
    let refused = room.run(&["leader", "billing", "--server", &plain]);
    assert!(refused.stderr.contains("speaks TLS only"), "{refused:?}");
    // The replicas speak TLS, too: their settings say so, and `peer_tls` is required unless said.
    let settings = Path::new(ca).parent().unwrap().parent().unwrap().join("replica-1.toml");
    let settings = fs::read_to_string(settings).unwrap();
    assert!(settings.contains("peer_cert = ") && !settings.contains("peer_tls"), "{settings}");
}
