//! The contract of stores, kept by the lease over an engine on a real server: whole elections, seen
//! through two instances that share nothing but the server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use regent_election::Moment;
use regent_election::contract::{Abilities, Harness, Verdict, cases};
use regent_election::store::Store;
use regent_stores::LeaseStore;
use regent_stores::register::Register;

use crate::judge::unique;
use crate::servers::{Server, report};

struct Elections {
    here: Arc<LeaseStore>,
    there: Arc<LeaseStore>,
    /// Whether the server times sessions: then nobody knows of a silence before it is an end.
    is_servers: bool,
}

#[async_trait]
impl Harness for Elections {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.here) as Arc<dyn Store>
    }

    fn other(&self) -> Arc<dyn Store> {
        Arc::clone(&self.there) as Arc<dyn Store>
    }

    async fn sleep(&self, for_how_long: Duration) {
        tokio::time::sleep(for_how_long).await;
    }

    fn now(&self) -> Moment {
        regent_clock::now()
    }

    fn unique(&self) -> u128 {
        unique()
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            ids_span_groups: false,
            orders_across_groups: false,
            knows_silence: !self.is_servers,
            ..Abilities::default()
        }
    }
}

/// Holds the whole contract of stores against the lease over this engine.
pub(crate) async fn keeps_elections(
    store: &str,
    server: &Server,
    client: impl Fn() -> Arc<dyn Register>,
) {
    let lease = || {
        let register = client();
        (register.sessions().is_some(), Arc::new(LeaseStore::new(register)))
    };
    let ((is_servers, here), (_, there)) = (lease(), lease());
    let harness = Arc::new(Elections { here, there, is_servers });
    // A few at a time: the cases count in hundreds of milliseconds, and all at once would make any
    // server late.
    let at_once = Arc::new(tokio::sync::Semaphore::new(8));
    let running: Vec<_> = cases()
        .into_iter()
        .map(|case| {
            let (harness, at_once) = (Arc::clone(&harness), Arc::clone(&at_once));
            let run = async move {
                let _turn = at_once.acquire().await.expect("it is never closed");
                case.run(harness as Arc<dyn Harness>).await
            };
            (case.name, tokio::spawn(run))
        })
        .collect();
    let (mut held, mut skipped, mut broken) = (0, 0, Vec::new());
    for (name, verdict) in running {
        match verdict.await.expect("a case panicked") {
            Verdict::Held => held += 1,
            Verdict::Skipped(_) => skipped += 1,
            Verdict::Broken(why) => broken.push(format!("{name}: {why}")),
        }
    }
    harness.here.shut_down().await;
    harness.there.shut_down().await;
    let note = match broken.len() {
        0 => "election contract".to_owned(),
        count => format!("election contract BROKEN in {count}"),
    };
    report(store, &server.version, held, skipped, &note);
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
    // What the abilities above leave out, and no more.
    let left_out = if is_servers { 3 } else { 1 };
    assert!(skipped <= left_out, "{skipped} cases skipped, {left_out} expected");
}
