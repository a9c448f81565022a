//! The comparison as Markdown, and its place in a document: between two marks, written by a program and by
//! nobody else.

use std::fmt::Write as _;

use super::Comparison;
use super::measures::Measure;
use super::tables::{Table, matrix, scale_table, summary};

/// What the generated part of a document begins with.
pub const BEGIN: &str = "<!-- regent lab compare: begin -->";
/// What it ends with.
pub const END: &str = "<!-- regent lab compare: end -->";

/// Everything that stands between the marks.
#[must_use]
pub fn markdown(comparison: &Comparison) -> String {
    let (first, last) = (comparison.seeds().start(), comparison.seeds().end());
    let (algorithms, scenarios) = (comparison.algorithms().len(), comparison.scenarios().len());
    let runs = comparison.runs();
    let mut text = format!(
        "Seeds {first} to {last}; algorithms: {algorithms}, scenarios: {scenarios}, runs: {runs}.\n"
    );
    put(&mut text, &summary(comparison, true));
    if let Some(table) = scale_table(comparison) {
        put(&mut text, &table);
    }
    for measure in Measure::ALL {
        put(&mut text, &matrix(comparison, *measure));
    }
    text
}

/// A document with this between its marks; none if it has not exactly one pair of them.
#[must_use]
pub fn update(document: &str, between: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    let is_one = ![before, after].iter().any(|part| part.contains(BEGIN) || part.contains(END));
    let between = between.trim_end_matches('\n');
    is_one.then(|| format!("{before}{BEGIN}\n\n{between}\n\n{END}{after}"))
}

fn put(text: &mut String, table: &Table) {
    let _ = write!(text, "\n### {}\n\n{}\n\n", table.title, table.note);
    let mut line = |row: &[String]| {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    line(&table.head);
    let rule: Vec<String> = table.head.iter().map(|_| "---".to_owned()).collect();
    line(&rule);
    table.rows.iter().for_each(|row| line(row));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_is_written() {
        let old = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let new = update(&old, "| a |\n").unwrap();
        assert_eq!(new, format!("before\n{BEGIN}\n\n| a |\n\n{END}\nafter\n"));
        assert_eq!(update(&new, "| a |\n").as_ref(), Some(&new), "twice is once");
        assert_eq!(update("no marks", "x"), None);
        assert_eq!(update(&format!("{old}{old}"), "x"), None, "which one?");
    }
}
