//! Numbers about the replica of this process, beside those of [`crate::metrics`].

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use regent_api::{ClusterResponse, MemberKind, ReplicaRole};

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
}

impl Replicas {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let mut gauge = |name: &str, help: &str, gauge: &Gauge| {
            registry.register(name, help, gauge.clone());
        };
        gauge("regent_replica_leads", "Whether this replica leads the log", &self.leads);
        gauge("regent_raft_term", "Raft's own term", &self.raft_term);
        gauge("regent_cluster_voters", "Replicas that vote", &self.voters);
        gauge(
            "regent_cluster_voters_heard",
            "Voters heard lately; known to the replica that leads, zero elsewhere",
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
        registry.register(
            "regent_raft_leader_changes",
            "Changes of the leader of the log, as seen by this replica",
            self.leader_changes.clone(),
        );
    }

    pub(crate) fn note(&self, cluster: &ClusterResponse) {
        self.leads.set(i64::from(cluster.role == ReplicaRole::Leader));
        self.raft_term.set(signed(cluster.raft_term));
        self.voters.set(signed(cluster.voters));
        let heard = cluster.members.iter().filter(|member| {
            member.kind != MemberKind::Learner && member.heard.unwrap_or_default()
        });
        self.voters_heard.set(signed(heard.count() as u64));
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
