//! Numbers about the replica of this process, beside those of [`crate::metrics`].

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use regent_api::{ClusterResponse, ClusterTuning, ReplicaRole};

use crate::cluster::{CertificateState, Durations, Measured};
use crate::metrics::signed;

/// What is told of the replica of this process; zero over a store that has none.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    leads: Gauge,
    raft_term: Gauge,
    leader_changes: Counter,
    voters: Gauge,
    voters_heard: Gauge,
    last: Gauge,
    committed: Gauge,
    applied: Gauge,
    snapshot: Gauge,
    log_bytes: Gauge,
    snapshot_bytes: Gauge,
    due_expiries: Gauge,
    disk_free_bytes: Gauge,
    commits: Given,
    syncs: Given,
    tuning: Tuning,
    certificates: Family<CertificateLabel, Gauge>,
    reload_failures: Family<CertificateLabel, Counter>,
}

/// What a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabel {
    what: &'static str,
}

/// How the time-outs of this replica suit the network; zero while too little was measured.
#[derive(Debug, Default)]
struct Tuning {
    round_trip_p50: Seconds,
    round_trip_p99: Seconds,
    pause_max: Seconds,
    timeout: Seconds,
    timeout_better: Seconds,
    false_elections: Gauge,
}

type Seconds = Gauge<f64, AtomicU64>;

impl Tuning {
    fn register(&self, registry: &mut Registry) {
        let mut seconds = |name: &str, help: &str, gauge: &Seconds| {
            registry.register(name, help, gauge.clone());
        };
        seconds(
            "regent_peer_round_trip_p50_seconds",
            "Half of the round trips to the slowest other voter took no longer, the last minutes",
            &self.round_trip_p50,
        );
        seconds(
            "regent_peer_round_trip_p99_seconds",
            "Ninety-nine of a hundred round trips to the slowest other voter took no longer",
            &self.round_trip_p99,
        );
        seconds(
            "regent_replica_pause_max_seconds",
            "For how long this replica stood still at most, the last minutes",
            &self.pause_max,
        );
        seconds(
            "regent_election_timeout_seconds",
            "The shortest silence after which this replica stands for election",
            &self.timeout,
        );
        seconds(
            "regent_election_timeout_better_seconds",
            "The one that would suit what was measured; the present one if it does",
            &self.timeout_better,
        );
        registry.register(
            "regent_false_elections_per_year",
            "How often a year a living leader would lose the lead by the present time-outs, estimated from what was measured",
            self.false_elections.clone(),
        );
    }

    fn note(&self, tuning: Option<&ClusterTuning>) {
        let set = |gauge: &Seconds, us: u64| {
            gauge.set(us as f64 / 1e6);
        };
        let (p50, p99) = tuning.map_or((0, 0), |it| (it.round_trip_us_p50, it.round_trip_us_p99));
        set(&self.round_trip_p50, p50);
        set(&self.round_trip_p99, p99);
        set(&self.pause_max, tuning.map_or(0, |it| it.pause_ms_max * 1000));
        let present = tuning.map_or(0, |it| it.present.election_ms_min);
        let better = tuning.and_then(|it| it.better).map_or(present, |it| it.election_ms_min);
        set(&self.timeout, present * 1000);
        set(&self.timeout_better, better * 1000);
        self.false_elections.set(signed(tuning.map_or(0, |it| it.false_elections_per_year)));
    }
}

/// A histogram whose counts are kept elsewhere and shown here.
#[derive(Clone, Debug, Default)]
struct Given(Arc<Mutex<Durations>>);

impl Given {
    fn set(&self, durations: Durations) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = durations;
    }
}

