//! Numbers for Prometheus, named as operators expect them.
//!
//! Labels are bounded: groups beyond `metrics_groups_max` share `_other` (`group_metrics`), routes are those of the
//! table, codes those of the problem table. Names that operators expect of a leader election are theirs; all others
//! open with `regent_`. `docs/metrics.md` has them all, and a test compares it.

use std::fmt::Write;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use regent_api::{ClusterResponse, Code, Operation, ROUTES};
use regent_election::store::{Census, OfficesView};
use regent_election::{Event, Group};

use crate::admission::Class;
use crate::app::App;
use crate::auth::wall_ms;
use crate::cluster::{CertificateState, Measured};
use crate::config::ServerConfig;
use crate::connection_limit::NoRoom;
use crate::election_metrics::ElectionMetrics;
use crate::forecast::Became;
use crate::group_metrics::GroupMetrics;
use crate::reason::{RENEW_REASONS, renew_reason};
use crate::replica_metrics::Replicas;
use crate::tls::Unsecured;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByCluster {
    pub(crate) cluster: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByClass {
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRoute {
    route: &'static str,
    code: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Seconds of requests: 100 µs to about 50 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.5, 15))
}

/// What the token service says to a term that may not write.
const FENCE_REFUSALS: [Code; 3] = [Code::StaleTerm, Code::TermOver, Code::NeverGranted];

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) by_group: GroupMetrics,
    elections: ElectionMetrics,
    renew_failures: Family<ByReason, Counter>,
    fence_rejections: Family<ByReason, Counter>,
    near_misses: Counter,
    margins: Histogram,
    believers: Gauge,
    leaders_failing: Gauge,
    predictions: Family<ByOutcome, Counter>,
    request_seconds: Histograms<ByRoute>,
    /// Those of operations that were answered with a yes, by the operation.
    served_seconds: [OnceLock<Histogram>; ROUTES.len()],
    shed: Family<ByClass, Counter>,
    limited: Family<ByClass, Counter>,
    turned_away: Family<ByReason, Counter>,
    accept_failures: Counter,
    unsecured: Family<ByReason, Counter>,
    missed: Counter,
    connections: Gauge,
    queue_delay: Gauge<f64, AtomicU64>,
    asking: Gauge,
    waiting: Gauge,
    audit_lines: Gauge,
    audit_lost: Gauge,
    audit_failing: Gauge,
    store_up: Gauge,
    sessions: Gauge,
    groups: Gauge,
    groups_contended: Gauge,
    watchers: Gauge,
    revision: Gauge,
    state_bytes: Gauge,
    state_bytes_max: Gauge,
    quorum_health: Gauge,
    replicas: Replicas,
}

