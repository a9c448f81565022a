//! How long elections took, as histograms: measured by the store (`regent_election::elections`), shown here.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use regent_election::elections::{ELECTION_BOUNDS_MS, ElectionCounts, ElectionTimes};

use crate::group_metrics::causes_of_change;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCause {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResultAndCause {
    result: &'static str,
    cause: &'static str,
}

/// What was measured last.
#[derive(Clone, Debug, Default)]
pub(crate) struct ElectionMetrics(Arc<Mutex<ElectionTimes>>);

impl ElectionMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "election_duration_seconds",
            "From a vacancy with candidates to the acceptance of the next leader, or until an attempt failed, by why the office was vacant; measured by the replica that serves",
            InSeconds(self.clone()),
        );
        registry.register(
            "time_to_elect_ms",
            "From a vacancy with candidates to the acceptance of the next leader, by why the office was vacant; measured by the replica that serves",
            InMilliseconds(self.clone()),
        );
    }

    pub(crate) fn set(&self, times: ElectionTimes) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = times;
    }

    fn get(&self) -> ElectionTimes {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One histogram; bounds and sum in parts of so many milliseconds.
fn put(mut encoder: MetricEncoder<'_>, counted: &ElectionCounts, unit_ms: f64) -> std::fmt::Result {
    #[expect(clippy::cast_precision_loss, reason = "the bounds are small numbers")]
    let bounds = ELECTION_BOUNDS_MS.iter().map(|ms| *ms as f64 / unit_ms);
    let buckets: Vec<(f64, u64)> =
        bounds.chain([f64::INFINITY]).zip(counted.counts.iter().copied()).collect();
    let sum = counted.sum.as_secs_f64() * 1000.0 / unit_ms;
    encoder.encode_histogram::<NoLabelSet>(sum, counted.count(), &buckets, None)
}

#[derive(Debug)]
struct InSeconds(ElectionMetrics);

impl EncodeMetric for InSeconds {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let times = self.0.get();
        for cause in causes_of_change() {
            let of_cause = times.get(&cause).copied().unwrap_or_default();
            for (result, counted) in [("success", of_cause.success), ("failed", of_cause.failed)] {
                let labels = ByResultAndCause { result, cause: cause.word() };
                put(encoder.encode_family(&labels)?, &counted, 1000.0)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[derive(Debug)]
struct InMilliseconds(ElectionMetrics);

impl EncodeMetric for InMilliseconds {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let times = self.0.get();
        for cause in causes_of_change() {
            let counted = times.get(&cause).copied().unwrap_or_default().success;
            put(encoder.encode_family(&ByCause { cause: cause.word() })?, &counted, 1.0)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
