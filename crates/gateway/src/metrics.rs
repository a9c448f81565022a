//! Numbers for Prometheus, named as operators expect them.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use regent::fencing::http::door::Looks;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    rejections: Family<ByReason, Counter>,
    requests: Counter,
    upstream_seconds: Histogram,
    connections: Gauge,
    mark: Gauge,
    inside: Gauge,
    waiting: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let metrics = Self {
            rejections: Family::default(),
            requests: Counter::default(),
            upstream_seconds: Histogram::new(exponential_buckets(0.0001, 2.5, 15)),
            connections: Gauge::default(),
            mark: Gauge::default(),
            inside: Gauge::default(),
            waiting: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register(
            "regent_fence_rejections",
            "Requests that were not passed on, by the code of the refusal",
            metrics.rejections.clone(),
        );
        registry.register("regent_fence_requests", "Requests that came", metrics.requests.clone());
        registry.register(
            "regent_fence_upstream_seconds",
            "From passing a request on to the head of its answer",
            metrics.upstream_seconds.clone(),
        );
        registry.register(
            "regent_fence_connections",
            "Clients connected",
            metrics.connections.clone(),
        );
        registry.register("regent_fence_mark", "The highest term that came", metrics.mark.clone());
        registry.register(
            "regent_fence_in_flight",
            "Requests that were admitted and are not over",
            metrics.inside.clone(),
        );
        registry.register(
            "regent_fence_waiting",
            "Requests that wait for those of lower terms",
            metrics.waiting.clone(),
        );
        Self { registry, ..metrics }
    }

    pub(crate) fn came(&self) {
        self.requests.inc();
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        self.rejections.get_or_create(&ByReason { reason }).inc();
    }

    pub(crate) fn answered(&self, after: Duration) {
        self.upstream_seconds.observe(after.as_secs_f64());
    }

    pub(crate) fn connected(&self, by: i64) {
        self.connections.inc_by(by);
    }

    /// Everything as text.
    pub(crate) fn text(&self, looks: Looks) -> String {
        self.mark.set(signed(looks.mark.get()));
        self.inside.set(signed(looks.inside as u64));
        self.waiting.set(signed(looks.waiting as u64));
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(error) => {
                tracing::error!(%error, "the metrics cannot be written");
                String::new()
            }
        }
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
