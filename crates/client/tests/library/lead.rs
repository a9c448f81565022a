//! Level 1: work that runs only while leading.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use regent_election::Reason;
use regent_election::store::StepDown;

use crate::bench::{Bench, soon, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_listens_cleans_up_under_its_lease_and_is_started_again() {
    let bench = Bench::start();
    let regent = bench.at("a").ttl(Duration::from_secs(2)).connect().await.unwrap();
    let (terms, mut told) = tokio::sync::mpsc::unbounded_channel();
    let leading = tokio::spawn(async move {
        regent
            .lead("billing", move |leadership| {
                let terms = terms.clone();
                async move {
                    terms.send((leadership.term().get(), "begins", true)).unwrap();
                    leadership.lost().await;
                    let is_valid = leadership.check().is_ok();
                    terms.send((leadership.term().get(), "cleans up", is_valid)).unwrap();
                }
            })
            .await
    });
    assert_eq!(soon("begins", told.recv()).await, Some((1, "begins", true)));
    let step_down = StepDown {
        group: "billing".parse().unwrap(),
        reason: Reason::new("a test").unwrap(),
        to: None,
        immediate: false,
        request: None,
    };
    bench.store.step_down(step_down).await.unwrap();
    assert_eq!(soon("cleans up", told.recv()).await, Some((1, "cleans up", true)));
    assert_eq!(soon("leads again", told.recv()).await, Some((2, "begins", true)));
    leading.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_does_not_listen_is_dropped_and_its_tasks_are_awaited() {
    struct Alive(Arc<AtomicUsize>);
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let bench = Bench::start();
    let regent = bench.at("a").connect().await.unwrap();
    let alive = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&alive);
    let leading = tokio::spawn(async move {
        regent
            .lead("billing", move |leadership| {
                let counted = Arc::clone(&counted);
                async move {
                    let live = || {
                        counted.fetch_add(1, Ordering::SeqCst);
                        Alive(Arc::clone(&counted))
                    };
                    let (mine, other) = (live(), live());
                    leadership.spawn(async move {
                        let _other = other;
                        std::future::pending::<()>().await;
                    });
                    let _mine = mine;
                    std::future::pending::<()>().await;
                }
            })
            .await
    });
    until("the work runs", async || alive.load(Ordering::SeqCst) == 2).await;
    leading.abort();
    until("the work is gone", async || alive.load(Ordering::SeqCst) == 0).await;
    let group = "billing".parse().unwrap();
    until("the office is free", async || {
        let stale = regent_election::store::Consistency::Linearizable;
        bench.store.leader(&group, stale).await.unwrap().leader.is_none()
    })
    .await;
}
