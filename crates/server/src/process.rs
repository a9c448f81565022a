//! `/healthz`, `/readyz`, `/metrics`, `/openapi.json` and `/`: what the process says about itself.

use std::sync::LazyLock;

use hyper::body::Bytes;
use regent_api::{Code, HealthResponse, Problem, ReadyResponse, openapi};

use crate::app::{Ask, Call, Phase};
use crate::dashboard;
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
    ask.read(ask.store().ready()).await
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
