//! Health-gated leadership.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use regent::Why;
use regent::health::{Probe, Thresholds};

use crate::bench::{Bench, leader_of, soon, until};

const OFTEN: Thresholds = Thresholds {
    every: Duration::from_millis(10),
    timeout: Duration::from_secs(5),
    ill_after: 2,
    well_after: 2,
};

/// A check that finds what it is told to.
fn told(is_well: &Arc<AtomicBool>) -> Probe {
    let is_well = Arc::clone(is_well);
    let look = move || {
        let found = is_well.load(Ordering::SeqCst);
        async move { if found { Ok(()) } else { Err("told so".to_owned()) } }
    };
    Probe::new("told", look).with(OFTEN)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unhealthy_leader_drains_and_hands_over_and_stands_again_when_it_is_well() {
    let bench = Bench::start();
    let is_well = Arc::new(AtomicBool::new(true));
    let ttl = Duration::from_secs(2);
    let a = bench.at("a").ttl(ttl).check(told(&is_well)).connect().await.unwrap();
    let b = bench.at("b").ttl(ttl).connect().await.unwrap();
    let first = soon("a leads", a.campaign("billing")).await.unwrap();
    let waiting = tokio::spawn(async move { b.campaign("billing").await.unwrap() });
    is_well.store(false, Ordering::SeqCst);
    let stop = soon("a is told", first.lost()).await;
    assert_eq!(stop.why, Why::Unhealthy);
    assert!(first.check().is_ok(), "the lease runs while the work is drained");
    drop(first);
    let second = soon("b leads", waiting).await.unwrap();
    let again = tokio::spawn(a.campaign("billing").into_future());
    soon("b resigns", second.resign()).await.unwrap();
    // Nobody but a wants it, and a is ill.
    assert_eq!(leader_of(&bench, "billing").await, None);
    is_well.store(true, Ordering::SeqCst);
    let third = soon("a leads again", again).await.unwrap().unwrap();
    assert!(third.term().get() > 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_that_is_ill_from_the_start_never_stands() {
    let bench = Bench::start();
    let is_well = Arc::new(AtomicBool::new(false));
    let a = bench.at("a").check(told(&is_well)).connect().await.unwrap();
    let waiting = tokio::spawn(a.campaign("billing").into_future());
    let b = bench.at("b").connect().await.unwrap();
    let other = soon("b leads", b.campaign("billing")).await.unwrap();
    assert_eq!(other.term().get(), 1, "a has won nothing before");
    let group = bench.store.group(&"billing".parse().unwrap()).await.unwrap();
    assert_eq!(group.standbys_count, 0);
    is_well.store(true, Ordering::SeqCst);
    until("a stands", async || {
        bench.store.group(&"billing".parse().unwrap()).await.unwrap().standbys_count == 1
    })
    .await;
    drop(other);
    assert_eq!(soon("a leads", waiting).await.unwrap().unwrap().node().as_str(), "a");
}

/// Whoever cannot even look has not found that all is well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_that_panics_has_failed_and_is_asked_again() {
    let bench = Bench::start();
    let is_broken = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_broken);
    let look = move || {
        let is_broken = asked.load(Ordering::SeqCst);
        async move {
            assert!(!is_broken, "a mistake of the application's");
            Ok(())
        }
    };
    let a = bench.at("a").check(Probe::new("broken", look).with(OFTEN)).connect().await.unwrap();
    let first = soon("a leads", a.campaign("billing")).await.unwrap();
    is_broken.store(true, Ordering::SeqCst);
    assert_eq!(soon("a is told", first.lost()).await.why, Why::Unhealthy);
    is_broken.store(false, Ordering::SeqCst);
    drop(first);
    let again = soon("a leads again", a.campaign("billing")).await.unwrap();
    assert!(again.term().get() > 1);
}
