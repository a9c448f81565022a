//! A comparison as tables of text, for whoever draws them: Markdown, a page, a terminal.

use super::measures::Measure;
use super::{Comparison, Noticer, Series};
use crate::blocks::{Block, Side};
use crate::stage::algorithm::Algorithm;

/// Columns of a usual terminal.
const WIDTH: usize = 98;

/// A table. The first column names the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub note: String,
    /// The heads of its columns.
    pub head: Vec<String>,
    /// Its rows, each as long as the head.
    pub rows: Vec<Vec<String>>,
}

/// One row for every algorithm: what theory says of it, measured, and the same in words if they are wanted.
#[must_use]
pub fn summary(comparison: &Comparison, with_words: bool) -> Table {
    let series = comparison.series();
    let mut head = vec!["algorithm".to_owned()];
    if let Some([(few, _), .., (many, _)]) = series.first().map(|series| series.points.as_slice()) {
        let what = if with_words { "messages, " } else { "" };
        let sizes = [few, many].map(|nodes| format!("{what}{nodes} nodes"));
        head.extend(sizes);
        head.push("grow as".to_owned());
    }
    head.extend(["bytes", "elect p50 / p99", "no leader"].map(str::to_owned));
    if with_words {
        let harm = ["two leaders, partitions", "wrong writes, pauses", "the same, fenced"];
        head.extend(harm.map(str::to_owned));
        head.extend(["consistency", "availability", "complexity"].map(str::to_owned));
    } else {
        // A terminal has no room for more.
        head.extend(["two, parted", "wrong, paused", "fenced"].map(str::to_owned));
    }
    let rows = comparison.algorithms().iter().map(|algorithm| {
        // Theory speaks of the worst case: it comes last where it is measured.
        let of = series.iter().rev().find(|series| series.algorithm == *algorithm);
        summary_row(comparison, *algorithm, of, with_words)
    });
    Table {
        title: "All algorithms".to_owned(),
        note: "Messages per election are counted from the death of a leader, for bully and ring in the \
               worst case; bytes per election, time to elect and time without a leader over all \
               scenarios, two leaders under those with partitions and wrong writes under those with \
               pauses; times are in seconds, per run where they are sums."
            .to_owned(),
        head,
        rows: rows.collect(),
    }
}

fn summary_row(
    comparison: &Comparison,
    algorithm: Algorithm,
    series: Option<&Series<'_>>,
    with_words: bool,
) -> Vec<String> {
    let mut row = vec![algorithm.name().to_owned()];
    if let Some(series) = series
        && let [(_, few), .., (_, many)] = series.points.as_slice()
    {
        row.extend([few, many].map(|cell| Measure::Messages.show(cell)));
        row.push(power(series));
    }
    let whole = comparison.whole(algorithm, |_| true);
    let measures = [Measure::Bytes, Measure::TimeToElect, Measure::Leaderless];
    row.extend(measures.map(|measure| measure.show(&whole)));
    let parted = comparison.whole(algorithm, |scenario| scenario.has_partitions());
    row.push(Measure::TwoLeaders.show(&parted));
    let paused = comparison.whole(algorithm, |scenario| scenario.has_pauses());
    let measures = [Measure::WrongWrites, Measure::WrongWritesFenced];
    row.extend(measures.map(|measure| measure.show(&paused)));
    if with_words {
        let words = [algorithm.consistency(), algorithm.availability(), algorithm.complexity()];
        row.extend(words.map(str::to_owned));
    }
    row
}

/// The exponent as a power of n.
fn power(series: &Series<'_>) -> String {
    series.exponent().map_or_else(|| "-".to_owned(), |exponent| format!("n^{exponent:.2}"))
}

/// How messages grow with the number of nodes; none if nobody measured it.
#[must_use]
pub fn scale_table(comparison: &Comparison) -> Option<Table> {
    let all = comparison.series();
    let sizes = &all.first()?.points;
    let mut head = vec!["algorithm".to_owned(), "who notices".to_owned()];
    head.extend(sizes.iter().map(|(nodes, _)| format!("{nodes} nodes")));
    head.push("grow as".to_owned());
    let rows = all.iter().map(|series| {
        let who = match series.noticer {
            Noticer::AnyNode => "any",
            Noticer::Lowest => "the lowest",
        };
        let mut row = vec![series.algorithm.name().to_owned(), who.to_owned()];
        row.extend(series.points.iter().map(|(_, cell)| Measure::Messages.show(cell)));
        row.push(power(series));
        row
    });
    Some(Table {
        title: "Messages for one election, by the number of nodes".to_owned(),
        note: "Counted from the death of the leader to the end of the run. The power is the slope of \
               a straight line through the logarithms; a cost with a share that does not grow bends it, \
               so that 2 (n - 1) among 3 to 25 nodes comes to n^1.16 and n (n - 1) to n^2.16."
            .to_owned(),
        rows: rows.collect(),
        head,
    })
}

