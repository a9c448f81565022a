//! Plain tables for people. They have no frames, so that they can be cut, sorted and compared with the usual tools.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

use crate::escape::on_one_line;

/// How a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnSide {
    /// Names and words.
    Left,
    /// Numbers.
    Right,
}

/// A table with a head.
#[must_use]
pub fn table(head: &[(&str, ColumnSide)], rows: Vec<Vec<String>>) -> String {
    let mut table = plain();
    table.set_header(head.iter().map(|(name, _)| name.to_uppercase()));
    table.add_rows(rows.iter().map(|row| row.iter().map(|cell| on_one_line(cell).into_owned())));
    for (index, (_, side)) in head.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 2));
            column.set_cell_alignment(match side {
                ColumnSide::Left => CellAlignment::Left,
                ColumnSide::Right => CellAlignment::Right,
            });
        }
    }
    table.trim_fmt()
}

/// Facts about one thing, one per line.
#[must_use]
pub fn facts(facts: Vec<(&str, String)>) -> String {
    let mut table = plain();
    table.add_rows(facts.into_iter().map(|(name, value)| vec![name.to_owned(), value]));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table
}

/// `yes` or `no`.
#[must_use]
pub fn yes(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}

/// A value, or a dash.
#[must_use]
pub fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_plain_and_aligned() {
        let rows = vec![vec!["billing".into(), "7".into()], vec!["b".into(), "1234".into()]];
        let text = table(&[("group", ColumnSide::Left), ("term", ColumnSide::Right)], rows);
        assert_eq!(text, "GROUP    TERM\nbilling     7\nb        1234");
    }

    #[test]
    fn facts_stand_one_per_line() {
        let text = facts(vec![("group", "billing".into()), ("term", "7".into())]);
        assert_eq!(text, "group  billing\nterm   7");
    }
}
