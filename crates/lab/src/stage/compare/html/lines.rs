//! Messages against the number of nodes, both by their logarithms: a power is a straight line.

use std::fmt::Write as _;

use super::open;
use crate::stage::compare::{Comparison, Noticer, Series};

const LEFT: f64 = 64.0;
const RIGHT: f64 = 250.0;
const TOP: f64 = 16.0;
const FOOT: f64 = 46.0;
const WIDTH: f64 = 1_100.0;
const HEIGHT: f64 = 460.0;
/// Labels do not come closer to each other than this.
const LABEL: f64 = 16.0;
/// Colours of the page's style.
const COLOURS: usize = 9;

/// One line.
#[derive(Clone, Debug)]
struct Line {
    name: String,
    colour: usize,
    is_dashed: bool,
    points: Vec<(u16, f64)>,
}

/// The plot. Whoever needs no messages to elect has no place on it, and is named below.
pub(super) fn lines(comparison: &Comparison) -> String {
    let series = comparison.series();
    let (drawn, left_out): (Vec<Line>, Vec<Line>) =
        series.iter().map(|series| line(comparison, series)).partition(|line| {
            line.points.len() > 1 && line.points.iter().all(|(_, messages)| *messages > 0.0)
        });
    let mut svg = open(WIDTH, HEIGHT, "Messages for one election against the number of nodes");
    let nodes: Vec<u16> = drawn
        .first()
        .map_or_else(Vec::new, |line| line.points.iter().map(|(nodes, _)| *nodes).collect());
    let values = || drawn.iter().flat_map(|line| &line.points).map(|(_, messages)| *messages);
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(1.0, f64::max));
    if let ([few, .., many], true) = (nodes.as_slice(), low <= high) {
        let frame = Frame {
            nodes: (f64::from(*few).ln(), f64::from(*many).ln()),
            values: ((low * 0.8).ln(), (high * 1.25).ln()),
        };
        frame.draw_grid(&mut svg, &nodes);
        for line in &drawn {
            frame.draw_line(&mut svg, line);
        }
        frame.draw_labels(&mut svg, &drawn);
    }
    if !left_out.is_empty() {
        let names: Vec<&str> = left_out.iter().map(|line| line.name.as_str()).collect();
        let _ = writeln!(
            svg,
            "<text class=\"soft\" x=\"{LEFT}\" y=\"{}\">no messages of their own to elect: {}</text>",
            HEIGHT - 6.0,
            names.join(", ")
        );
    }
    svg.push_str("</svg>");
    svg
}

fn line(comparison: &Comparison, series: &Series<'_>) -> Line {
    let place = comparison.algorithms().iter().position(|one| *one == series.algorithm);
    let algorithm = series.algorithm.name();
    let (is_dashed, who) = match series.noticer {
        Noticer::AnyNode => (false, ""),
        Noticer::Lowest => (true, ", worst"),
    };
    let power = series.exponent().map_or_else(String::new, |power| format!("  n^{power:.2}"));
    let points = series.points.iter();
    let value =
        |(nodes, cell): &(u16, &super::Cell)| (*nodes, cell.messages_per_election().unwrap_or(0.0));
    Line {
        name: format!("{algorithm}{who}{power}"),
        colour: place.unwrap_or(0) % COLOURS,
        is_dashed,
        points: points.map(value).collect(),
    }
}

/// What is where, in logarithms.
#[derive(Clone, Copy, Debug)]
struct Frame {
    nodes: (f64, f64),
    values: (f64, f64),
}

impl Frame {
    fn x(self, nodes: u16) -> f64 {
        let (low, high) = self.nodes;
        LEFT + (WIDTH - LEFT - RIGHT) * (f64::from(nodes).ln() - low) / (high - low)
    }

    fn y(self, value: f64) -> f64 {
        let (low, high) = self.values;
        HEIGHT - FOOT - (HEIGHT - FOOT - TOP) * (value.ln() - low) / (high - low)
    }

    fn draw_grid(self, svg: &mut String, nodes: &[u16]) {
        let bottom = HEIGHT - FOOT;
        for count in nodes {
            let x = self.x(*count);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>\
                 <text class=\"soft\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{count}</text>",
                bottom + 17.0
            );
        }
        for step in [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000] {
            let log = f64::from(step).ln();
            if log < self.values.0 || log > self.values.1 {
                continue;
            }
            let y = self.y(f64::from(step));
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\"/>\
                 <text class=\"soft\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{step}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"end\">nodes</text>",
            LEFT - 8.0,
            bottom + 17.0
        );
    }

    fn draw_line(self, svg: &mut String, line: &Line) {
        let place =
            |(nodes, value): &(u16, f64)| format!("{:.1},{:.1}", self.x(*nodes), self.y(*value));
        let points: Vec<String> = line.points.iter().map(place).collect();
        let dash = if line.is_dashed { " dash" } else { "" };
        let (colour, name) = (line.colour, &line.name);
        let _ = writeln!(
            svg,
            "<g><title>{name}</title><polyline class=\"series{dash}\" style=\"stroke:var(--c{colour})\" \
             points=\"{}\"/>",
            points.join(" ")
        );
        for (nodes, value) in &line.points {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" style=\"fill:var(--c{colour})\"><title>{name}: \
                 {value:.1} messages among {nodes} nodes</title></circle>",
                self.x(*nodes),
                self.y(*value)
            );
        }
        svg.push_str("</g>\n");
    }

    /// Names at the ends of lines, moved apart where lines end close to each other.
    fn draw_labels(self, svg: &mut String, lines: &[Line]) {
        let mut ends: Vec<(f64, &Line)> =
            lines.iter().filter_map(|line| Some((self.y(line.points.last()?.1), line))).collect();
        ends.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut at: Vec<f64> = Vec::new();
        for (y, _) in &ends {
            at.push(at.last().map_or(*y, |above: &f64| y.max(above + LABEL)));
        }
        // What was pushed below the bottom pushes back.
        let mut floor = HEIGHT - FOOT;
        for y in at.iter_mut().rev() {
            *y = y.min(floor);
            floor = *y - LABEL;
        }
        let edge = WIDTH - RIGHT;
        for ((end, line), y) in ends.iter().zip(at) {
            let (colour, name) = (line.colour, &line.name);
            let _ = writeln!(
                svg,
                "<line x1=\"{}\" y1=\"{end:.1}\" x2=\"{}\" y2=\"{y:.1}\" style=\"stroke:var(--c{colour})\"/>\
                 <text x=\"{}\" y=\"{:.1}\" style=\"fill:var(--c{colour})\">{name}</text>",
                edge + 5.0,
                edge + 20.0,
                edge + 25.0,
                y + 4.0
            );
        }
    }
}
