//! Where the configuration and the data are looked for, by the habits of the system.
//!
//! The environment is an argument, so that these rules can be tested without touching a process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Reads one environment variable.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A variable that is set to something.
pub(crate) fn set(environment: Environment<'_>, name: &str) -> Option<OsString> {
    environment(name).filter(|value| !value.is_empty())
}

/// Files that are read if they exist and nobody names one, the first that does.
pub(crate) fn config_files(environment: Environment<'_>) -> Vec<PathBuf> {
    let of_user = base(environment, "XDG_CONFIG_HOME", ".config");
    let mut files: Vec<PathBuf> =
        of_user.into_iter().map(|base| base.join("regent/regent.toml")).collect();
    files.push(PathBuf::from("/etc/regent/regent.toml"));
    files
}

/// The data directory if nobody names one.
pub(crate) fn data_dir(environment: Environment<'_>) -> PathBuf {
    base(environment, "XDG_DATA_HOME", ".local/share")
        .map_or_else(|| PathBuf::from("regent-data"), |base| base.join("regent"))
}

/// `$variable`, or `$HOME/below`. The standard asks to ignore what is not absolute.
fn base(environment: Environment<'_>, variable: &str, below: &str) -> Option<PathBuf> {
    let absolute = |value: OsString| Some(PathBuf::from(value)).filter(|path| path.is_absolute());
    set(environment, variable).and_then(absolute).or_else(|| {
        set(environment, "HOME").and_then(absolute).map(|home| home.join(Path::new(below)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
    }

    #[test]
    fn data_goes_to_the_place_of_the_user_or_beside_the_process() {
        assert_eq!(data_dir(&with(&[("XDG_DATA_HOME", "/x")])), Path::new("/x/regent"));
        assert_eq!(data_dir(&with(&[("HOME", "/u")])), Path::new("/u/.local/share/regent"));
        let relative = with(&[("XDG_DATA_HOME", "x"), ("HOME", "/u")]);
        assert_eq!(data_dir(&relative), Path::new("/u/.local/share/regent"));
        assert_eq!(data_dir(&with(&[])), Path::new("regent-data"));
        assert_eq!(data_dir(&with(&[("HOME", "")])), Path::new("regent-data"));
    }

    #[test]
    fn the_file_of_the_user_comes_before_that_of_the_machine() {
        let files = config_files(&with(&[("HOME", "/u")]));
        assert_eq!(
            files,
            [Path::new("/u/.config/regent/regent.toml"), Path::new("/etc/regent/regent.toml")]
        );
    }
}
