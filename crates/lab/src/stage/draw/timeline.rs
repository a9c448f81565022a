//! Who led when, and where two led at once: a row for every candidate.

use std::fmt::Write as _;

use super::escape;
use crate::protocols::NodeId;
use crate::stage::measure::{Reign, reigns};
use crate::stage::record::{StageRecord, What};
use crate::stage::text::seconds;

/// What a candidate is at a moment, the most telling last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Alive,
    Paused,
    Dead,
    Leads,
}

/// A stretch in one state.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    node: NodeId,
    state: State,
    from: u64,
    until: u64,
}

/// Columns of a timeline in text.
const COLUMNS: u64 = 100;

/// The timeline as text: `#` leads, `.` is alive, `~` is paused, `x` is dead; below, `!` where two led and
/// `-` where nobody did. A column shows the most telling thing that happened in its time.
#[must_use]
pub fn timeline_text(record: &StageRecord) -> String {
    let stretches = stretches(record);
    let end = record.ended_at.max(1);
    let column = |at: u64| (u128::from(at) * u128::from(COLUMNS) / u128::from(end)) as u64;
    let covers = |from: u64, until: u64, place: u64| {
        from < until && column(from) <= place && place <= column(until - 1)
    };
    let widest = record.names.iter().map(String::len).max().unwrap_or(0).max(6);
    let mut text = String::new();
    for node in (0..record.nodes).map(NodeId) {
        let _ = write!(text, "{:<widest$}  ", record.names[usize::from(node.0)]);
        for place in 0..COLUMNS {
            let here = stretches.iter().filter(|stretch| stretch.node == node);
            let state = here
                .filter(|stretch| covers(stretch.from, stretch.until, place))
                .map(|stretch| stretch.state)
                .max();
            text.push(match state {
                Some(State::Leads) => '#',
                Some(State::Dead) => 'x',
                Some(State::Paused) => '~',
                Some(State::Alive) => '.',
                None => ' ',
            });
        }
        text.push('\n');
    }
    let shared = shared(&reigns(record), end);
    for (label, mark, wanted) in [("two", '!', true), ("nobody", '-', false)] {
        let _ = write!(text, "{label:<widest$}  ");
        let of_kind: Vec<_> = shared.iter().filter(|(_, _, is_two)| *is_two == wanted).collect();
        for place in 0..COLUMNS {
            let is_there = of_kind.iter().any(|(from, until, _)| covers(*from, *until, place));
            text.push(if is_there { mark } else { ' ' });
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "{:<widest$}  0 to {} s; # leads, . is alive, ~ is paused, x is dead",
        "",
        seconds(record.ended_at)
    );
    text
}

/// The timeline as SVG, to scale.
#[must_use]
pub fn timeline_svg(record: &StageRecord) -> String {
    const LEFT: f64 = 80.0;
    const WIDE: f64 = 1_000.0;
    const ROW: f64 = 26.0;
    let end = record.ended_at.max(1) as f64;
    let x = |at: u64| LEFT + WIDE * at as f64 / end;
    let height = ROW * (f64::from(record.nodes) + 2.0) + 10.0;
    let width = LEFT + WIDE + 20.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{width}\" height=\"{height}\" \
         fill=\"white\"/>\n"
    );
    for (from, until, is_two) in shared(&reigns(record), record.ended_at) {
        let colour = if is_two { "#f4a6a6" } else { "#eeeeee" };
        let said = if is_two { "two lead" } else { "nobody leads" };
        let _ = writeln!(
            svg,
            "<rect x=\"{:.2}\" y=\"0\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{colour}\"><title>{said}, {} \
             to {} s</title></rect>",
            x(from),
            x(until) - x(from),
            height - ROW,
            seconds(from),
            seconds(until)
        );
    }
    for stretch in stretches(record) {
        let y = ROW * f64::from(stretch.node.0) + 8.0;
        let (colour, thick) = match stretch.state {
            State::Alive => ("#9bb", 4.0),
            State::Paused => ("#e8c468", 4.0),
            State::Dead => ("#444", 1.0),
            State::Leads => ("#2a7", 16.0),
        };
        let _ = writeln!(
            svg,
            "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{thick}\" fill=\"{colour}\"><title>{:?}, \
             {} to {} s</title></rect>",
            x(stretch.from),
            y + 8.0 - thick / 2.0,
            (x(stretch.until) - x(stretch.from)).max(0.5),
            stretch.state,
            seconds(stretch.from),
            seconds(stretch.until)
        );
    }
    for node in 0..record.nodes {
        let y = ROW * f64::from(node) + 20.0;
        let name = escape(&record.names[usize::from(node)]);
        let _ = writeln!(svg, "<text x=\"8\" y=\"{y}\">{name}</text>");
    }
    let y = height - 12.0;
    for tick in 0..=10_u64 {
        let at = record.ended_at / 10 * tick;
        let _ = writeln!(
            svg,
            "<text x=\"{:.2}\" y=\"{y}\" text-anchor=\"middle\">{:.1} s</text>",
            x(at),
            at as f64 / 1e9
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// What every candidate was when; leading is laid over being alive.
fn stretches(record: &StageRecord) -> Vec<Stretch> {
    let mut done = Vec::new();
    for node in (0..record.nodes).map(NodeId) {
        let mut current: Option<(State, u64)> = None;
        let mut change = |state: State, at: u64, current: &mut Option<(State, u64)>| {
            if let Some((before, from)) = current.replace((state, at)) {
                done.push(Stretch { node, state: before, from, until: at });
            }
        };
        for entry in &record.entries {
            let state = match entry.what {
                What::Starts { node: of, .. } if of == node => State::Alive,
                What::Resumes { node: of } if of == node => State::Alive,
                What::Pauses { node: of } if of == node => State::Paused,
                What::Crashes { node: of } if of == node => State::Dead,
                _ => continue,
            };
            change(state, entry.at, &mut current);
        }
        if let Some((state, from)) = current {
            done.push(Stretch { node, state, from, until: record.ended_at });
        }
    }
    let leads = |reign: Reign| Stretch {
        node: reign.node,
        state: State::Leads,
        from: reign.from,
        until: reign.until,
    };
    done.extend(reigns(record).into_iter().map(leads));
    done
}

/// Stretches in which two led (true) or nobody did (false).
fn shared(reigns: &[Reign], ended_at: u64) -> Vec<(u64, u64, bool)> {
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for reign in reigns.iter().filter(|reign| reign.from < reign.until) {
        changes.extend([(reign.from, 1), (reign.until, -1)]);
    }
    changes.push((ended_at, 0));
    changes.sort_unstable();
    let (mut before, mut acting) = (0, 0_i64);
    let mut found = Vec::new();
    for (at, change) in changes {
        if at > before && acting != 1 {
            found.push((before, at, acting > 1));
        }
        before = at;
        acting += change;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::record::StageEvent;

    #[test]
    fn a_timeline_shows_who_led_and_where_two_did() {
        let (a, b) = (NodeId(0), NodeId(1));
        let at = |at: u64, what: What| StageEvent { at, what };
        let leads = |node, tenure| What::Leads { node, tenure, term: None, is_again: false };
        let entries = vec![
            at(0, What::Starts { node: a, run: 1 }),
            at(0, What::Starts { node: b, run: 1 }),
            at(10, leads(a, 1)),
            at(50, leads(b, 2)),
            at(60, What::Ceases { node: a, tenure: 1 }),
            at(60, What::Crashes { node: a }),
        ];
        let names = vec!["A".to_owned(), "B".to_owned()];
        let record = StageRecord { names, nodes: 2, entries, ended_at: 100 };
        let text = timeline_text(&record);
        let rows: Vec<&str> = text.lines().collect();
        let dots = |count| ".".repeat(count);
        let row = format!("A       {}{}{}", dots(10), "#".repeat(50), "x".repeat(40));
        assert_eq!(rows[0], row);
        assert_eq!(rows[1], format!("B       {}{}", dots(50), "#".repeat(50)));
        assert_eq!(rows[2], format!("two     {}{}", " ".repeat(50), "!".repeat(10)));
        assert_eq!(rows[3], format!("nobody  {}", "-".repeat(10)));
        let svg = timeline_svg(&record);
        assert!(svg.contains("two lead, 0.0000") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
