//! A sequence as SVG: a line down for every node, an arrow for every message, in order. Time is written
//! beside it and not drawn to scale, because elections come in bursts.

use std::fmt::Write as _;

use super::{Step, Window, escape};
use crate::stage::record::StageRecord;
use crate::stage::text::seconds;

const LEFT: usize = 90;
const COLUMN: usize = 150;
const ROW: usize = 22;
const TOP: usize = 40;

/// The sequence of a window.
#[must_use]
pub fn sequence_svg(record: &StageRecord, window: Window) -> String {
    let (steps, has_more) = window.steps(record);
    let rows = steps.len() + usize::from(has_more);
    let width = LEFT + COLUMN * record.names.len();
    let height = TOP + ROW * (rows + 1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" \
         refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 \
         8z\"/></marker></defs>\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    let column = |place: u16| LEFT + COLUMN / 2 + COLUMN * usize::from(place);
    for (place, name) in (0..).zip(&record.names) {
        let x = column(place);
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"20\" text-anchor=\"middle\" font-weight=\"bold\">{}</text><line \
             x1=\"{x}\" y1=\"28\" x2=\"{x}\" y2=\"{height}\" stroke=\"#bbb\"/>",
            escape(name)
        );
    }
    for (row, (at, step)) in steps.iter().enumerate() {
        let y = TOP + ROW * row + ROW / 2;
        let _ = writeln!(svg, "<text x=\"8\" y=\"{y}\" fill=\"#666\">{}</text>", seconds(*at));
        let _ = match step {
            Step::Message { from, to, kind, carries, arrives } => {
                let (x1, x2) = (column(from.0), column(to.0));
                // What is lost ends half way.
                let x2 = if *arrives { x2 } else { usize::midpoint(x1, x2) };
                let (colour, dash) = if *arrives { ("black", "") } else { ("#c00", "4 3") };
                let middle = usize::midpoint(x1, x2);
                let said = escape(format!("{kind} {carries}").trim());
                writeln!(
                    svg,
                    "<line x1=\"{x1}\" y1=\"{y}\" x2=\"{x2}\" y2=\"{y}\" stroke=\"{colour}\" \
                     stroke-dasharray=\"{dash}\" marker-end=\"url(#tip)\"/><text x=\"{middle}\" y=\"{}\" \
                     text-anchor=\"middle\" font-size=\"10\">{said}</text>",
                    y - 3
                )
            }
            Step::Note { node, text } => {
                let x = column(node.0);
                writeln!(
                    svg,
                    "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"16\" fill=\"#ffe9a8\"/><text x=\"{x}\" \
                     y=\"{}\" text-anchor=\"middle\">{}</text>",
                    x - COLUMN / 2 + 8,
                    y - 11,
                    COLUMN - 16,
                    y + 1,
                    escape(text)
                )
            }
            Step::Over { text } => writeln!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#c00\">{}</text>",
                usize::midpoint(LEFT, width),
                y + 1,
                escape(text)
            ),
        };
    }
    if has_more {
        let y = TOP + ROW * steps.len() + ROW / 2;
        let _ = writeln!(svg, "<text x=\"8\" y=\"{y}\">there is more</text>");
    }
    svg.push_str("</svg>\n");
    svg
}
