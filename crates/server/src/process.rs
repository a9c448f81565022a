//! `/healthz`, `/readyz`, `/metrics`, `/openapi.json` and `/`: what the process says about itself.

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
    ask.app.readiness.check(ask).await
}

/// Whether the store serves, asked for all who want to know: anybody may, and the store must work for the answer.
///
/// Nobody gets an answer that is older than its question: whoever comes while the store is asked waits for the next
/// answer, together with all who came meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    /// How often the store was asked, counted when that begins.
    asked: AtomicU64,
    last: Mutex<Option<LastAnswer>>,
}

#[derive(Debug)]
struct LastAnswer {
    number: u64,
    asked_at: Instant,
    answer: Result<(), Problem>,
}

impl Readiness {
    async fn check(&self, ask: &Ask) -> Result<(), Problem> {
        let arrived_after = self.asked.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if let Some(last) = &*last {
            if last.number > arrived_after {
                return last.answer.clone();
            }
            tokio::time::sleep_until(last.asked_at + READY_EVERY).await;
        }
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let asked_at = Instant::now();
        let answer = ask.read(ask.app.store.ready()).await;
        *last = Some(LastAnswer { number, asked_at, answer: answer.clone() });
        answer
    }
}

pub(crate) async fn metrics(call: Call) -> Reply {
    // A store that cannot count must not hide the numbers that would tell why.
    let census = call.read(call.store().census()).await.ok();
    let cluster = match &call.app.cluster {
        Some(cluster) => Some((cluster.show().await, cluster.measured())),
        None => None,
    };
    let text = call.app.metrics.text(&call.app, census, cluster);
    Ok(reply::labelled("application/openmetrics-text; version=1.0.0; charset=utf-8", text))
}

pub(crate) fn openapi() -> Reply {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| openapi::document().to_string().into());
    Ok(reply::labelled("application/json", DOCUMENT.clone()))
}

pub(crate) fn dashboard() -> Reply {
    dashboard::page()
}
