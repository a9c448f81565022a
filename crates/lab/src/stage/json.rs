//! What happened on a stage, for programs: one flat object per event.

use serde_json::{Value, json};

use super::measure::Figures;
use super::record::{Fate, FenceSays, StageEvent, StageRecord, What};
use crate::protocols::NodeId;

/// One event.
#[must_use]
pub fn entry_json(record: &StageRecord, entry: &StageEvent) -> Value {
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
#[must_use]
pub fn figures_json(figures: &Figures) -> Value {
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
