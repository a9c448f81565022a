//! `/healthz`, `/livez`, `/readyz`, `/metrics`, `/openapi.json` and `/`: what the process says about itself.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::body::Bytes;
use regent_api::{Code, HealthResponse, Problem, ReadyResponse, openapi};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::app::{Ask, Call, Phase};
use crate::dashboard;
use crate::limits::READY_EVERY;
use crate::reply::{self, Reply};

/// The process turns; it says nothing about the store.
pub(crate) fn healthz() -> Reply {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    reply::json(&HealthResponse { alive: true, version })
}

/// The store serves, and this server is not on its way out.
pub(crate) async fn readyz(call: Call) -> Reply {
    check_ready(&call).await?;
    reply::json(&ReadyResponse::from(call.store().describe()))
}

/// A problem unless the store serves and this server stays.
pub(crate) async fn check_ready(ask: &Ask) -> Result<(), Problem> {
    if *ask.app.phase.borrow() != Phase::Serving {
        return Err(Problem::new(Code::ShuttingDown, "this server is going away").retry_after(1000));
    }
    ask.app.readiness.check(async || ask.read(ask.app.store.ready()).await).await
}

/// Whether the store serves, asked for all who want to know: anybody may, and the store must work for the answer.
///
/// Nobody gets an answer that is older than its question: whoever comes while the store is asked waits for the next
/// answer, together with all who came meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    /// How often the store was asked, counted when that begins.
    asked: AtomicU64,
    last: Mutex<LastAsked>,
}

#[derive(Debug, Default)]
struct LastAsked {
    /// Kept before the answer comes: whoever hangs up meanwhile makes nobody ask earlier.
    at: Option<Instant>,
    answer: Option<(u64, Result<(), Problem>)>,
}

impl Readiness {
    async fn check<E>(&self, ask: E) -> Result<(), Problem>
    where
        E: AsyncFnOnce() -> Result<(), Problem>,
    {
        let arrived_after = self.asked.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if let Some((number, answer)) = &last.answer
            && *number > arrived_after
        {
            return answer.clone();
        }
        if let Some(at) = last.at {
            tokio::time::sleep_until(at + READY_EVERY).await;
        }
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        last.at = Some(Instant::now());
        let answer = ask().await;
        last.answer = Some((number, answer.clone()));
        answer
    }
}

pub(crate) async fn metrics(call: Call) -> Reply {
    // A store that cannot count must not hide the numbers that would tell why.
    // Both at once: a store that hangs must not take twice as long to say so.
    let names = call.app.metrics.by_group.names();
    let (census, offices) = tokio::join!(
        call.read(call.store().census()),
        call.read(call.store().offices(names.clone())),
    );
    let cluster = match &call.app.cluster {
        Some(cluster) => Some((cluster.show().await, cluster.measured())),
        None => None,
    };
    let (census, offices) = (census.ok(), (names, offices.ok()));
    let text = call.app.metrics.text(&call.app, census, offices, cluster);
    Ok(reply::labelled("application/openmetrics-text; version=1.0.0; charset=utf-8", text))
}

pub(crate) fn openapi() -> Reply {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| openapi::document().to_string().into());
    Ok(reply::labelled("application/json", DOCUMENT.clone()))
}

pub(crate) fn dashboard() -> Reply {
    dashboard::page()
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn callers_that_hang_up_do_not_make_the_store_be_asked_more_often() {
        let (readiness, asked) = (Readiness::default(), AtomicU64::new(0));
        for _ in 0..100 {
            let check = readiness.check(async || {
                asked.fetch_add(1, Ordering::SeqCst);
                pending().await
            });
            let _ = tokio::time::timeout(Duration::from_millis(1), check).await;
        }
        assert!(asked.load(Ordering::SeqCst) <= 11, "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_while_the_store_is_asked_gets_the_next_answer_with_all_others() {
        let (readiness, asked) = (Readiness::default(), AtomicU64::new(0));
        let check = || {
            readiness.check(async || {
                let number = asked.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(5)).await;
                if number == 0 { Ok(()) } else { Err(Problem::new(Code::StoreUnavailable, "")) }
            })
        };
        let late = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            tokio::join!(check(), check(), check())
        };
        let (first, (one, two, three)) = tokio::join!(check(), late);
        assert!(first.is_ok());
        assert!(one.is_err() && two.is_err() && three.is_err(), "theirs is the second answer");
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }
}
