//! A process that is stopped (SIGSTOP) past its lease and goes on: what it sees first.
//!
//! The child is this very test binary, started again with a word in its environment.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::bench::{Bench, PATIENCE, soon};

const WORD: &str = "REGENT_TEST_CHILD_URL";
const TTL: Duration = Duration::from_secs(2);

/// The child: leads, and says so after every check that passed, until one does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(url) = std::env::var(WORD) else { return };
    let regent = regent::Regent::at(url).node("child").ttl(TTL).connect().await.unwrap();
    let leadership = regent.campaign("billing").await.unwrap();
    loop {
        // Nothing but the print lies between a check and the next: what was paused there is the
        // fence's business.
        match leadership.check() {
            Ok(permit) => println!("\nacts under {}", permit.term()),
            Err(lost) => {
                println!("\nlost {}", lost.term);
                std::process::exit(0);
            }
        }
    }
}

/// Gone at the end of the test, however that ends.
struct Mortal(Child);

impl Drop for Mortal {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// S13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_stopped_past_its_lease_learns_it_from_its_first_check() {
    let bench = Bench::start();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stopped::child", "--nocapture"])
        .env(WORD, &bench.url)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    let mut child = Mortal(child);
    let (sender, mut lines) = tokio::sync::mpsc::channel(1);
    let output = BufReader::new(child.0.stdout.take().unwrap());
    std::thread::spawn(move || {
        let meant = |line: &String| line.starts_with("acts") || line.starts_with("lost");
        for line in output.lines().map_while(Result::ok).filter(meant) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    assert_eq!(soon("the child leads", lines.recv()).await.unwrap(), "acts under 1");

    kill_process(pid, Signal::STOP).unwrap();
    let other = bench.at("other").ttl(TTL).connect().await.unwrap();
    let second = soon("somebody else leads", other.campaign("billing")).await.unwrap();
    assert_eq!(second.term().get(), 2);
    // What the child wrote before it was stopped is read before it goes on: at most one line is on
    // its way through this thread, the rest is in the pipe.
    let mut read = Vec::new();
    while let Ok(Some(line)) = tokio::time::timeout(TTL, lines.recv()).await {
        read.push(line);
    }
    assert!(read.iter().all(|line| line == "acts under 1"));

    kill_process(pid, Signal::CONT).unwrap();
    let mut after = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, async {
        while let Some(line) = lines.recv().await {
            after.push(line);
        }
    });
    ended.await.unwrap();
    assert!(child.0.wait().unwrap().success());
    // One print may have been under way when it was stopped, after a check that was true then.
    assert!(after.len() <= 2, "{after:?}");
    assert_eq!(after.last().map(String::as_str), Some("lost 1"), "{after:?}");
}
