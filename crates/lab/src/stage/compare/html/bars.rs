//! Pairs of bars, one pair for every algorithm.

use std::fmt::Write as _;

use super::open;
use crate::stage::compare::{Comparison, Measure, Time};

const LEFT: f64 = 130.0;
const RIGHT: f64 = 90.0;
const ROW: f64 = 44.0;
const WIDTH: f64 = 1_100.0;
const FOOT: f64 = 30.0;

/// One bar: its length, what is written at its end, and its colour.
#[derive(Clone, Debug)]
struct Bar {
    value: f64,
    shown: String,
    class: &'static str,
}

/// The scenario whose times are drawn, and the plot; none if nothing was ever vacant.
pub(super) fn time_to_elect(comparison: &Comparison) -> Option<(String, String)> {
    let names: Vec<&str> = comparison.scenarios().iter().map(|one| one.name.as_str()).collect();
    let has_times = |name: &&str| {
        let cells = comparison.algorithms().iter().filter_map(|one| comparison.cell(*one, name));
        cells.into_iter().any(|cell| cell.vacancies.count() > 0)
    };
    let crash = names.iter().copied().find(|name| *name == "crash").filter(has_times);
    let name = crash.or_else(|| names.iter().copied().find(has_times))?;
    let scenario = comparison.scenarios().iter().find(|one| one.name == name)?;
    // A time that never ended is as long as its run.
    let lasts_s = scenario.lasts.as_secs_f64();
    let bar = |time: Option<Time>, class| match time {
        Some(Time::Ms(ms)) => {
            let value = ms as f64 / 1_000.0;
            Bar { value, shown: format!("{value:.2} s"), class }
        }
        Some(Time::Never) => Bar { value: lasts_s, shown: "never".to_owned(), class },
        None => Bar { value: 0.0, shown: "never vacant".to_owned(), class },
    };
    let rows = comparison.algorithms().iter().filter_map(|algorithm| {
        let cell = comparison.cell(*algorithm, name)?;
        let bars = [bar(cell.vacancies.at(50), "calm"), bar(cell.vacancies.at(99), "pale")];
        Some((algorithm.name(), bars))
    });
    let title = format!("Time to elect under {name}: median and 99th percentile");
    let plot = draw(&title, rows.collect(), ["median", "99th percentile"]);
    Some((name.to_owned(), plot))
}

/// Wrong writes per run in all scenarios.
pub(super) fn wrong_writes(comparison: &Comparison) -> String {
    let rows = comparison.algorithms().iter().map(|algorithm| {
        let cell = comparison.whole(*algorithm, |_| true);
        let bar = |count: u64, measure: Measure, class| {
            let value = count as f64 / cell.runs.max(1) as f64;
            Bar { value, shown: measure.show(&cell), class }
        };
        let plain = bar(cell.wrong_writes, Measure::WrongWrites, "bad");
        let fenced = bar(cell.wrong_writes_fenced, Measure::WrongWritesFenced, "calm");
        (algorithm.name(), [plain, fenced])
    });
    let title = "Wrong writes per run, without and with a fence";
    draw(title, rows.collect(), ["without a fence", "with a fence"])
}

fn draw(title: &str, rows: Vec<(&'static str, [Bar; 2])>, legend: [&str; 2]) -> String {
    let height = ROW * rows.len() as f64 + FOOT + 10.0;
    let longest = rows.iter().flat_map(|(_, bars)| bars).map(|bar| bar.value).fold(0.0, f64::max);
    let scale = if longest > 0.0 { (WIDTH - LEFT - RIGHT) / longest } else { 0.0 };
    let mut svg = open(WIDTH, height, title);
    let classes: Vec<&str> =
        rows.first().map_or_else(Vec::new, |(_, bars)| bars.iter().map(|bar| bar.class).collect());
    for (row, (name, bars)) in rows.iter().enumerate() {
        let top = ROW * row as f64 + 6.0;
        let (x, y) = (LEFT - 10.0, top + 22.0);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{name}</text>");
        for (place, Bar { value, shown, class }) in bars.iter().enumerate() {
            let y = top + 18.0 * place as f64;
            let long = value * scale;
            let said = format!("{name}, {}: {shown}", legend[place]).replace('<', "&lt;");
            let shown = shown.replace('<', "&lt;");
            let tone = if *value > 0.0 { "" } else { "zero" };
            let _ = writeln!(
                svg,
                "<g><title>{said}</title><rect class=\"{class}\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" \
                 height=\"14\" rx=\"2\"/><text class=\"{tone}\" x=\"{:.1}\" y=\"{:.1}\">{shown}</text></g>",
                long.max(1.0),
                LEFT + long + 7.0,
                y + 11.5
            );
        }
    }
    let y = height - 14.0;
    for (place, (class, words)) in classes.iter().zip(legend).enumerate() {
        let x = LEFT + 160.0 * place as f64;
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{:.1}\" width=\"12\" height=\"12\" rx=\"2\"/>\
             <text class=\"soft\" x=\"{}\" y=\"{y:.1}\">{words}</text>",
            y - 10.5,
            x + 18.0
        );
    }
    svg.push_str("</svg>");
    svg
}
