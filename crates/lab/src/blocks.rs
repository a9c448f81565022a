//! Results for people as data: paragraphs and tables, which a terminal or a page lays out.

use std::time::Duration;

/// How a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Names and words.
    Left,
    /// Numbers.
    Right,
}

/// One part of a report, from top to bottom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Text as it stands, with its own line ends.
    Text(String),
    /// A table: the heads of its columns, and rows as long as the head.
    Table {
        /// The heads, and how each column stands.
        head: Vec<(String, Side)>,
        rows: Vec<Vec<String>>,
    },
    /// Facts about one thing: what, and its value.
    Facts(Vec<(&'static str, String)>),
}

impl Block {
    /// A table with heads that are known beforehand.
    #[must_use]
    pub fn table(head: &[(&str, Side)], rows: Vec<Vec<String>>) -> Self {
        let head = head.iter().map(|(name, side)| ((*name).to_owned(), *side)).collect();
        Self::Table { head, rows }
    }
}

/// A duration as people write it.
pub(crate) fn show_ms(ms: u64) -> String {
    humantime::format_duration(Duration::from_millis(ms)).to_string()
}
