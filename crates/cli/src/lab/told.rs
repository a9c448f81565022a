//! What happened on a stage, for programs: one flat object per event.

use regent_lab::protocols::NodeId;
use regent_lab::stage::compare::{Cell, Comparison, Time, Times};
use regent_lab::stage::{Entry, Fate, FenceSays, Figures, Record, What};
use serde_json::{Value, json};

/// One event.
pub(super) fn entry_json(record: &Record, entry: &Entry) -> Value {
    let name = |node: &NodeId| record.names.get(usize::from(node.0)).cloned();
    let mut told = match &entry.what {
        What::Starts { node, run } => json!({"ev": "starts", "node": name(node), "run": run}),
        What::Crashes { node } => json!({"ev": "crashes", "node": name(node)}),
        What::Pauses { node } => json!({"ev": "pauses", "node": name(node)}),
        What::Resumes { node } => json!({"ev": "resumes", "node": name(node)}),
        What::Strikes { text } => json!({"ev": "strikes", "text": text}),
        What::Sends { from, to, kind, carries, bytes, is_upkeep, fate } => json!({
            "ev": "sends", "from": name(from), "to": name(to), "kind": kind, "carries": carries,
            "bytes": bytes, "upkeep": is_upkeep, "fate": match fate {
                Fate::Arrives(_) => "arrives",
                Fate::Cut => "cut",
                Fate::Lost => "lost",
            }, "arrives": match fate {
                Fate::Arrives(times) => times.clone(),
                Fate::Cut | Fate::Lost => Vec::new(),
            },
        }),
        What::Unheard { from, to, kind } => {
            json!({"ev": "unheard", "from": name(from), "to": name(to), "kind": kind})
        }
        What::Leads { node, tenure, term, is_again } => json!({
            "ev": "leads", "node": name(node), "tenure": tenure, "term": term, "again": is_again,
        }),
        What::Ceases { node, tenure } => {
            json!({"ev": "ceases", "node": name(node), "tenure": tenure})
        }
        What::Follows { node, leader, term } => json!({
            "ev": "follows", "node": name(node), "leader": leader.as_ref().map(name), "term": term,
        }),
        What::Writes { node, tenure, term, is_wrong, fence } => json!({
            "ev": "writes", "node": name(node), "tenure": tenure, "term": term, "wrong": is_wrong,
            "fence": match fence {
                FenceSays::Admitted | FenceSays::AdmittedWrongly => "admits",
                FenceSays::Refused => "refuses",
                FenceSays::NoTerm => "has no term to judge by",
            },
        }),
        What::Remarks { node, text } => json!({"ev": "remarks", "node": name(node), "text": text}),
    };
    told["t"] = entry.at.into();
    told
}

/// The figures of a run. Times are in nanoseconds.
pub(super) fn figures_json(figures: &Figures) -> Value {
    json!({
        "elections": figures.elections,
        "messages": figures.messages,
        "bytes": figures.bytes,
        "messages_per_election": figures.messages_per_election(),
        "upkeep_messages": figures.upkeep_messages,
        "upkeep_bytes": figures.upkeep_bytes,
        "vacancies_ns": figures.vacancies_ns,
        "unfilled_ns": figures.unfilled_ns,
        "leaderless_ns": figures.leaderless_ns,
        "two_leaders_ns": figures.two_leaders_ns,
        "writes": figures.writes,
        "wrong_writes": figures.wrong_writes,
        "wrong_writes_fenced": figures.wrong_writes_fenced,
        "refused_writes": figures.refused_writes,
    })
}

/// A comparison: an object for every algorithm, for every cell, and for every point of how messages grow.
pub(super) fn comparison_json(comparison: &Comparison) -> Vec<Value> {
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
