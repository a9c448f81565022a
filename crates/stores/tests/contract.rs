//! The contract suite on the memory store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use regent_election::Moment;
use regent_election::contract::{CaseResult, Harness, cases};
use regent_election::store::Store;
use regent_stores::MemoryStore;

struct Memory {
    store: Arc<MemoryStore>,
}

#[async_trait]
impl Harness for Memory {
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
async fn holds(store: MemoryStore) {
    let harness = Arc::new(Memory { store: Arc::new(store) });
    let running: Vec<_> = cases()
        .into_iter()
        .map(|case| {
            let harness = Arc::clone(&harness) as Arc<dyn Harness>;
            (case.name, tokio::spawn(async move { case.run(harness).await }))
        })
        .collect();
    let mut not_held = Vec::new();
    for (name, verdict) in running {
        match verdict.await.expect("a case panicked") {
            CaseResult::Held => {}
            CaseResult::Skipped(why) => not_held.push(format!("{name}: skipped: {why}")),
            CaseResult::Broken(why) => not_held.push(format!("{name}: {why}")),
        }
    }
    harness.store.shut_down().await;
    assert!(not_held.is_empty(), "\n{}\n", not_held.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_store_keeps_the_contract() {
    holds(MemoryStore::new().expect("memory is always there")).await;
}
