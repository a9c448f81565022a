//! What an operator looks at, on real clusters: numbers, and warnings before something goes wrong.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

mod process;

use process::cluster::Cluster;
use process::relay::Wires;
use process::until;

/// A metric, its kind, and the least that one of its samples must show after some work.
const NUMBERS: &[(&str, &str, &str, f64)] = &[
    ("store_quorum_health", "gauge", "store_quorum_health ", 1.0),
    ("regent_commit_duration_seconds", "histogram", "regent_commit_duration_seconds_count ", 1.0),
    ("regent_commit_duration_seconds", "histogram", "regent_commit_duration_seconds_sum ", 1e-6),
    (
        "regent_log_sync_duration_seconds",
        "histogram",
        "regent_log_sync_duration_seconds_bucket{le=\"+Inf\"} ",
        1.0,
    ),
    ("regent_raft_leader_changes", "counter", "regent_raft_leader_changes_total ", 1.0),
    ("regent_log_bytes", "gauge", "regent_log_bytes ", 1.0),
    ("regent_snapshot_bytes", "gauge", "regent_snapshot_bytes ", 1.0),
    ("regent_disk_free_bytes", "gauge", "regent_disk_free_bytes ", 1.0),
    ("regent_sessions", "gauge", "regent_sessions ", 1.0),
    ("regent_expiries_due", "gauge", "regent_expiries_due ", 0.0),
    ("regent_cluster_voters", "gauge", "regent_cluster_voters ", 3.0),
];

fn sample(metrics: &str, name: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.parse().ok())
}

#[test]
fn every_number_that_operators_need_is_there_with_its_meaning() {
    let cluster = Cluster::start(3);
    cluster.yes_soon(&["campaign", "billing", "--node", "a", "--ttl", "1h"]);
    for id in cluster.running() {
        let server = cluster.server(id);
        // Each replica must have done something itself.
        until("a change through this replica", || {
            let name = format!("through-{id}");
            let arguments = ["campaign", &name, "--node", "a", "--ttl", "1h"];
            server.ask(&cluster.room, &arguments).code == 0
        });
        let metrics = server.get("/metrics");
        for (name, kind, of, least) in NUMBERS {
            let help =
                metrics.lines().find_map(|line| line.strip_prefix(&format!("# HELP {name} ")));
            assert!(help.is_some_and(|help| help.len() > 10), "{name} does not say what it is");
            assert!(metrics.contains(&format!("# TYPE {name} {kind}\n")), "{name} is no {kind}");
            let found = sample(&metrics, of).unwrap_or_else(|| panic!("no {of} in {metrics}"));
            assert!(found >= *least, "{of}: {found} at replica {id}");
        }
    }
}

/// The sum of all samples that open with this, at all replicas that run.
fn sum(cluster: &Cluster, opening: &str) -> f64 {
    let of = |metrics: String| -> f64 {
        let samples = metrics.lines().filter(|line| line.starts_with(opening));
        samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    cluster.running().into_iter().map(|id| of(cluster.server(id).get("/metrics"))).sum()
}

/// A leader is killed, and a standby is promoted and accepts: that takes time, and is measured by one replica. A replica
/// that starts later applies it again, and counts no change that is over.
#[test]
fn a_failover_is_measured_once_and_not_counted_again_by_a_replica_that_starts() {
    let mut cluster = Cluster::start(3);
    let lead = |node: &str| {
        cluster.room.start(&[
            "campaign",
            "billing",
            "--node",
            node,
            "--keep",
            "--ttl",
            "2s",
            "--server",
            &cluster.urls(),
        ])
    };
    let mut first = lead("a");
    first.line_with("a leads, term 1");
    let second = lead("b");
    second.line_with("standing by");
    first.kill();
    second.line_with("b leads, term 2");
    let expired = "time_to_elect_ms_count{cause=\"expired\"}";
    until("the replica that serves has measured it", || sum(&cluster, expired) == 1.0);
    assert!(sum(&cluster, "time_to_elect_ms_sum{cause=\"expired\"}") > 0.0);
    assert_eq!(sum(&cluster, "election_duration_seconds_count{result=\"failed\""), 0.0);
    let change = "leader_changes_total{group_id=\"billing\",cause=\"expired\"} ";
    until("every replica has seen one change", || sum(&cluster, change) == 3.0);
    let all = sum(&cluster, "leader_changes_total{group_id=\"billing\"");
    // A replica that began to observe after the first election does not count that one.
    let elected = sum(&cluster, "leader_changes_total{group_id=\"billing\",cause=\"elected\"} ");
    assert!((1.0..=3.0).contains(&elected), "{elected}");
    assert_eq!(all, 3.0 + elected, "the expiry and the election after it are one change");

    let follower = cluster.followers()[0];
    cluster.kill(follower);
    cluster.run(follower);
    let shown = |name: &str| sample(&cluster.server(follower).get("/metrics"), name);
    let stable = "leader_stable_seconds{group_id=\"billing\"} ";
    until("it has caught up", || shown(stable).is_some());
    assert_eq!(shown("leader_elections_total{cluster=\"regent\"} "), Some(0.0));
    assert_eq!(shown(change), Some(0.0), "it is over");
    assert_eq!(shown("active_leaders_count{group_id=\"billing\",expected=\"1\"} "), Some(1.0));
}

/// Round trips of 120 ms and more leave the timers of one data centre no chance.
#[test]
fn what_is_measured_between_replicas_and_which_time_outs_would_suit_it_is_told_and_followed() {
    let wires = Wires::default();
    wires.delay(60);
    let mut cluster =
        Cluster::found_at(3, &[], &["--tune", "apply"], |id, peer| wires.relay(id, peer));
    cluster.start_all();
    for id in cluster.running() {
        let patience = |field: &str| {
            let tuning = &cluster.status_of(id)["tuning"];
            tuning[field]["patience_percent"].as_u64().unwrap_or(0)
        };
        until("the replica asks for patience, or has taken it", || {
            patience("better") > 100 || patience("present") > 100
        });
        until("it takes it", || patience("present") > 100);
        let tuning = cluster.status_of(id)["tuning"].clone();
        assert_eq!(tuning["mode"], "apply");
        assert!(tuning["round_trip_us_p50"].as_u64().unwrap() >= 60_000, "{tuning}");
        assert_eq!(tuning["present"]["heartbeat_ms"], 50, "{tuning}");
        let log = cluster.server(id).log();
        assert!(log.contains("election time-outs follow the network"), "{log}");
        let metrics = cluster.server(id).get("/metrics");
        let seconds = sample(&metrics, "regent_election_timeout_seconds ").unwrap();
        assert!(seconds > 0.15, "{seconds}");
    }
    until("the command tells", || {
        let told = cluster.ask(&["cluster", "status"]).stdout;
        told.contains("tune = \"apply\"") && told.contains("round trips  ")
    });
}

#[test]
fn a_network_too_slow_for_the_timers_is_warned_about_until_it_is_not() {
    const WARNING: &str = "is below three measured round trips";
    let wires = Wires::default();
    wires.delay(30);
    let mut cluster = Cluster::found_at(3, &[], &[], |id, peer| wires.relay(id, peer));
    cluster.start_all();
    let warns = |id| cluster.status_of(id)["warnings"].to_string().contains(WARNING);
    for id in cluster.running() {
        until("the replica warns", || warns(id));
        until("its log warns", || cluster.server(id).log().contains(WARNING));
    }
    until("the command warns", || cluster.ask(&["cluster", "status"]).stderr.contains(WARNING));
    wires.delay(0);
    for id in cluster.running() {
        until("nobody warns any more", || !warns(id));
    }
}
