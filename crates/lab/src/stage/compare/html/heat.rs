//! One measure of every algorithm under every scenario, as colours and figures.

use std::fmt::Write as _;

use super::{escape, open};
use crate::stage::compare::{Cell, Comparison, Measure};

const LEFT: f64 = 178.0;
const TOP: f64 = 34.0;
const ROW: f64 = 24.0;
const WIDTH: f64 = 1_100.0;
/// On a colour deeper than this, figures are written in the page's light ink.
const DEEP: f64 = 0.55;

/// A row for every scenario, a column for every algorithm. What is exactly nothing has no colour.
pub(super) fn heat(
    comparison: &Comparison,
    measure: Measure,
    value: impl Fn(&Cell) -> f64,
) -> String {
    let (algorithms, scenarios) = (comparison.algorithms(), comparison.scenarios());
    let wide = (WIDTH - LEFT) / algorithms.len() as f64;
    let mean = |cell: &Cell| value(cell) / cell.runs.max(1) as f64;
    let mut highest = 0.0_f64;
    for scenario in scenarios {
        for cell in algorithms.iter().filter_map(|one| comparison.cell(*one, &scenario.name)) {
            highest = highest.max(mean(cell));
        }
    }
    let height = TOP + ROW * scenarios.len() as f64 + 6.0;
    let mut svg = open(WIDTH, height, measure.title());
    for (column, algorithm) in algorithms.iter().enumerate() {
        let x = LEFT + wide * (column as f64 + 0.5);
        let name = algorithm.name();
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"22\" text-anchor=\"middle\">{name}</text>");
    }
    for (row, scenario) in scenarios.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        let (name, middle) = (escape(&scenario.name), y + 16.0);
        let x = LEFT - 10.0;
        let _ =
            writeln!(svg, "<text x=\"{x}\" y=\"{middle:.1}\" text-anchor=\"end\">{name}</text>");
        for (column, algorithm) in algorithms.iter().enumerate() {
            let Some(cell) = comparison.cell(*algorithm, &scenario.name) else { continue };
            let x = LEFT + wide * column as f64;
            let shown = measure.show(cell);
            let is_nothing = value(cell) <= 0.0;
            // The root lets small times be seen beside long ones.
            let depth = 0.12 + 0.78 * (mean(cell) / highest.max(f64::MIN_POSITIVE)).sqrt();
            let (class, fill, opacity) = match depth {
                _ if is_nothing => ("zero", "well", 1.0),
                deep if deep > DEEP => ("deep", "bad", deep),
                pale => ("", "bad", pale),
            };
            let said = format!("{} under {}: {shown} s", algorithm.name(), scenario.name);
            let _ = writeln!(
                svg,
                "<g><title>{}</title><rect class=\"{fill}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
                 height=\"{:.1}\" rx=\"3\" opacity=\"{opacity:.2}\"/><text class=\"{class}\" x=\"{:.1}\" \
                 y=\"{middle:.1}\" text-anchor=\"middle\">{}</text></g>",
                escape(&said),
                x + 1.0,
                y + 1.0,
                wide - 2.0,
                ROW - 2.0,
                x + wide / 2.0,
                escape(&shown)
            );
        }
    }
    svg.push_str("</svg>");
    svg
}
