//! Logs on standard error: text for people, JSON for machines.
//!
//! The level chosen holds for Regent's own parts; libraries below speak only from `warn` up, unless
//! everything was asked for (`trace`).

use std::io::{self, IsTerminal};

use clap::Args;
use clap::builder::PossibleValuesParser;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Key, LOG_FORMATS, LOG_LEVELS};
use crate::exit::Exit;
use crate::failure::Failure;

/// Flags of every verb about its log. `regent serve` takes them as settings, so that a file may hold
/// them too; the other verbs log nothing below a warning unless asked.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LogArgs {
    /// How much to log on stderr [env: REGENT_LOG_LEVEL]
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Log",
        value_parser = PossibleValuesParser::new(LOG_LEVELS))]
    pub(crate) log_level: Option<String>,
    /// How a line of the log looks [env: REGENT_LOG_FORMAT]
    #[arg(long, global = true, value_name = "FORMAT", help_heading = "Log",
        value_parser = PossibleValuesParser::new(LOG_FORMATS))]
    pub(crate) log_format: Option<String>,
}

impl LogArgs {
    /// Starts the log of a verb that has no settings.
    pub(crate) fn start(&self) -> Result<(), Failure> {
        let level = word(self.log_level.as_ref(), Key::LogLevel, "warn")?;
        let format = word(self.log_format.as_ref(), Key::LogFormat, "text")?;
        start(&level, &format);
        Ok(())
    }
}

/// The flag, which was checked before, or the variable, or the default.
fn word(flag: Option<&String>, key: Key, default: &str) -> Result<String, Failure> {
    let variable = key.variable();
    match (flag, std::env::var(&variable)) {
        (Some(flag), _) => Ok(flag.clone()),
        (None, Ok(text)) if !text.is_empty() => match key.kind().parse_text(&text) {
            Ok(_) => Ok(text),
            Err(what) => Err(Failure::new(Exit::Config, format!("${variable}: {what}"))),
        },
        (None, Ok(_) | Err(_)) => Ok(default.to_owned()),
    }
}

/// Starts logging; both words come from the table of settings. A second start changes nothing.
pub(crate) fn start(level: &str, format: &str) {
    let level: LevelFilter = level.parse().unwrap_or(LevelFilter::INFO);
    let others = if level == LevelFilter::TRACE { level } else { level.min(LevelFilter::WARN) };
    let filter = Targets::new().with_default(others).with_target("regent", level);
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let layer = if format == "json" {
        lines.json().flatten_event(true).boxed()
    } else {
        lines.with_ansi(may_colour()).boxed()
    };
    let _ = tracing_subscriber::registry().with(layer.with_filter(filter)).try_init();
}

/// Colours are for terminals, and only for people who want them (<https://no-color.org>).
fn may_colour() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
