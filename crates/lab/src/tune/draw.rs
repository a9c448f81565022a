//! The trade-off drawn: bars of letters, and a picture.
//!
//! Failover times grow with a setting and are drawn as they are; false failovers fall by powers of
//! ten and are drawn by their logarithm.

use std::fmt::Write as _;

use regent_election::tuning::Target;

use super::{Rung, Setting};

/// Characters of the longest bar.
const BAR: f64 = 30.0;
/// Rarer than this is drawn as nothing: one in about three thousand years.
const RAREST_PER_DAY: f64 = 1e-6;

/// False failovers a day to be drawn: what was seen, or what is estimated if nothing was.
fn drawn_per_day(rung: &Rung) -> f64 {
    match rung.measured.false_failovers.events {
        0 => rung.estimate.false_per_day(),
        _ => rung.measured.false_failovers.per_day(),
    }
}

/// How much of the scale of false failovers a rate takes, from 0 to 1.
fn height(per_day: f64, most_per_day: f64) -> f64 {
    let decades = (most_per_day.max(1.0) / RAREST_PER_DAY).log10();
    ((per_day.max(RAREST_PER_DAY) / RAREST_PER_DAY).log10() / decades).clamp(0.0, 1.0)
}

fn failover_ms(rung: &Rung) -> u64 {
    rung.measured.failover_ms(990).unwrap_or(rung.estimate.failover_ms_p99)
}

/// Two bars for each setting: `#` how long a failover takes, `*` how often a living leader loses
/// its office.
#[must_use]
pub fn bars(rungs: &[Rung], target: &Target, name: impl Fn(&Setting) -> String) -> String {
    let longest_ms = rungs.iter().map(failover_ms).max().unwrap_or(1).max(target.failover_ms);
    let most = rungs.iter().map(drawn_per_day).fold(0.0, f64::max);
    let wanted = target.false_failovers.per_day();
    let width = BAR as usize;
    let mut text = format!(
        "{:>8}  {:<width$} {:<width$}\n",
        "", "failover p99 (| the target)", "false failovers, by powers of ten"
    );
    for rung in rungs {
        let share = failover_ms(rung) as f64 / longest_ms as f64;
        let quick = bar('#', share, target.failover_ms as f64 / longest_ms as f64);
        let calm = bar('*', height(drawn_per_day(rung), most), height(wanted, most));
        let _ = writeln!(text, "{:>8}  {quick} {calm}", name(&rung.setting));
    }
    text
}

/// A bar, with a mark where the target is.
fn bar(letter: char, share: f64, target: f64) -> String {
    let at = |share: f64| (share * BAR).round() as usize;
    let (filled, mark) = (at(share), at(target));
    (1..=BAR as usize)
        .map(|place| match place {
            place if place <= filled => letter,
            place if place == mark.max(1) => '|',
            _ => ' ',
        })
        .collect()
}

/// The same as a picture: one curve falls, the other rises, and the chosen setting is marked.
#[must_use]
pub fn svg(
    title: &str,
    rungs: &[Rung],
    target: &Target,
    chosen: Option<usize>,
    name: impl Fn(&Setting) -> String,
) -> String {
    const WIDE: f64 = 720.0;
    const HIGH: f64 = 320.0;
    const LEFT: f64 = 60.0;
    const TOP: f64 = 50.0;
    const INNER: f64 = 200.0;
    let longest_ms = rungs.iter().map(failover_ms).max().unwrap_or(1).max(target.failover_ms);
    let most = rungs.iter().map(drawn_per_day).fold(0.0, f64::max);
    let step = (WIDE - 2.0 * LEFT) / rungs.len().saturating_sub(1).max(1) as f64;
    let x = |at: usize| LEFT + step * at as f64;
    let y = |share: f64| TOP + INNER * (1.0 - share);
    let quick = |rung: &Rung| failover_ms(rung) as f64 / longest_ms as f64;
    let calm = |rung: &Rung| height(drawn_per_day(rung), most);
    let line = |share: &dyn Fn(&Rung) -> f64| -> String {
        let points = rungs.iter().enumerate();
        let points = points.map(|(at, rung)| format!("{:.1},{:.1}", x(at), y(share(rung))));
        points.collect::<Vec<_>>().join(" ")
    };
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDE}\" height=\"{HIGH}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{title}</text>\n"
    );
    for (color, share, label, place) in [
        ("#1f6fb2", line(&quick), "failover p99", 36.0),
        ("#c0392b", line(&calm), "false failovers a day, by powers of ten", 36.0),
    ] {
        let from = if label.starts_with("failover") { LEFT } else { LEFT + 120.0 };
        let _ = writeln!(
            text,
            "<polyline points=\"{share}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>\n<text x=\"{from}\" y=\"{place}\" fill=\"{color}\">{label}</text>"
        );
    }
    for (color, share) in [
        ("#1f6fb2", target.failover_ms as f64 / longest_ms as f64),
        ("#c0392b", height(target.false_failovers.per_day(), most)),
    ] {
        let (from, to, at) = (LEFT, WIDE - LEFT, y(share));
        let _ = writeln!(
            text,
            "<line x1=\"{from}\" y1=\"{at:.1}\" x2=\"{to}\" y2=\"{at:.1}\" stroke=\"{color}\" stroke-dasharray=\"4 4\"/>"
        );
    }
    for (at, rung) in rungs.iter().enumerate() {
        let (x, bottom) = (x(at), TOP + INNER);
        let weight = if chosen == Some(at) { "bold" } else { "normal" };
        let _ = writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-weight=\"{weight}\">{}</text>",
            bottom + 20.0,
            name(&rung.setting)
        );
        if chosen == Some(at) {
            let _ = writeln!(
                text,
                "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#555\"/>"
            );
        }
    }
    text.push_str("</svg>\n");
    text
}
