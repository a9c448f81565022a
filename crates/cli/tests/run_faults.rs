//! `regent run` in bad weather: whatever is stopped, killed or cut off, and in whatever order, at no
//! instant do two programs of one group run. A recorder that is no part of the product says so.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use process::cluster::Cluster;
use process::recorder::{Recorder, children, guard_of, send};
use process::wire::Wire;
use process::{Room, until};

/// As short as a test has to wait for it, several times.
const SHORT: [&str; 2] = ["--ttl", "2s"];

/// By every means that may be in force: the best there is here, and the one that is everywhere.
const MEANS: [&str; 2] = ["auto", "descendants"];

/// The same, and a cgroup where one can be made.
fn all_means() -> Vec<&'static str> {
    let room = Room::new();
    let server = room.server();
    let tried = server.ask(&room, &["run", "-g", "try", "--contain", "cgroup", "--", "true"]);
    assert!(tried.code == 0 || tried.stderr.contains("no cgroup can be made here"), "{tried:?}");
    MEANS.into_iter().chain((tried.code == 0).then_some("cgroup")).collect()
}

fn flags<'a>(contain: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&SHORT[..], &["--contain", contain], more].concat()
}

/// S13, promise 9: the wrapper is stopped past its ttl, and its program with all its children is gone
/// before anybody else leads.
#[test]
fn a_wrapper_that_is_stopped_leaves_nothing_running() {
    for contain in MEANS {
        let room = Room::new();
        let server = room.server();
        let recorder = Recorder::new(&room);
        let a = recorder.run(&server, "a", &flags(contain, &[]), &["tree", "4"]);
        recorder.await_line("deep", "a");
        let b = recorder.run(&server, "b", &flags(contain, &[]), &["tree", "4"]);
        until("b stands", || server.standbys(&room, "billing") == 1);
        a.signal("STOP");
        recorder.await_line("deep", "b");
        a.signal("CONT");
        until("a stands again", || server.standbys(&room, "billing") == 1);
        // Its clock was ahead of its guard's reports, and the guard was asked before anybody was alarmed.
        assert!(!a.errors().contains("still runs"), "{}", a.errors());
        b.signal("STOP");
        until("a starts again", || recorder.count("start", "a") >= 2);
        recorder.check(3);
    }
}

#[test]
fn a_wrapper_that_is_killed_leaves_nothing_running() {
    for contain in all_means() {
        let room = Room::new();
        let server = room.server();
        let recorder = Recorder::new(&room);
        let mut a = recorder.run(&server, "a", &flags(contain, &[]), &["tree", "4"]);
        recorder.await_line("deep", "a");
        let _b = recorder.run(&server, "b", &flags(contain, &[]), &["tree", "4"]);
        a.signal("KILL");
        a.wait();
        recorder.await_line("deep", "b");
        recorder.check(2);
    }
}

