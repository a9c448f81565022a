//! What is written on standard output: plain tables for people, JSON for programs.
//!
//! Tables have no frames, so that they can be cut, sorted and compared with the usual tools.
//! Writing never panics: whoever reads us may stop at any time.

use std::io::{self, Write};
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use crate::failure::Failure;
use regent_operate::escape::{json_shown, on_one_line, shown};

/// For whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Tables and lines for people.
    #[default]
    Text,
    /// JSON for programs, one object per line.
    Json,
}

/// Chosen once, before a verb runs. Every verb has the flag, so that no verb can forget it.
static CHOSEN: OnceLock<Output> = OnceLock::new();

impl Output {
    /// For whom this process writes.
    pub(crate) fn chosen() -> Self {
        CHOSEN.get().copied().unwrap_or_default()
    }
}

/// Flags of every verb.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OutputArgs {
    /// For people or for programs
    #[arg(
        long,
        short,
        global = true,
        env = "REGENT_OUTPUT",
        value_enum,
        default_value_t,
        help_heading = "Server and output"
    )]
    output: Output,
    /// The same as --output json
    #[arg(long, global = true, help_heading = "Server and output")]
    json: bool,
}

impl OutputArgs {
    /// Lets them hold for this process.
    pub(crate) fn choose(self) {
        let _ = CHOSEN.set(if self.json { Output::Json } else { self.output });
    }
}

/// Standard output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    pub(crate) output: Output,
}

impl Screen {
    /// As `--output` says.
    pub(crate) fn chosen() -> Self {
        Self { output: Output::chosen() }
    }

    /// Shows an answer: as JSON whole, or as text by `show`.
    pub(crate) fn answer<A: Serialize>(
        self,
        answer: &A,
        show: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match self.output {
            Output::Json => self.line(&json(answer)),
            Output::Text => self.line(&show()),
        }
    }

    /// Writes one or more lines, at once.
    pub(crate) fn line(self, text: &str) -> Result<(), Failure> {
        let text = match self.output {
            Output::Json => json_shown(text),
            Output::Text => shown(text),
        };
        let mut stdout = io::stdout().lock();
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| if text.ends_with('\n') { Ok(()) } else { stdout.write_all(b"\n") })
            .and_then(|()| stdout.flush())
            .map_err(|error| Failure::stdout(&error))
    }
}

/// One line of JSON.
pub(crate) fn json<A: Serialize>(answer: &A) -> String {
    let text =
        serde_json::to_string(answer).expect("what is shown is made of text, numbers and lists");
    json_shown(&text).into_owned()
}

/// A remark for people, beside what was asked for. Nothing depends on its being read.
pub(crate) fn remark(text: &str) {
    let _ = writeln!(io::stderr().lock(), "regent: {}", shown(text));
}

/// How a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Names and words.
    Left,
    /// Numbers.
    Right,
}

/// A table with a head.
pub(crate) fn table(head: &[(&str, Side)], rows: Vec<Vec<String>>) -> String {
    let mut table = plain();
    table.set_header(head.iter().map(|(name, _)| name.to_uppercase()));
    table.add_rows(rows.iter().map(|row| row.iter().map(|cell| on_one_line(cell).into_owned())));
    for (index, (_, side)) in head.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 2));
            column.set_cell_alignment(match side {
                Side::Left => CellAlignment::Left,
                Side::Right => CellAlignment::Right,
            });
        }
    }
    table.trim_fmt()
}

/// Facts about one thing, one per line.
pub(crate) fn facts(facts: Vec<(&str, String)>) -> String {
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
pub(crate) fn yes(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}

/// A value, or a dash.
pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_plain_and_aligned() {
        let rows = vec![vec!["billing".into(), "7".into()], vec!["b".into(), "1234".into()]];
        let text = table(&[("group", Side::Left), ("term", Side::Right)], rows);
        assert_eq!(text, "GROUP    TERM\nbilling     7\nb        1234");
    }

    #[test]
    fn facts_stand_one_per_line() {
        let text = facts(vec![("group", "billing".into()), ("term", "7".into())]);
        assert_eq!(text, "group  billing\nterm   7");
    }
}