impl EncodeMetric for Given {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let Durations { mut buckets, sum_s } =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let count = buckets.iter().map(|(_, count)| count).sum();
        if buckets.is_empty() {
            buckets.push((f64::INFINITY, 0));
        }
        encoder.encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl Replicas {
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.tuning.register(registry);
        let mut gauge = |name: &str, help: &str, gauge: &Gauge| {
            registry.register(name, help, gauge.clone());
        };
        gauge("regent_replica_leads", "Whether this replica leads the log", &self.leads);
        gauge("regent_raft_term", "Raft's own term", &self.raft_term);
        gauge("regent_cluster_voters", "Replicas that vote", &self.voters);
        gauge(
            "regent_cluster_voters_heard",
            "Voters that this replica hears, itself included: their answers if it leads, their pings elsewhere",
            &self.voters_heard,
        );
        gauge("regent_log_last_index", "The last entry of the log", &self.last);
        gauge(
            "regent_log_committed_index",
            "The last entry known to be committed",
            &self.committed,
        );
        gauge("regent_log_applied_index", "The last entry applied", &self.applied);
        gauge("regent_snapshot_index", "Where the newest snapshot stands", &self.snapshot);
        gauge("regent_log_bytes", "Bytes of log on disk", &self.log_bytes);
        gauge("regent_snapshot_bytes", "Bytes of the newest snapshot", &self.snapshot_bytes);
        gauge(
            "regent_disk_free_bytes",
            "Bytes free on the disk of this replica's data",
            &self.disk_free_bytes,
        );
        gauge(
            "regent_expiries_due",
            "Sessions whose time is over and whose expiry is not yet applied; known to the replica that leads, zero elsewhere",
            &self.due_expiries,
        );
        registry.register(
            "regent_commit_duration_seconds",
            "Changes from their arrival at this replica until they are applied here",
            self.commits.clone(),
        );
        registry.register(
            "regent_log_sync_duration_seconds",
            "Batches of the log from the first byte written until all are durable",
            self.syncs.clone(),
        );
        registry.register(
            "regent_tls_expires_seconds",
            "For how long a certificate of this replica is still good; negative after its end",
            self.certificates.clone(),
        );
        registry.register(
            "regent_tls_reload_failures",
            "Looks at files of certificates that found some which cannot be used; the old ones stay in use",
            self.reload_failures.clone(),
        );
        registry.register(
            "regent_raft_leader_changes",
            "Changes of the leader of the log, as seen by this replica",
            self.leader_changes.clone(),
        );
    }

    pub(crate) fn certificate(&self, state: &CertificateState) {
        let label = CertificateLabel { what: state.what };
        self.certificates.get_or_create(&label).set(state.left_s);
        let counted = self.reload_failures.get_or_create(&label);
        counted.inc_by(state.reload_failures.saturating_sub(counted.get()));
    }

    pub(crate) fn note(&self, cluster: &ClusterResponse, measured: Measured) {
        let Measured { commits, syncs, due_expiries, disk_free_bytes, certificates } = measured;
        self.disk_free_bytes.set(signed(disk_free_bytes.unwrap_or_default()));
        for certificate in &certificates {
            self.certificate(certificate);
        }
        self.commits.set(commits);
        self.syncs.set(syncs);
        self.tuning.note(cluster.tuning.as_ref());
        self.due_expiries.set(signed(due_expiries));
        self.leads.set(i64::from(cluster.role == ReplicaRole::Leader));
        self.raft_term.set(signed(cluster.raft_term));
        self.voters.set(signed(cluster.voters));
        self.voters_heard.set(signed(cluster.voters_heard.unwrap_or_default()));
        self.last.set(signed(cluster.last_index));
        self.committed.set(signed(cluster.committed_index));
        self.applied.set(signed(cluster.applied_index));
        self.snapshot.set(signed(cluster.snapshot_index));
        self.log_bytes.set(signed(cluster.log_bytes));
        self.snapshot_bytes.set(signed(cluster.snapshot_bytes));
        // The replica counts; here the count only follows it.
        let seen = cluster.leader_changes.saturating_sub(self.leader_changes.get());
        self.leader_changes.inc_by(seen);
    }
}
