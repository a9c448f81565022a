//! Every example runs, in its bounded mode.

#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(unreachable_pub, reason = "the examples are programs of their own, too")]
#![allow(dead_code, reason = "the examples' own main functions are not called")]

#[path = "../../../examples/embedded_trio.rs"]
mod embedded_trio;
#[path = "../../../examples/fenced_writer.rs"]
mod fenced_writer;
#[path = "../../../examples/health_gated_worker.rs"]
mod health_gated_worker;
#[path = "../../../examples/hello_leader.rs"]
mod hello_leader;
#[path = "../../../examples/periodic_job.rs"]
mod periodic_job;

use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hello_leader_greets() {
    assert_eq!(hello_leader::run("memory:", 3).await.unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn periodic_job_runs() {
    let every = Duration::from_millis(5);
    assert_eq!(periodic_job::run("memory:", 3, every).await.unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fenced_writer_refuses_whoever_comes_with_a_lower_term() {
    let place = tempfile::tempdir().unwrap();
    let (ledger, store) = (place.path().join("ledger.txt"), place.path().join("store"));
    let url = format!("file://{}", store.display());
    let last = fenced_writer::run(&url, &ledger, 3).await.unwrap();
    assert_eq!(std::fs::read_to_string(&ledger).unwrap().lines().count(), 3);
    // Somebody with a far higher term has written; the next leader of this store is below it.
    let higher = last.get() + 100;
    let rows = std::fs::read_to_string(&ledger).unwrap();
    std::fs::write(&ledger, format!("{rows}{higher}\tsomebody else\n")).unwrap();
    let regent = regent::connect("memory:").await.unwrap();
    let leadership = regent.campaign("ledger").await.unwrap();
    let mut open = fenced_writer::Ledger::open(&ledger).unwrap();
    let refused = open.append(leadership.check().unwrap().fence("too late")).unwrap_err();
    assert_eq!(refused.to_string(), format!("term 1 < current {higher}"));
    leadership.fence_refused();
    assert_eq!(leadership.lost().await.why, regent::Why::FenceRefused);
    assert!(leadership.check().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_an_embedded_trio_leads_once() {
    let place = tempfile::tempdir().unwrap();
    let mut led = embedded_trio::run(place.path()).await.unwrap();
    led.sort();
    assert_eq!(led, ["copy-1", "copy-2", "copy-3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_gets_stuck_is_drained_and_leads_again_when_it_is_well() {
    let terms = health_gated_worker::run("memory:", 2).await.unwrap();
    assert_eq!(terms.len(), 2);
    assert!(terms[0] < terms[1], "{terms:?}");
}
