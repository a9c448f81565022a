//! The flags of every setting of `regent serve`, and `regent config`.
//!
//! Flags are taken as text and checked with everything else, so that a bad value is told in the same
//! words wherever it stands.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Subcommand};

use crate::config::{Effective, Flag, Key, SAMPLE, Settings, find_file};
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::logs::LogArgs;
use crate::output::{Output, Screen};

/// One flag per setting, from the table of settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingsArgs {
    config: Option<PathBuf>,
    given: Vec<(Key, String)>,
}

/// Settings that matter when data are founded.
const FOUNDING: &[Key] =
    &[Key::DataDir, Key::SegmentBytes, Key::AutoCreate, Key::GroupsMax, Key::TtlMin, Key::TtlMax];

/// The settings with a flag here; logging has flags of its own, since every verb may log.
fn flags() -> impl Iterator<Item = Key> {
    Key::ALL.iter().copied().filter(|key| !matches!(key, Key::LogLevel | Key::LogFormat))
}

/// Names of flags, without their dashes. They live as long as the process: the parser keeps references.
static NAMES: LazyLock<BTreeMap<Key, String>> = LazyLock::new(|| {
    flags().map(|key| (key, key.flag().trim_start_matches('-').to_owned())).collect()
});

fn config() -> Arg {
    let help = "Read settings from this file";
    let file = clap::value_parser!(PathBuf);
    Arg::new("config").long("config").value_name("FILE").help(help).value_parser(file)
}

fn flag(key: Key) -> Arg {
    let Flag { section, value, help, is_switch } = key.on_command_line();
    let flag = Arg::new(key.name()).long(NAMES[&key].as_str()).value_name(value).help(help);
    let flag = if section.is_empty() { flag } else { flag.help_heading(section) };
    if is_switch { flag.num_args(0..=1).default_missing_value("true") } else { flag }
}

impl FromArgMatches for SettingsArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self::of(matches, flags()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SettingsArgs {
    fn augment_args(command: Command) -> Command {
        command.arg(config()).args(flags().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl SettingsArgs {
    /// What was given of these settings. Other flags of the verb may have names of settings, too.
    fn of(matches: &ArgMatches, keys: impl Iterator<Item = Key>) -> Self {
        let given = |key: Key| Some((key, matches.get_one::<String>(key.name())?.clone()));
        Self { config: matches.get_one("config").cloned(), given: keys.filter_map(given).collect() }
    }

    /// What holds, from these flags, the environment, the file and the defaults.
    pub(crate) fn resolve(&self, log: &LogArgs) -> Result<Effective, Failure> {
        let environment = |name: &str| -> Option<OsString> { std::env::var_os(name) };
        let file = find_file(self.config.as_deref(), &environment)?;
        let log = [(Key::LogLevel, &log.log_level), (Key::LogFormat, &log.log_format)];
        let log = log.into_iter().filter_map(|(key, text)| Some((key, text.clone()?)));
        let given: Vec<_> = self.given.iter().cloned().chain(log).collect();
        Ok(Effective::resolve(&given, &environment, file.as_ref())?)
    }
}

/// Flags of the settings that matter when data are founded.
#[derive(Clone, Debug)]
pub(crate) struct FoundingArgs(SettingsArgs);

impl FromArgMatches for FoundingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(SettingsArgs::of(matches, FOUNDING.iter().copied())))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl Args for FoundingArgs {
    fn augment_args(command: Command) -> Command {
        let flag = |key: &Key| match key {
            Key::DataDir => {
                flag(*key).help("Where the replica keeps its data [default: $XDG_DATA_HOME/regent]")
            }
            Key::SegmentBytes => flag(*key).help_heading(None::<&str>),
            other => flag(*other),
        };
        command.arg(config()).args(FOUNDING.iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FoundingArgs {
    /// What holds, from these flags, the environment, the file and the defaults, as for `regent
    /// serve`: both read the same file the same way.
    pub(crate) fn resolve(&self, log: &LogArgs) -> Result<Settings, Failure> {
        Ok(self.effective(log)?.settings()?)
    }

    /// The same with who says so.
    pub(crate) fn effective(&self, log: &LogArgs) -> Result<Effective, Failure> {
        self.0.resolve(log)
    }
}

/// Verbs of `regent config`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "\
Examples:
  regent config show --origin
  regent config sample > regent.toml")]
pub(crate) enum ConfigVerb {
    /// Show the settings `regent serve` would run with
    Show(Box<ShowArgs>),
    /// Print a complete sample file
    Sample(SampleArgs),
}

/// Flags of `regent config show`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent config show --origin
  regent config show --config regent.toml --listen 127.0.0.1:7500
  regent config show --output json")]
pub(crate) struct ShowArgs {
    /// Say where each setting comes from
    #[arg(long)]
    origin: bool,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Flags of `regent config sample`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent config sample > regent.toml")]
pub(crate) struct SampleArgs {}

/// Runs one of the verbs.
pub(crate) fn run(verb: &ConfigVerb, log: &LogArgs) -> CommandResult {
    match verb {
        ConfigVerb::Show(args) => show(args, log),
        ConfigVerb::Sample(SampleArgs {}) => {
            Screen { output: Output::Text }.line(SAMPLE)?;
            Ok(Exit::Done)
        }
    }
}

/// As text it is a file that could be used; as JSON every setting has its origin and meaning.
fn show(args: &ShowArgs, log: &LogArgs) -> CommandResult {
    let effective = args.settings.resolve(log)?;
    effective.settings()?;
    Screen::chosen().answer(&effective, || effective.to_file(args.origin))?;
    Ok(Exit::Done)
}