impl Metrics {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            by_group: GroupMetrics::new(config),
            elections: ElectionMetrics::default(),
            renew_failures: Family::default(),
            fence_rejections: Family::default(),
            near_misses: Counter::default(),
            margins: Histogram::new(exponential_buckets(0.001, 2.0, 18)),
            believers: Gauge::default(),
            leaders_failing: Gauge::default(),
            predictions: Family::default(),
            request_seconds: Family::new_with_constructor(seconds),
            served_seconds: [const { OnceLock::new() }; ROUTES.len()],
            shed: Family::default(),
            limited: Family::default(),
            turned_away: Family::default(),
            accept_failures: Counter::default(),
            unsecured: Family::default(),
            missed: Counter::default(),
            connections: Gauge::default(),
            queue_delay: Gauge::default(),
            asking: Gauge::default(),
            waiting: Gauge::default(),
            audit_lines: Gauge::default(),
            audit_lost: Gauge::default(),
            audit_failing: Gauge::default(),
            store_up: Gauge::default(),
            sessions: Gauge::default(),
            groups: Gauge::default(),
            groups_contended: Gauge::default(),
            watchers: Gauge::default(),
            revision: Gauge::default(),
            state_bytes: Gauge::default(),
            state_bytes_max: Gauge::default(),
            quorum_health: Gauge::default(),
            replicas: Replicas::default(),
        };
        // Present from the first scrape, so that an alert on their rise sees them start at zero.
        for reason in RENEW_REASONS {
            metrics.renew_failures.get_or_create(&ByReason { reason }).inc_by(0);
        }
        for code in FENCE_REFUSALS {
            metrics.fence_rejections.get_or_create(&ByReason { reason: code.word() }).inc_by(0);
        }
        for became in Became::ALL {
            metrics.predictions.get_or_create(&ByOutcome { outcome: became.word() }).inc_by(0);
        }
        for why in Unsecured::ALL {
            metrics.unsecured.get_or_create(&ByReason { reason: why.word() }).inc_by(0);
        }
        for no_room in [NoRoom::Full, NoRoom::Address] {
            let reason = reason_of(&no_room);
            metrics.turned_away.get_or_create(&ByReason { reason }).inc_by(0);
        }
        for class in Class::ALL {
            metrics.shed.get_or_create(&ByClass { class: class.word() }).inc_by(0);
            metrics.limited.get_or_create(&ByClass { class: class.word() }).inc_by(0);
        }
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        self.by_group.register(registry);
        self.elections.register(registry);
        registry.register(
            "renew_failures",
            "Renewals that were not acknowledged",
            self.renew_failures.clone(),
        );
        registry.register(
            "regent_fence_rejections",
            "Terms that the token service refused, and that fences elsewhere refused to leaders",
            self.fence_rejections.clone(),
        );
        registry.register(
            "regent_near_misses",
            "Renewals of leaders that came when less than a tenth of the ttl was left; the first one after an election, or heard after a start of this server, is none",
            self.near_misses.clone(),
        );
        registry.register(
            "regent_renew_margin_seconds",
            "What was left before a leader would have had to stop, when its renewal came",
            self.margins.clone(),
        );
        registry.register(
            "regent_believers",
            "Terms that somebody says to act under, as heard by this server",
            self.believers.clone(),
        );
        registry.register(
            "regent_leaders_failing",
            "Nodes that lead and whose renewals are about to come too late, as heard by this server",
            self.leaders_failing.clone(),
        );
        registry.register(
            "regent_leader_predictions",
            "Leaders that were seen to fail soon, by what became of it",
            self.predictions.clone(),
        );
        registry.register(
            "regent_http_request_duration_seconds",
            "Requests from head to answer; a stream until it begins",
            self.request_seconds.clone(),
        );
        registry.register(
            "regent_requests_shed",
            "Requests refused for want of a place or because the server runs late",
            self.shed.clone(),
        );
        registry.register(
            "regent_requests_limited",
            "Requests refused because one principal or address sends too many",
            self.limited.clone(),
        );
        registry.register(
            "regent_connections_refused",
            "Connections refused for want of a place",
            self.turned_away.clone(),
        );
        registry.register(
            "regent_accept_errors",
            "Connections that could not be accepted",
            self.accept_failures.clone(),
        );
        registry.register(
            "regent_tls_handshakes_failed",
            "Connections of clients that came to no TLS",
            self.unsecured.clone(),
        );
        registry.register(
            "regent_observer_gaps",
            "Times that changes went by uncounted",
            self.missed.clone(),
        );
        registry.register("regent_connections", "Open connections", self.connections.clone());
        registry.register(
            "regent_queue_delay_seconds",
            "How late a task of this server ran when last measured",
            self.queue_delay.clone(),
        );
        registry.register(
            "regent_requests_in_flight",
            "Requests that ask the store",
            self.asking.clone(),
        );
        registry.register(
            "regent_requests_waiting",
            "Watches, and campaigns that wait",
            self.waiting.clone(),
        );
        registry.register(
            "regent_store_up",
            "Whether the store answered this scrape",
            self.store_up.clone(),
        );
        registry.register("regent_sessions", "Open sessions", self.sessions.clone());
        registry.register("regent_groups", "Known groups", self.groups.clone());
        registry.register(
            "regent_groups_contended",
            "Groups with a leader or standbys",
            self.groups_contended.clone(),
        );
        registry.register(
            "regent_watchers",
            "Watches of the store, this server's own too",
            self.watchers.clone(),
        );
        registry.register(
            "regent_revision",
            "Changes the store has applied",
            self.revision.clone(),
        );
        registry.register(
            "regent_state_bytes",
            "What groups, sessions and policies weigh in memory; 0 if the store does not count",
            self.state_bytes.clone(),
        );
        registry.register(
            "regent_state_bytes_max",
            "The most that they may weigh: beyond it growth is refused with FULL",
            self.state_bytes_max.clone(),
        );
        registry.register(
            "store_quorum_health",
            "Whether the store can decide: a quorum of replicas has a leader, or the one store answers",
            self.quorum_health.clone(),
        );
        registry.register(
            "regent_audit_lines",
            "The number of the audit log's last line; 0 if nothing is audited",
            self.audit_lines.clone(),
        );
        registry.register(
            "regent_audit_lines_lost",
            "Lines that the audit log could not keep since the start",
            self.audit_lost.clone(),
        );
        registry.register(
            "regent_audit_failing",
            "Whether the disk refuses the audit log now",
            self.audit_failing.clone(),
        );
        self.replicas.register(registry);
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("regent_build", "What runs", build);
    }

    /// Everything as text. Without a census the store's numbers stay as they were.
    pub(crate) fn text(
        &self,
        app: &App,
        census: Option<Census>,
        offices: (Vec<Group>, Option<OfficesView>),
        cluster: Option<(ClusterResponse, Measured)>,
    ) -> String {
        self.connections.set(signed(app.connection_limit.count().now() as u64));
        self.queue_delay.set(app.queue_delay.now().as_secs_f64());
        self.asking.set(signed(app.admission.asking().now() as u64));
        self.waiting.set(signed(app.admission.waiting().now() as u64));
        let (believers, accused) = app.claim_monitor.count();
        self.believers.set(signed(believers));
        self.leaders_failing.set(signed(app.failure_forecast.failing()));
        let audit = app.audit.as_ref().map(|audit| audit.figures()).unwrap_or_default();
        self.audit_lines.set(signed(audit.sequence));
        self.audit_lost.set(signed(audit.lost));
        self.audit_failing.set(i64::from(audit.is_failing));
        self.store_up.set(i64::from(census.is_some()));
        let can_decide =
            cluster.as_ref().map_or(census.is_some(), |(cluster, _)| cluster.can_decide());
        self.quorum_health.set(i64::from(can_decide));
        if let Some((cluster, measured)) = cluster {
            self.replicas.note(&cluster, measured);
        }
        if let Some(tls) = &app.tls {
            self.replicas.certificate(&CertificateState {
                what: "client",
                left_s: signed(tls.expires_at_s()).saturating_sub(signed(wall_ms() / 1000)),
                reload_failures: tls.reload_failures(),
            });
        }
        if let Some(census) = census {
            self.sessions.set(signed(census.sessions));
            self.groups.set(signed(census.groups));
            self.groups_contended.set(signed(census.contended));
            self.watchers.set(signed(census.watchers));
            self.revision.set(signed(census.revision.0));
            self.state_bytes.set(signed(census.state_bytes));
            self.state_bytes_max.set(signed(census.state_bytes_max));
        }
        let (names, offices) = offices;
        // Without a quorum the groups are unknown, whatever was true when there was one.
        let shown = offices.as_ref().filter(|_| can_decide);
        self.by_group.show(regent_clock::now(), wall_ms(), &names, shown, &accused);
        if let Some(times) = offices.and_then(|offices| offices.times) {
            self.elections.set(times);
        }
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            let _ = writeln!(text, "# EOF");
        }
        text
    }

    pub(crate) fn answered(&self, route: &'static str, code: &'static str, took: Duration) {
        self.request_seconds.get_or_create(&ByRoute { route, code }).observe(took.as_secs_f64());
    }

    /// A request was answered with a yes. Its histogram is found once, and not by its labels each time.
    pub(crate) fn served(&self, operation: Operation, took: Duration) {
        let labels = || ByRoute { route: operation.route().path, code: "OK" };
        match self.served_seconds.get(operation as usize) {
            Some(found) => found
                .get_or_init(|| self.request_seconds.get_or_create(&labels()).clone())
                .observe(took.as_secs_f64()),
            None => self.request_seconds.get_or_create(&labels()).observe(took.as_secs_f64()),
        }
    }

    /// A request was answered with a problem.
    pub(crate) fn failed(&self, operation: Operation, code: Code) {
        if matches!(operation, Operation::Renew | Operation::Heartbeat) {
            self.renew_failures.get_or_create(&ByReason { reason: renew_reason(code) }).inc();
        }
        if operation == Operation::ValidateToken && FENCE_REFUSALS.contains(&code) {
            self.fence_rejections.get_or_create(&ByReason { reason: code.word() }).inc();
        }
    }

    pub(crate) fn leader_changed(&self, event: &Event) {
        self.by_group.changed(regent_clock::now(), event);
    }

    pub(crate) fn near_miss(&self) {
        self.near_misses.inc();
    }

    /// A leader was seen to fail soon.
    pub(crate) fn predicted(&self, became: Became) {
        self.predictions.get_or_create(&ByOutcome { outcome: became.word() }).inc();
    }

    pub(crate) fn renewed_with(&self, margin_ms: u64) {
        self.margins.observe(Duration::from_millis(margin_ms).as_secs_f64());
    }

    /// A leader says that a fence refused its term.
    pub(crate) fn refused_elsewhere(&self) {
        let reason = Code::StaleTerm.word();
        self.fence_rejections.get_or_create(&ByReason { reason }).inc();
    }

    pub(crate) fn missed_events(&self) {
        self.missed.inc();
        self.by_group.blind();
    }

    pub(crate) fn limited(&self, class: Class) {
        self.limited.get_or_create(&ByClass { class: class.word() }).inc();
    }

    pub(crate) fn shed(&self, class: Class) {
        self.shed.get_or_create(&ByClass { class: class.word() }).inc();
    }

    pub(crate) fn turned_away(&self, no_room: NoRoom) {
        let reason = reason_of(&no_room);
        self.turned_away.get_or_create(&ByReason { reason }).inc();
    }

    pub(crate) fn unsecured(&self, why: Unsecured) {
        self.unsecured.get_or_create(&ByReason { reason: why.word() }).inc();
    }

    pub(crate) fn accept_failed(&self) {
        self.accept_failures.inc();
    }
}

const fn reason_of(no_room: &NoRoom) -> &'static str {
    match no_room {
        NoRoom::Full => "full",
        NoRoom::Address => "address",
    }
}

pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
