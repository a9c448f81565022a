//! Drawings of a record: who said what to whom, and who led when.
//!
//! Everything is drawn from the record, so a drawing shows nothing that the text does not tell. SVG is written
//! by hand: a few rectangles, lines and letters need no library.

mod mermaid;
mod sequence;
mod timeline;

pub use mermaid::mermaid;
pub use sequence::sequence_svg;
pub use timeline::{timeline_svg, timeline_text};

use super::record::{Fate, StageEvent, StageRecord, What};
use crate::protocols::NodeId;

/// Lines of a sequence at most: more cannot be looked at.
pub const LINES_MAX: usize = 400;

/// The part of a record that is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// From when, in nanoseconds.
    pub from: u64,
    pub until: u64,
    /// Whether heartbeats are drawn, too.
    pub with_upkeep: bool,
}

/// One line of a sequence.
#[derive(Debug)]
enum Step<'a> {
    /// A message and whether it arrives.
    Message { from: NodeId, to: NodeId, kind: &'a str, carries: &'a str, arrives: bool },
    /// Something about one node.
    Note { node: NodeId, text: String },
    /// Something about all.
    Over { text: &'a str },
}

impl Window {
    /// What is drawn of a record, with when it was; and whether there would be more.
    fn steps(self, record: &StageRecord) -> (Vec<(u64, Step<'_>)>, bool) {
        let is_in = |entry: &&StageEvent| (self.from..self.until).contains(&entry.at);
        let mut steps = record
            .entries
            .iter()
            .filter(is_in)
            .filter_map(|entry| Some((entry.at, self.step(&entry.what)?)));
        let drawn: Vec<_> = steps.by_ref().take(LINES_MAX).collect();
        let has_more = steps.next().is_some();
        (drawn, has_more)
    }

    fn step(self, what: &What) -> Option<Step<'_>> {
        let note = |node: &NodeId, text: &str| Some(Step::Note { node: *node, text: text.into() });
        match what {
            What::Sends { from, to, kind, carries, is_upkeep, fate, .. } => {
                let arrives = matches!(fate, Fate::Arrives(_));
                let message = Step::Message { from: *from, to: *to, kind, carries, arrives };
                (!is_upkeep || self.with_upkeep).then_some(message)
            }
            What::Starts { node, run: 1 } => note(node, "starts"),
            What::Starts { node, .. } => note(node, "starts again"),
            What::Crashes { node } => note(node, "crashes"),
            What::Pauses { node } => note(node, "is paused"),
            What::Resumes { node } => note(node, "goes on"),
            What::Leads { node, term, is_again, .. } => {
                let verb = if *is_again { "leads again" } else { "leads" };
                let term = term.map_or_else(String::new, |term| format!(", term {term}"));
                note(node, &format!("{verb}{term}"))
            }
            What::Ceases { node, .. } => note(node, "leads no longer"),
            What::Writes { node, is_wrong: true, .. } => note(node, "writes WRONGLY"),
            What::Strikes { text } => Some(Step::Over { text }),
            What::Writes { .. }
            | What::Unheard { .. }
            | What::Follows { .. }
            | What::Remarks { .. } => None,
        }
    }
}

/// Text that may stand in XML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
