//! The comparison as one page with plots, which needs nothing but a browser: no script, no font and no
//! picture from anywhere else. Light or dark is the reader's choice.
//!
//! Plots are SVG written by hand, as [the drawings of a run](crate::stage::draw) are; colours are names of
//! the page's style, so that both schemes have their own. Whatever a plot shows also stands in a table
//! below, for whoever cannot see it.

mod bars;
mod heat;
mod lines;

use std::fmt::Write as _;

use super::measures::Measure;
use super::tables::{Table, matrix, scale_table, summary};
use super::{Cell, Comparison};

const STYLE: &str = include_str!("page.css");

/// The page.
#[must_use]
pub fn html(comparison: &Comparison) -> String {
    let (first, last) = (comparison.seeds().start(), comparison.seeds().end());
    let (algorithms, scenarios) = (comparison.algorithms().len(), comparison.scenarios().len());
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>Leader election, compared</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>Leader election, compared</h1>\n<p>Algorithms: {algorithms}, scenarios: {scenarios}, seeds: \
         {first} to {last}, simulated runs: {}. Made by <code>regent lab compare</code>; the same seeds \
         give the same figures.</p>\n",
        comparison.runs()
    );
    let words = summary(comparison, true);
    section(&mut page, &words.title, &words.note, &put(&words));
    if let Some(table) = scale_table(comparison) {
        let plot = lines::lines(comparison);
        let body = format!("<figure>{plot}</figure>{}", folded("The figures", &table));
        section(&mut page, &table.title, &table.note, &body);
    }
    plots(&mut page, comparison);
    page.push_str("<section>\n<h2>Every figure</h2>\n");
    for measure in Measure::ALL {
        let table = matrix(comparison, *measure);
        page.push_str(&folded(&table.title, &table));
    }
    page.push_str("</section>\n<section>\n<h2>The scenarios</h2>\n<div class=\"scroll\"><table>\n");
    for scenario in comparison.scenarios() {
        let (name, about) = (escape(&scenario.name), escape(&scenario.about));
        let _ = writeln!(page, "<tr><td>{name}</td><td class=\"words\">{about}</td></tr>");
    }
    page.push_str("</table></div>\n</section>\n");
    page.push_str(
        "<footer>Simulated in virtual time by Regent.</footer>\n</main>\n</body>\n</html>\n",
    );
    page
}

/// What can be seen better than read.
fn plots(page: &mut String, comparison: &Comparison) {
    for measure in [Measure::TwoLeaders, Measure::Leaderless] {
        let value = |cell: &Cell| match measure {
            Measure::TwoLeaders => cell.two_leaders_ns as f64,
            _ => cell.leaderless_ns as f64,
        };
        let table = matrix(comparison, measure);
        let plot = heat::heat(comparison, measure, value);
        section(page, measure.title(), &table.note, &format!("<figure>{plot}</figure>"));
    }
    if let Some((scenario, plot)) = bars::time_to_elect(comparison) {
        let title = format!("Time to elect under {scenario}");
        let note = "From the end of one tenure to the beginning of the next: the median, and what 99 of \
                    100 keep within.";
        section(page, &title, note, &format!("<figure>{plot}</figure>"));
    }
    let note = "What a storage takes that a deposed leader should not have written, in all scenarios: \
                without a fence, and with one that compares terms. Algorithms without terms give a fence \
                nothing to compare.";
    let plot = bars::wrong_writes(comparison);
    section(
        page,
        "Wrong writes, without and with a fence",
        note,
        &format!("<figure>{plot}</figure>"),
    );
}

fn section(page: &mut String, title: &str, note: &str, body: &str) {
    let (title, note) = (escape(title), coded(note));
    let _ = write!(page, "<section>\n<h2>{title}</h2>\n<p>{note}</p>\n{body}\n</section>\n");
}

fn folded(title: &str, table: &Table) -> String {
    let (title, body) = (escape(title), put(table));
    format!("<details><summary>{title}</summary>\n{body}\n</details>\n")
}

fn put(table: &Table) -> String {
    let words = ["consistency", "availability", "complexity", "who notices"];
    let class = |column: usize| {
        let is_words = table.head.get(column).is_some_and(|head| words.contains(&head.as_str()));
        if is_words { " class=\"words\"" } else { "" }
    };
    let mut text = "<div class=\"scroll\"><table>\n<thead><tr>".to_owned();
    for (column, head) in table.head.iter().enumerate() {
        let _ = write!(text, "<th scope=\"col\"{}>{}</th>", class(column), escape(head));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        text.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(text, "<td{}>{}</td>", class(column), escape(cell));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div>");
    text
}

/// The beginning of a plot: what it shows is said to whoever cannot see it.
fn open(width: f64, height: f64, title: &str) -> String {
    let title = escape(title);
    format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n"
    )
}

/// The same with what stands between back-ticks as code.
fn coded(text: &str) -> String {
    let mut parts = escape(text);
    while let Some((before, rest)) = parts.split_once('`')
        && let Some((code, after)) = rest.split_once('`')
    {
        parts = format!("{before}<code>{code}</code>{after}");
    }
    parts
}

/// Text that may stand in a page.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
