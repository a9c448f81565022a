//! What happens when the application, its runtime or its machine stands still.
//!
//! A runtime is blocked here on purpose: these tests sleep on its only thread, and wait there until
//! something is so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use regent::Leadership;
use regent::Why;

use crate::bench::{Bench, PATIENCE, leader_of, soon, until};

/// Blocks this thread until it is so; false if it never is.
fn block_until(mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// The end of the lease, on some clock that runs evenly.
fn until_ns(leadership: &Leadership) -> u64 {
    let valid_for = leadership.valid_for();
    (regent_clock::now() + valid_for).as_nanos()
}

#[tokio::test(flavor = "current_thread")]
async fn a_lease_is_renewed_while_the_only_thread_of_the_application_is_blocked() {
    let bench = Bench::start();
    let regent = bench.at("a").ttl(Duration::from_secs(4)).connect().await.unwrap();
    let leadership = soon("elected", regent.campaign("billing")).await.unwrap();
    // Until the next renewal is near, so that it falls into the block for certain.
    let (valid_for, renew_every) = (regent.budget().valid_for(), regent.budget().renew_every());
    until("a renewal is near", async || leadership.valid_for() < valid_for - renew_every / 2).await;
    let before = until_ns(&leadership) + 100_000_000;
    let begun = Instant::now();
    assert!(block_until(|| {
        let is_renewed = until_ns(&leadership) > before;
        (is_renewed && begun.elapsed() > Duration::from_secs(1)) || leadership.check().is_err()
    }));
    assert!(leadership.check().is_ok(), "the lease was kept");
    assert_eq!(leadership.term().get(), 1);
}

/// Semantics 31.
#[tokio::test(flavor = "current_thread")]
async fn an_application_that_hangs_for_longer_lets_its_lease_go() {
    let bench = Bench::start();
    let regent = bench.at("a").ttl(Duration::from_secs(1)).connect().await.unwrap();
    let leadership = soon("elected", regent.campaign("billing")).await.unwrap();
    assert!(block_until(|| leadership.check().is_err()), "it leads on though it hangs");
    assert!(leadership.check().is_err());
    assert_eq!(soon("told", leadership.lost()).await.within, Duration::ZERO);
    drop(leadership);
    until("the office is free", async || leader_of(&bench, "billing").await.is_none()).await;
    let again = soon("it stands again", regent.campaign("billing")).await.unwrap();
    assert!(again.term().get() >= 2);
}

#[tokio::test(flavor = "current_thread")]
async fn without_the_probe_a_hanging_application_keeps_its_lease() {
    let bench = Bench::start();
    let connect = bench.at("a").ttl(Duration::from_secs(2)).runtime_probe(false);
    let regent = connect.connect().await.unwrap();
    let leadership = soon("elected", regent.campaign("billing")).await.unwrap();
    // The lease ends later than it could without a renewal after more than half a ttl of silence.
    let much_later = until_ns(&leadership) + 2_500_000_000;
    assert!(block_until(|| until_ns(&leadership) > much_later || leadership.check().is_err()));
    assert!(leadership.check().is_ok());
}

/// A clock that can leap, as the lease clock does over a suspend or a stopped process.
fn leaping() -> (Arc<AtomicU64>, impl Fn() -> regent_election::Moment + Send + Sync + 'static) {
    let leapt_ns = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&leapt_ns);
    let now = move || {
        let leapt = Duration::from_nanos(read.load(Ordering::SeqCst));
        regent_clock::now() + leapt
    };
    (leapt_ns, now)
}

const LONG_PAUSE_NS: u64 = 60_000_000_000;

/// S13.
#[tokio::test(flavor = "current_thread")]
async fn the_first_check_after_a_pause_longer_than_the_lease_says_no() {
    let bench = Bench::start();
    let (leapt_ns, now) = leaping();
    let regent = bench.at("a").lease_clock(now).connect().await.unwrap();
    let leadership = soon("elected", regent.campaign("billing")).await.unwrap();
    let permit = leadership.check().unwrap();
    // Nothing runs between the leap and the check: nobody can have told anybody.
    leapt_ns.store(LONG_PAUSE_NS, Ordering::SeqCst);
    let lost = leadership.check().unwrap_err();
    assert_eq!(lost.why, Why::LeaseOver);
    assert_eq!(leadership.valid_for(), Duration::ZERO);
    drop(permit);
    assert_eq!(soon("told", leadership.lost()).await.within, Duration::ZERO);
}

/// S13: the work is on the same thread as the leap, so nothing can come between the look at the
/// clock and the poll.
#[tokio::test(flavor = "current_thread")]
async fn work_does_not_go_on_after_a_pause_longer_than_the_lease() {
    let bench = Bench::start();
    let (leapt_ns, now) = leaping();
    let regent = bench.at("a").lease_clock(now).connect().await.unwrap();
    let (has_leapt, went_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (steps, terms) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let leading = {
        let (has_leapt, went_on) = (Arc::clone(&has_leapt), Arc::clone(&went_on));
        let (steps, terms) = (Arc::clone(&steps), Arc::clone(&terms));
        tokio::spawn(async move {
            regent
                .lead("billing", move |leadership| {
                    let (has_leapt, went_on) = (Arc::clone(&has_leapt), Arc::clone(&went_on));
                    let steps = Arc::clone(&steps);
                    terms.store(leadership.term().get(), Ordering::SeqCst);
                    async move {
                        let is_first = leadership.term().get() == 1;
                        loop {
                            steps.fetch_add(1, Ordering::SeqCst);
                            if is_first && has_leapt.load(Ordering::SeqCst) {
                                went_on.store(true, Ordering::SeqCst);
                            }
                            tokio::task::yield_now().await;
                        }
                    }
                })
                .await
        })
    };
    until("the work runs", async || steps.load(Ordering::SeqCst) > 10).await;
    leapt_ns.store(LONG_PAUSE_NS, Ordering::SeqCst);
    has_leapt.store(true, Ordering::SeqCst);
    until("it leads again", async || terms.load(Ordering::SeqCst) >= 2).await;
    assert!(!went_on.load(Ordering::SeqCst), "work went on without a lease");
    leading.abort();
}

/// The last resort is for work that does not stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_does_not_stop_in_time_meets_the_last_resort() {
    let bench = Bench::start();
    let (sender, mut called) = tokio::sync::mpsc::unbounded_channel();
    let last_resort = regent::LastResort::call_with(move |group, term| {
        let _ = sender.send((group.to_string(), term.get()));
    });
    let connect = bench.at("a").ttl(Duration::from_secs(1)).last_resort(last_resort);
    let regent = connect.connect().await.unwrap();
    let leadership = soon("elected", regent.campaign("billing")).await.unwrap();
    let stubborn = leadership.check().unwrap();
    drop(leadership);
    assert_eq!(soon("called", called.recv()).await, Some(("billing".to_owned(), 1)));
    drop(stubborn);
}
