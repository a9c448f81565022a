//! A comparison for programs: one flat object per line.

use serde_json::{Value, json};

use super::Comparison;
use super::cell::{Cell, Time, Times};

/// An object for every algorithm, for every cell, and for every point of how messages grow.
#[must_use]
pub fn comparison_json(comparison: &Comparison) -> Vec<Value> {
    let (first, last) = (comparison.seeds().start(), comparison.seeds().end());
    let mut lines = vec![json!({
        "kind": "comparison", "first_seed": first, "last_seed": last, "runs": comparison.runs(),
    })];
    let series = comparison.series();
    for algorithm in comparison.algorithms() {
        let own = series.iter().filter(|series| series.algorithm == *algorithm);
        let exponents: serde_json::Map<String, Value> = own
            .map(|series| (series.noticer.name().to_owned(), series.exponent().into()))
            .collect();
        lines.push(json!({
            "kind": "algorithm",
            "algorithm": algorithm.name(),
            "messages_exponent": exponents,
            "consistency": algorithm.consistency(),
            "availability": algorithm.availability(),
            "complexity": algorithm.complexity(),
        }));
    }
    for scenario in comparison.scenarios() {
        for algorithm in comparison.algorithms() {
            if let Some(cell) = comparison.cell(*algorithm, &scenario.name) {
                lines.push(cell_json(
                    "cell",
                    algorithm.name(),
                    &scenario.name,
                    scenario.nodes,
                    cell,
                ));
            }
        }
    }
    for series in &series {
        for (nodes, cell) in &series.points {
            let (algorithm, noticer) = (series.algorithm.name(), series.noticer.name());
            lines.push(cell_json("scale", algorithm, noticer, *nodes, cell));
        }
    }
    lines
}

fn cell_json(kind: &str, algorithm: &str, scenario: &str, nodes: u16, cell: &Cell) -> Value {
    json!({
        "kind": kind,
        "algorithm": algorithm,
        "scenario": scenario,
        "nodes": nodes,
        "runs": cell.runs,
        "cut_short": cell.cut_short,
        "elections": cell.elections,
        "messages": cell.messages,
        "bytes": cell.bytes,
        "messages_per_election": cell.messages_per_election(),
        "bytes_per_election": cell.bytes_per_election(),
        "upkeep_messages": cell.upkeep_messages,
        "upkeep_bytes": cell.upkeep_bytes,
        "first": times_json(&cell.first),
        "time_to_elect": times_json(&cell.vacancies),
        "leaderless_ns": cell.leaderless_ns,
        "two_leaders_ns": cell.two_leaders_ns,
        "runs_with_two": cell.runs_with_two,
        "writes": cell.writes,
        "wrong_writes": cell.wrong_writes,
        "wrong_writes_fenced": cell.wrong_writes_fenced,
        "refused_writes": cell.refused_writes,
    })
}

/// Percentiles in milliseconds; null if there is none, or if it had not ended when its run did.
fn times_json(times: &Times) -> Value {
    let at = |percent| match times.at(percent) {
        Some(Time::Ms(ms)) => Some(ms),
        Some(Time::Never) | None => None,
    };
    json!({
        "count": times.count(), "never": times.endless(), "p50_ms": at(50), "p99_ms": at(99),
    })
}
