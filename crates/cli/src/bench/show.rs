//! The report for people.

use regent_load::{
    Failover, GatewayCost, HandOver, Leaderless, LoadReport, LoadRow, Memory, SecurityCost, Spread,
    Succession, Width,
};

use crate::output::{Side, facts, table};

/// All reports, one after the other.
pub(super) fn reports(reports: &[LoadReport]) -> String {
    let shown: Vec<_> = reports.iter().map(report).collect();
    shown.join("\n\n")
}

fn report(report: &LoadReport) -> String {
    let mut parts = Vec::new();
    match report.nodes {
        Some(1) => parts.push("one node".to_owned()),
        Some(nodes) => parts.push(format!("{nodes} nodes")),
        None => {}
    }
    if let Some(percent) = report.idle_cpu_percent {
        parts.push(format!("idle, all nodes together: {percent:.1} % of a core"));
    }
    if !report.load.is_empty() {
        parts.push(load(&report.load));
    }
    parts.extend(report.width.as_ref().map(width));
    parts.extend(report.failover.as_ref().map(failover));
    parts.extend(report.handover.as_ref().map(handover));
    parts.extend(report.succession.as_ref().map(succession));
    parts.extend(report.overload.as_ref().map(|overload| facts(overload.facts())));
    if !report.memory.is_empty() {
        parts.push(memory(&report.memory));
    }
    if !report.gateway.is_empty() {
        parts.push(gateway(&report.gateway));
    }
    if !report.security.is_empty() {
        parts.push(security(&report.security));
    }
    parts.join("\n\n")
}

/// The smallest, the middle and the largest of several turns.
fn gateway(costs: &[GatewayCost]) -> String {
    let head = [
        ("CLIENTS", Side::Right),
        ("THROUGH", Side::Left),
        ("PER SECOND", Side::Right),
        ("P50 US", Side::Right),
        ("P99 US", Side::Right),
        ("RATIO", Side::Right),
        ("GATEWAY CPU", Side::Right),
    ];
    let spread = |it: &Spread| format!("{:.0}/{:.0}/{:.0}", it.smallest, it.median, it.largest);
    let body = costs.iter().flat_map(|cost| {
        cost.ways.iter().map(move |way| {
            let is_through = way.through == "gateway";
            let only = |text: String| if is_through { text } else { "-".to_owned() };
            vec![
                cost.clients.to_string(),
                way.through.to_owned(),
                spread(&way.per_second),
                spread(&way.p50_us),
                spread(&way.p99_us),
                only(format!("{:.2}", cost.ratio)),
                only(cpu(Some(cost.cpu_us))),
            ]
        })
    });
    table(&head, body.collect())
}

/// The smallest, the middle and the largest of several turns.
fn security(costs: &[SecurityCost]) -> String {
    let head = [
        ("WORK", Side::Left),
        ("CLIENTS", Side::Right),
        ("DOOR", Side::Left),
        ("SERVER CPU US", Side::Right),
        ("RATIO", Side::Right),
        ("CLIENT CPU US", Side::Right),
        ("RATIO", Side::Right),
        ("FAILED", Side::Right),
    ];
    let us = |it: &Spread| format!("{:.1}/{:.1}/{:.1}", it.smallest, it.median, it.largest);
    let ratio = |it: &Spread| format!("{:.2}/{:.2}/{:.2}", it.smallest, it.median, it.largest);
    let body = costs.iter().map(|cost| {
        vec![
            cost.work.to_string(),
            cost.clients.to_string(),
            cost.door.to_owned(),
            us(&cost.server_cpu_us),
            ratio(&cost.server_ratio),
            us(&cost.client_cpu_us),
            ratio(&cost.client_ratio),
            cost.failures.to_string(),
        ]
    });
    table(&head, body.collect())
}

fn millis(us: u64) -> String {
    format!("{:.2} ms", us as f64 / 1000.0)
}

fn cpu(us: Option<f64>) -> String {
    us.map_or_else(|| "-".to_owned(), |us| format!("{us:.1} us"))
}

fn load(rows: &[LoadRow]) -> String {
    let head = [
        ("WORK", Side::Left),
        ("TO", Side::Left),
        ("CLIENTS", Side::Right),
        ("PER SECOND", Side::Right),
        ("P50", Side::Right),
        ("P99", Side::Right),
        ("SERVER CPU", Side::Right),
        ("FAILED", Side::Right),
    ];
    let body = rows.iter().map(|row| {
        vec![
            row.work.to_string(),
            row.to.word().to_owned(),
            row.clients.to_string(),
            format!("{:.0}", row.per_second),
            millis(row.p50_us),
            millis(row.p99_us),
            cpu(row.server_cpu_us),
            row.failures.to_string(),
        ]
    });
    table(&head, body.collect())
}

fn width(width: &Width) -> String {
    facts(vec![
        ("heartbeat of a session with one group, CPU", cpu(width.narrow_cpu_us)),
        ("heartbeat of a session with 1,000 groups, CPU", cpu(width.wide_cpu_us)),
        (
            "the same, p50",
            format!("{} and {}", millis(width.narrow_p50_us), millis(width.wide_p50_us)),
        ),
    ])
}

fn failover(failover: &Failover) -> String {
    facts(vec![
        ("crashes", format!("{}, with a ttl of {} ms", failover.trials, failover.ttl_ms)),
        ("succeeded after ttl and, p50", millis(failover.beyond_ttl_p50_us)),
        ("p99", millis(failover.beyond_ttl_p99_us)),
        ("slowest", millis(failover.beyond_ttl_max_us)),
    ])
}

fn handover(handover: &HandOver) -> String {
    let told = |leaderless: &Leaderless| {
        format!(
            "{}: p50 {}, p99 {}, longest {}",
            leaderless.count,
            millis(leaderless.p50_us),
            millis(leaderless.p99_us),
            millis(leaderless.max_us)
        )
    };
    facts(vec![
        (
            "pairs that hand over",
            format!("{}, with a ttl of {} ms", handover.pairs, handover.ttl_ms),
        ),
        ("load beside them", format!("{:.0} requests a second", handover.load_per_second)),
        ("nobody leads, transfers", told(&handover.transfers)),
        ("nobody leads, resignations", told(&handover.resigns)),
        ("two led at once", handover.overlaps.to_string()),
        ("not as planned", handover.failures.to_string()),
    ])
}

fn succession(succession: &Succession) -> String {
    let used = succession.server_cpu_ms;
    facts(vec![
        ("one crash with groups", succession.groups.to_string()),
        ("all succeeded after ttl and", format!("{} ms", succession.beyond_ttl_ms)),
        ("server CPU", used.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0} ms"))),
        ("slowest heartbeat of another", format!("{:.1} ms", succession.slowest_heartbeat_ms)),
    ])
}

fn memory(rows: &[Memory]) -> String {
    let head = [
        ("GROUPS", Side::Right),
        ("SECONDS TO MAKE", Side::Right),
        ("MEMORY BEFORE", Side::Right),
        ("AFTER", Side::Right),
        ("PER GROUP AND NODE", Side::Right),
    ];
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let body = rows.iter().map(|row| {
        vec![
            row.groups.to_string(),
            format!("{:.1}", row.seconds_to_make),
            mib(row.bytes_before),
            mib(row.bytes_after),
            format!("{:.0} B", row.bytes_per_group_and_node),
        ]
    });
    table(&head, body.collect())
}