/// Whatever is started here is killed by its own id when it is dropped.
struct Started(std::process::Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Semantics 31: a wrapper that hangs, here because nobody reads what it has to say, renews nothing.
#[test]
fn a_wrapper_that_is_stuck_leaves_nothing_running() {
    for contain in MEANS {
        let room = Room::new();
        let server = room.server();
        let recorder = Recorder::new(&room);
        let (unread, errors) = std::io::pipe().unwrap();
        let errors_again = errors.try_clone().unwrap();
        let mut command = recorder.command(&server.url, "a", &flags(contain, &[]), &["tree", "4"]);
        let mut a = Started(command.stderr(errors).spawn().unwrap());
        recorder.await_line("deep", "a");
        let _b = recorder.run(&server, "b", &flags(contain, &[]), &["tree", "4"]);
        until("b stands", || server.standbys(&room, "billing") == 1);
        fill(&errors_again);
        // It has something to say to this, and cannot.
        send("TERM", &[a.0.id()]);
        recorder.await_line("deep", "b");
        assert!(a.0.try_wait().unwrap().is_none(), "it did not hang");
        recorder.check(2);
        drop(unread);
    }
}

/// Fills a pipe that nobody reads, to the last byte. Through a handle of its own: whoever else writes
/// waits.
fn fill(pipe: &std::io::PipeWriter) {
    const O_NONBLOCK: i32 = 0o4000;
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let mut filler = OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(path).unwrap();
    while filler.write(&[b'.'; 512]).or_else(|_| filler.write(b".")).is_ok() {}
}

/// With nobody to take over, the tree is gone by the time the store says that nobody leads.
#[test]
fn a_tree_is_gone_when_the_store_ends_its_term() {
    for contain in all_means() {
        let room = Room::new();
        let server = room.server();
        let recorder = Recorder::new(&room);
        let a = recorder.run(&server, "a", &flags(contain, &[]), &["tree", "6"]);
        recorder.await_line("deep", "a");
        a.signal("STOP");
        until("the term ends", || server.ask(&room, &["leader", "billing"]).code == 1);
        assert!(recorder.is_quiet(), "{contain}");
        recorder.check(1);
    }
}

#[test]
fn a_guard_that_is_killed_takes_its_tree_along_and_the_office_is_given_up() {
    for contain in all_means() {
        let room = Room::new();
        let server = room.server();
        let recorder = Recorder::new(&room);
        let long = ["--ttl", "20s", "--contain", contain];
        let mut a = recorder.run(&server, "a", &long, &["tree", "4"]);
        recorder.await_line("deep", "a");
        let _b = recorder.run(&server, "b", &long, &["tree", "4"]);
        until("b stands", || server.standbys(&room, "billing") == 1);
        send("KILL", &[guard_of(&a)]);
        assert_eq!(a.wait(), 137, "{}", a.errors());
        recorder.await_line("deep", "b");
        recorder.check(2);
        let history = server.yes(&room, &["history", "billing"]);
        assert!(!history.contains("expired"), "{history}");
    }
}

#[test]
fn a_guard_that_is_stopped_is_noticed_and_replaced() {
    for contain in MEANS {
        let room = Room::new();
        let server = room.server();
        let recorder = Recorder::new(&room);
        let restart = flags(contain, &["--restart"]);
        let a = recorder.run(&server, "a", &restart, &["tree", "4"]);
        recorder.await_line("deep", "a");
        send("STOP", &[guard_of(&a)]);
        until("a starts again", || recorder.count("start", "a") >= 2);
        recorder.check(2);
    }
}

/// Nobody renews and the guard hears nothing: the wrapper ends the tree alone, and in time.
#[test]
fn a_guard_that_is_stopped_when_its_wrapper_is_cut_off_leaves_nothing_running() {
    for contain in MEANS {
        let room = Room::new();
        let server = room.server();
        let recorder = Recorder::new(&room);
        let wire = Wire::to(&server.listen());
        let a = recorder.run_at(&wire.url, "a", &flags(contain, &[]), &["tree", "4"]);
        recorder.await_line("deep", "a");
        let _b = recorder.run(&server, "b", &flags(contain, &[]), &["tree", "4"]);
        until("b stands", || server.standbys(&room, "billing") == 1);
        send("STOP", &[guard_of(&a)]);
        wire.cut();
        recorder.await_line("deep", "b");
        recorder.check(2);
    }
}

/// Its guard is stopped when the wrapper is killed: the kernel wakes it, and it ends the tree.
#[test]
fn a_wrapper_that_is_killed_while_its_guard_is_stopped_leaves_nothing_running() {
    for contain in MEANS {
        let room = Room::new();
        let server = room.server();
        let recorder = Recorder::new(&room);
        let mut a = recorder.run(&server, "a", &flags(contain, &[]), &["tree", "4"]);
        recorder.await_line("deep", "a");
        send("STOP", &[guard_of(&a)]);
        a.signal("KILL");
        a.wait();
        until("nothing runs", || recorder.is_quiet());
    }
}

/// Where the tree is a pid namespace, there is no order of deaths that leaves any of it behind.
#[test]
fn a_wrapper_and_its_guard_killed_at_once_leave_nothing_in_a_namespace() {
    let room = Room::new();
    let server = room.server();
    let recorder = Recorder::new(&room);
    let mut a = recorder.run(&server, "a", &flags("auto", &[]), &["tree", "6"]);
    recorder.await_line("deep", "a");
    if !a.errors().contains("namespace") {
        println!("no pid namespace can be made here, so there is nothing to show");
        return;
    }
    send("STOP", &[a.id()]);
    send("KILL", &[guard_of(&a), a.id()]);
    a.wait();
    until("nothing runs", || recorder.is_quiet());
}

/// A program that is stopped hears no `SIGTERM`; it is gone in time all the same.
#[test]
fn a_program_that_is_stopped_is_ended_with_its_lease_and_wakes_to_nothing() {
    for contain in MEANS {
        let room = Room::new();
        let server = room.server();
        let recorder = Recorder::new(&room);
        let wire = Wire::to(&server.listen());
        let a = recorder.run_at(&wire.url, "a", &flags(contain, &[]), &["stubborn"]);
        recorder.await_line("start", "a");
        let b = recorder.run(&server, "b", &flags(contain, &[]), &["stubborn"]);
        until("b stands", || server.standbys(&room, "billing") == 1);
        let programs = children(guard_of(&a));
        send("STOP", &programs);
        wire.cut();
        recorder.await_line("start", "b");
        assert!(programs.iter().all(|pid| !children(guard_of(&b)).contains(pid)));
        wire.mend();
        until("a stands again", || server.standbys(&room, "billing") == 1);
        recorder.check(2);
    }
}

/// A pause of the program alone costs nothing: the wrapper renews, and it goes on where it was.
#[test]
fn a_program_that_is_stopped_and_woken_goes_on() {
    let room = Room::new();
    let server = room.server();
    let recorder = Recorder::new(&room);
    let mut a = recorder.run(&server, "a", &["--ttl", "20s"], &["meek"]);
    recorder.await_line("start", "a");
    let programs = children(guard_of(&a));
    send("STOP", &programs);
    send("CONT", &programs);
    a.signal("USR1");
    recorder.await_line("usr1", "a");
    a.signal("TERM");
    assert_eq!(a.wait(), 5, "{}", a.errors());
    recorder.check(1);
}

#[test]
fn a_leader_that_is_cut_off_stops_before_the_other_side_starts() {
    for contain in MEANS {
        let room = Room::new();
        let server = room.server();
        let recorder = Recorder::new(&room);
        let wires = [Wire::to(&server.listen()), Wire::to(&server.listen())];
        let a = recorder.run_at(&wires[0].url, "a", &flags(contain, &[]), &["tree", "4"]);
        recorder.await_line("deep", "a");
        let b = recorder.run_at(&wires[1].url, "b", &flags(contain, &[]), &["tree", "4"]);
        until("b stands", || server.standbys(&room, "billing") == 1);
        wires[0].cut();
        recorder.await_line("deep", "b");
        wires[0].mend();
        until("a stands again", || server.standbys(&room, "billing") == 1);
        wires[1].cut();
        until("a starts again", || recorder.count("start", "a") >= 2);
        recorder.check(3);
        assert!(a.errors().contains("jeopardy"), "{}", a.errors());
        drop(b);
    }
}

#[test]
fn a_server_that_is_gone_ends_the_program_and_one_that_is_back_starts_it() {
    let room = Room::new();
    let server = room.server();
    let recorder = Recorder::new(&room);
    let all: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|node| recorder.run(&server, node, &flags("auto", &[]), &["tree", "3"]))
        .collect();
    until("one starts", || recorder.lines().iter().any(|(did, _, _)| did == "start"));
    let listen = server.listen();
    server.kill();
    until("nothing runs", || recorder.is_quiet());
    let _server = room.serve(&listen, &["--data-dir", &room.text("data")]);
    until("one starts again", || {
        recorder.lines().iter().filter(|(did, _, _)| did == "start").count() >= 2
    });
    recorder.check(2);
    drop(all);
}

#[test]
fn a_rolling_restart_of_the_servers_never_makes_two() {
    let mut cluster = Cluster::start(3);
    let urls = cluster.urls();
    let room = Room::new();
    let recorder = Recorder::new(&room);
    let long = ["--ttl", "5s"];
    let all: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|node| recorder.run_at(&urls, node, &long, &["tree", "3"]))
        .collect();
    until("one starts", || recorder.lines().iter().any(|(did, _, _)| did == "start"));
    for id in 1..=3 {
        cluster.stop(id);
        cluster.run(id);
        cluster.leader();
    }
    for id in 1..=3 {
        cluster.kill(id);
        cluster.run(id);
        cluster.leader();
    }
    // Whoever leads can still be ended, and is succeeded.
    let before = recorder.lines().iter().filter(|(did, _, _)| did == "start").count();
    cluster.yes_soon(&["step-down", "billing", "--reason", "test"]);
    until("the next one starts", || {
        recorder.lines().iter().filter(|(did, _, _)| did == "start").count() > before
    });
    recorder.check(2);
    drop(all);
}
