//! The contract suite on the local store: in memory, and on a durable directory.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use regent_election::Moment;
use regent_election::contract::{Case, Harness, Verdict, cases};
use regent_election::store::Store;
use regent_stores::LocalStore;

struct Local {
    store: Arc<LocalStore>,
}

#[async_trait]
impl Harness for Local {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    async fn sleep(&self, for_how_long: Duration) {
        tokio::time::sleep(for_how_long).await;
    }

    fn now(&self) -> Moment {
        regent_clock::now()
    }

    fn unique(&self) -> u128 {
        let half = || u128::from(getrandom::u64().expect("the system has random numbers"));
        half() << 64 | half()
    }
}

/// Runs all cases at once and breaks with a table of those that do not hold.
async fn holds(store: LocalStore) {
    let harness = Arc::new(Local { store: Arc::new(store) });
    let running: Vec<_> = cases()
        .into_iter()
        .map(|case: Case| {
            let harness = Arc::clone(&harness) as Arc<dyn Harness>;
            (case.name, tokio::spawn(async move { case.run(harness).await }))
        })
        .collect();
    let mut not_held = Vec::new();
    for (name, verdict) in running {
        match verdict.await.expect("a case panicked") {
            Verdict::Held => {}
            Verdict::Skipped(why) => not_held.push(format!("{name}: skipped: {why}")),
            Verdict::Broken(why) => not_held.push(format!("{name}: {why}")),
        }
    }
    harness.store.shut_down().await;
    assert!(not_held.is_empty(), "\n{}\n", not_held.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_store_keeps_the_contract() {
    holds(LocalStore::memory().expect("memory is always there")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_durable_store_keeps_the_contract() {
    let place = tempfile::tempdir().expect("there is a place for temporary files");
    holds(LocalStore::open(place.path()).expect("an empty directory opens")).await;
}
