//! A sequence as text for Mermaid, which many sites and editors draw.

use std::fmt::Write as _;

use super::{Step, Window};
use crate::stage::record::StageRecord;
use crate::stage::text::seconds;

/// The sequence of a window.
#[must_use]
pub fn mermaid(record: &StageRecord, window: Window) -> String {
    let mut text = String::from("sequenceDiagram\n");
    for name in &record.names {
        let _ = writeln!(text, "    participant {name}");
    }
    let name = |place: u16| record.names.get(usize::from(place)).map_or("?", String::as_str);
    let (steps, has_more) = window.steps(record);
    for (at, step) in steps {
        let _ = match step {
            Step::Message { from, to, kind, carries, arrives } => {
                let arrow = if arrives { "->>" } else { "-x" };
                let said = plain(&format!("{kind} {carries}"));
                writeln!(text, "    {}{arrow}{}: {said}", name(from.0), name(to.0))
            }
            Step::Note { node, text: said } => {
                let at = seconds(at);
                writeln!(text, "    Note over {}: {at} {}", name(node.0), plain(&said))
            }
            Step::Over { text: said } => {
                let (first, last) = (name(0), record.names.last().map_or("?", String::as_str));
                writeln!(text, "    Note over {first},{last}: {} {}", seconds(at), plain(said))
            }
        };
    }
    if has_more {
        let _ = writeln!(text, "    Note over {}: there is more", name(0));
    }
    text
}

/// Without what Mermaid takes for its own: a semicolon ends a line, a hash begins an entity.
fn plain(text: &str) -> String {
    text.trim().replace([';', '#', '\n'], ",")
}
