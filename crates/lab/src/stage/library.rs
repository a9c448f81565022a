//! The scenarios that come with the lab.

use super::parse::parse;
use super::scenario::Scenario;

/// A scenario's name and text.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Its name.
    pub name: &'static str,
    /// Its text, as a user would write it.
    pub text: &'static str,
}

macro_rules! told {
    ($($name:literal),* $(,)?) => {
        &[$(Told {
            name: $name,
            text: include_str!(concat!("../../scenarios/", $name, ".scenario")),
        }),*]
    };
}

const ALL: &[Told] = told![
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
pub const fn library() -> &'static [Told] {
    ALL
}

impl Told {
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
