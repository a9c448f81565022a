//! What is written on standard output: plain tables for people, JSON for programs.
//!
//! Writing never panics: whoever reads us may stop at any time.

use std::io::{self, Write};
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::failure::Failure;
use regent_operate::escape::{json_shown, shown};
pub(crate) use regent_operate::tables::{ColumnSide as Side, facts, or_dash, table, yes};

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
