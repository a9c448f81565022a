//! The last resort: a process whose work does not stop is ended with it.
//!
//! The child is this very test binary, started again with a word in its environment.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use regent::LastResort;
use regent_election::Reason;
use regent_election::store::StepDown;

use crate::bench::{Bench, PATIENCE, leader_of, until};

const WORD: &str = "REGENT_TEST_OVERRUN_URL";
const TTL: Duration = Duration::from_secs(2);
const SIGABRT: i32 = 6;

/// The child: leads, and works on whatever it is told, on a thread that nobody can cancel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(url) = std::env::var(WORD) else { return };
    let connect = regent::Regent::at(url).node("child").ttl(TTL).last_resort(LastResort::Abort);
    let leadership = connect.connect().await.unwrap().campaign("billing").await.unwrap();
    println!("\nleads");
    let worker = leadership.clone();
    std::thread::spawn(move || {
        let _held = worker;
        loop {
            std::thread::sleep(PATIENCE);
        }
    });
    let stop = leadership.lost().await;
    println!("\ntold to stop: {}", stop.why.word());
    std::future::pending::<()>().await;
}

/// Gone at the end of the test, however that ends.
struct Mortal(Child);

impl Drop for Mortal {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_overruns_its_grace_ends_with_its_process_if_it_is_to() {
    let bench = Bench::start();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "overrun::child", "--nocapture"])
        .env(WORD, &bench.url)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Mortal(child);
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "leads"));
    let (group, reason) = ("billing".parse().unwrap(), Reason::new("a test").unwrap());
    let step_down = StepDown { group, reason, to: None, immediate: false, request: None };
    bench.store.step_down(step_down).await.unwrap();
    let (sender, ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // Its end closes the pipe, by whatever it ends.
        let said: Vec<String> = lines.map_while(Result::ok).collect();
        let _ = sender.send((said, child.0.wait().unwrap()));
    });
    let (said, status) = crate::bench::soon("the child is gone", ended).await.unwrap();
    assert!(said.contains(&"told to stop: told to stop".to_owned()), "{said:?}");
    assert_eq!(status.signal(), Some(SIGABRT), "{status:?}: {said:?}");
    until("the office is free", async || leader_of(&bench, "billing").await.is_none()).await;
}
