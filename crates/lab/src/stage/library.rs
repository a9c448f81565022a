//! The scenarios that come with the lab.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use super::parse::{ParseError, parse};
use super::scenario::Scenario;

/// Texts of scenarios are small; a larger file is something else.
const SCENARIO_BYTES_MAX: u64 = 1 << 20;

/// A scenario's name and text.
#[derive(Clone, Copy, Debug)]
pub struct NamedScenario {
    pub name: &'static str,
    /// Its text, as a user would write it.
    pub text: &'static str,
}

macro_rules! told {
    ($($name:literal),* $(,)?) => {
        &[$(NamedScenario {
            name: $name,
            text: include_str!(concat!("../../scenarios/", $name, ".scenario")),
        }),*]
    };
}

const ALL: &[NamedScenario] = told![
    "calm",
    "crash",
    "flapping",
    "split-vote",
    "split-vote-backoff",
    "duelling-proposers",
    "duelling-proposers-backoff",
    "clean-partition",
    "three-way-partition",
    "intermittent-partition",
    "one-way-partition",
    "gc-pause",
    "long-pause",
    "clock-skew",
    "clock-drift",
    "slow-disk",
    "cascade",
    "slow-or-dead",
    "thundering-herd",
    "witness",
    "even-cluster",
    "byzantine-voter",
    "lossy",
];

/// All of them.
#[must_use]
pub const fn library() -> &'static [NamedScenario] {
    ALL
}

impl NamedScenario {
    /// The one with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        ALL.iter().copied().find(|told| told.name == name)
    }

    /// What it says.
    #[must_use]
    pub fn scenario(self) -> Scenario {
        parse(self.name, self.text).expect("a test reads every scenario that comes with the lab")
    }
}

/// Why there is no such scenario.
#[derive(Debug)]
pub enum FindError {
    /// It is no name of the library and no path.
    Unknown(String),
    /// Its file cannot be read.
    Io(PathBuf, io::Error),
    /// Its file is far too large for one: so many bytes.
    TooLarge(PathBuf, u64),
    /// Its file is no scenario.
    Parse(PathBuf, ParseError),
}

impl fmt::Display for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                let names: Vec<&str> = library().iter().map(|told| told.name).collect();
                write!(
                    f,
                    "there is no scenario {name}; there are {}; `regent lab algorithms` tells what they show, \
                     and a file is named by its path",
                    names.join(", ")
                )
            }
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::TooLarge(path, bytes) => write!(
                f,
                "{}: {bytes} bytes are no scenario: at most {SCENARIO_BYTES_MAX}",
                path.display()
            ),
            Self::Parse(path, error) => write!(f, "{}:{error}", path.display()),
        }
    }
}

impl std::error::Error for FindError {}

/// A scenario by its name in the library or by its file.
pub fn find(name: &str) -> Result<Scenario, FindError> {
    match NamedScenario::find(name) {
        Some(told) => Ok(told.scenario()),
        None if name.contains(['/', '.']) => read(Path::new(name)),
        None => Err(FindError::Unknown(name.to_owned())),
    }
}

/// A scenario from its file.
pub fn read(path: &Path) -> Result<Scenario, FindError> {
    let failed = |error: io::Error| FindError::Io(path.to_owned(), error);
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > SCENARIO_BYTES_MAX {
        return Err(FindError::TooLarge(path.to_owned(), length));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let name =
        path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    parse(&name, &text).map_err(|error| FindError::Parse(path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_can_be_read_and_every_file_is_listed() {
        for told in library() {
            let scenario = parse(told.name, told.text);
            assert!(scenario.is_ok(), "{}: {scenario:?}", told.name);
        }
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), library().len());
    }
}
