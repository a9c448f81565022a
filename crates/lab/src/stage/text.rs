//! A record as lines for people.

use std::fmt::Write as _;

use super::algorithm::Algorithm;
use super::measure::{Figures, figures};
use super::play::Run;
use super::record::{Fate, FenceSays, StageEvent, StageRecord, What};
use super::scenario::Scenario;
use crate::blocks::Block;
use crate::protocols::NodeId;

/// True time, in seconds to the tenth of a millisecond.
#[must_use]
pub fn seconds(nanos: u64) -> String {
    format!("{}.{:04}", nanos / 1_000_000_000, nanos % 1_000_000_000 / 100_000)
}

/// One entry as a line. Upkeep is left out unless it is asked for.
#[must_use]
pub fn line(record: &StageRecord, entry: &StageEvent, with_upkeep: bool) -> Option<String> {
    let name = |node: &NodeId| {
        record.names.get(usize::from(node.0)).cloned().unwrap_or_else(|| node.to_string())
    };
    let under = |term: &Option<u64>| term.map_or_else(String::new, |term| format!(", term {term}"));
    let text = match &entry.what {
        What::Starts { node, run: 1 } => format!("{} starts", name(node)),
        What::Starts { node, .. } => format!("{} starts again", name(node)),
        What::Crashes { node } => format!("{} crashes", name(node)),
        What::Pauses { node } => format!("{} is paused", name(node)),
        What::Resumes { node } => format!("{} goes on", name(node)),
        What::Strikes { text } => format!("*** {text}"),
        What::Sends { from, to, kind, carries, is_upkeep, fate, .. } => {
            if *is_upkeep && !with_upkeep {
                return None;
            }
            let mut text = format!("{} -> {}  {kind}", name(from), name(to));
            if !carries.is_empty() {
                let _ = write!(text, " {carries}");
            }
            text.push_str(match fate {
                Fate::Arrives(times) if times.len() > 1 => "  (comes twice)",
                Fate::Arrives(_) => "",
                Fate::Cut => "  (cut off)",
                Fate::Lost => "  (lost)",
            });
            text
        }
        What::Unheard { from, to, kind } => {
            if !with_upkeep {
                return None;
            }
            format!("{} is dead: {kind} of {} is lost", name(to), name(from))
        }
        What::Leads { node, term, is_again: false, .. } => {
            format!("==> {} leads{}", name(node), under(term))
        }
        What::Leads { node, term, is_again: true, .. } => {
            format!("==> {} acts as leader again{}", name(node), under(term))
        }
        What::Ceases { node, .. } => format!("<== {} no longer acts as leader", name(node)),
        What::Follows { node, leader: Some(leader), term } => {
            format!("{} follows {}{}", name(node), name(leader), under(term))
        }
        What::Follows { node, leader: None, .. } => format!("{} follows nobody", name(node)),
        What::Writes { node, term, is_wrong, fence, .. } => {
            let verdict = match (is_wrong, fence) {
                (false, _) if !with_upkeep => return None,
                (false, _) => "",
                (true, FenceSays::Refused) => ": WRONG, and a fence refuses it",
                (true, FenceSays::NoTerm) => ": WRONG, and has no term to be refused by",
                (true, FenceSays::AdmittedWrongly) => ": WRONG, and a fence lets it pass",
                (true, FenceSays::Admitted) => ": WRONG",
            };
            format!("{} writes{}{verdict}", name(node), under(term))
        }
        What::Remarks { node, text } => format!("{} {text}", name(node)),
    };
    Some(format!("{:>9}  {text}", seconds(entry.at)))
}

/// A whole run for people: what was played, every entry as a line, and the figures.
#[must_use]
pub fn history(
    run: &Run,
    (algorithm, scenario, seed): (Algorithm, &Scenario, u64),
    with_upkeep: bool,
) -> Vec<Block> {
    let Run { record, is_cut_short } = run;
    let Scenario { name, about, nodes, .. } = scenario;
    let algorithm = algorithm.name();
    let mut text = format!("{algorithm}, {name}: {about}\n{nodes} nodes, seed {seed}\n\n");
    for told in record.entries.iter().filter_map(|entry| line(record, entry, with_upkeep)) {
        text.push_str(&told);
        text.push('\n');
    }
    if *is_cut_short {
        text.push_str("\nToo much happened: the run was stopped here.\n");
    }
    text.push('\n');
    vec![Block::Text(text), summary(&figures(record))]
}

fn summary(figures: &Figures) -> Block {
    let time = |nanos: u64| format!("{} s", seconds(nanos));
    let or_none = |nanos: Option<u64>| nanos.map_or_else(|| "-".to_owned(), time);
    let per = figures.messages_per_election();
    let kinds: Vec<String> =
        figures.kinds.iter().map(|(kind, (count, _))| format!("{count} {kind}")).collect();
    Block::Facts(vec![
        ("elections", figures.elections.to_string()),
        ("messages per election", per.map_or_else(|| "-".to_owned(), |per| format!("{per:.1}"))),
        ("messages", format!("{} ({} bytes)", figures.messages, figures.bytes)),
        ("upkeep", format!("{} ({} bytes)", figures.upkeep_messages, figures.upkeep_bytes)),
        ("by kind", kinds.join(", ")),
        ("time to elect, median", or_none(figures.vacancy_at(50))),
        ("time to elect, longest", or_none(figures.vacancy_at(100))),
        ("without a leader", time(figures.leaderless_ns)),
        ("with two leaders", time(figures.two_leaders_ns)),
        ("writes", figures.writes.to_string()),
        ("wrong writes, unfenced", figures.wrong_writes.to_string()),
        ("wrong writes, fenced", figures.wrong_writes_fenced.to_string()),
    ])
}