/// One measure: a row for every scenario, a column for every algorithm.
#[must_use]
pub fn matrix(comparison: &Comparison, measure: Measure) -> Table {
    let mut head = vec!["scenario".to_owned()];
    head.extend(comparison.algorithms().iter().map(|one| one.name().to_owned()));
    let rows = comparison.scenarios().iter().map(|scenario| {
        let mut row = vec![scenario.name.clone()];
        row.extend(comparison.algorithms().iter().map(|algorithm| {
            let cell = comparison.cell(*algorithm, &scenario.name);
            cell.map_or_else(|| "-".to_owned(), |cell| measure.show(cell))
        }));
        row
    });
    let note = match measure {
        Measure::Messages | Measure::Bytes => {
            "Everything but heartbeats, renewals and looks at a lease that is held, by the number of \
             times that the office changed hands."
        }
        Measure::TimeToElect => {
            "How long vacancies lasted after somebody had led; `never` if one had not ended when its run \
             did, `-` if the office was never vacant."
        }
        Measure::Leaderless | Measure::TwoLeaders => {
            "The mean of all runs; `0` is never, not even once."
        }
        Measure::WrongWrites | Measure::WrongWritesFenced => {
            "Writes by a leader that another one had replaced and that had already written; `0` is not \
             one in all runs."
        }
    };
    let (title, note) = (measure.title().to_owned(), note.to_owned());
    Table { title, note, head, rows: rows.collect() }
}

/// Everything for people: algorithms, growth, and every cell.
#[must_use]
pub fn blocks(comparison: &Comparison) -> Vec<Block> {
    let (first, last) = (comparison.seeds().start(), comparison.seeds().end());
    let runs = comparison.runs();
    let mut blocks = vec![Block::Text(format!("seeds {first} to {last}, {runs} runs\n"))];
    let tables = [Some(summary(comparison, false)), scale_table(comparison)];
    for Table { title, note, head, rows } in tables.into_iter().flatten() {
        let head = head.into_iter().map(|name| {
            let side = side(&name);
            (name, side)
        });
        blocks.push(Block::Text(format!("\n{title}\n{}\n", wrapped(&note))));
        blocks.push(Block::Table { head: head.collect(), rows });
        blocks.push(Block::Text("\n".to_owned()));
    }
    let title = "Every algorithm under every scenario";
    let note = "messages and bytes per election; seconds and wrong writes per run";
    blocks.push(Block::Text(format!("\n{title}\n{note}\n\n")));
    blocks.push(every_cell(comparison));
    blocks
}

fn every_cell(comparison: &Comparison) -> Block {
    let mut head = vec![("scenario", Side::Left), ("algorithm", Side::Left)];
    head.extend(Measure::ALL.iter().map(|measure| (measure.head(), Side::Right)));
    let mut rows = Vec::new();
    for scenario in comparison.scenarios() {
        for algorithm in comparison.algorithms() {
            let Some(cell) = comparison.cell(*algorithm, &scenario.name) else { continue };
            let mut row = vec![scenario.name.clone(), algorithm.name().to_owned()];
            row.extend(Measure::ALL.iter().map(|measure| measure.show(cell)));
            rows.push(row);
        }
    }
    Block::table(&head, rows)
}

/// A note in lines that fit a usual terminal.
fn wrapped(note: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for word in note.split(' ') {
        let long = word.chars().count() + 1;
        if width > 0 && width + long > WIDTH {
            text.push('\n');
            width = 0;
        }
        text.push_str(if width > 0 { " " } else { "" });
        text.push_str(word);
        width += long;
    }
    text.push('\n');
    text
}

/// Names stand left, figures right.
fn side(head: &str) -> Side {
    if ["algorithm", "who notices"].contains(&head) { Side::Left } else { Side::Right }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_wrapped_between_words() {
        let note = ["word"; 50].join(" ");
        let lines = wrapped(&note);
        assert!(lines.lines().all(|line| line.len() <= WIDTH && !line.starts_with(' ')), "{lines}");
        assert_eq!(lines.split_whitespace().count(), 50);
    }
}
