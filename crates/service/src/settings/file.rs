//! A configuration file: TOML, one flat table, every complaint with its line.

use std::path::{Path, PathBuf};

use regent_files::{Trust, read_text};
use toml::de::DeTable;

use super::ConfigError;
use super::key::Key;
use super::value::Value;

/// Larger than any honest configuration; a wrong path must not fill the memory.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file that was read.
#[derive(Clone, Debug)]
pub struct File {
    /// Where it is.
    pub path: PathBuf,
    text: String,
}

impl File {
    /// Reads a file that must exist.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = read_text(path, FILE_BYTES_MAX, Trust::Public)
            .map_err(|error| ConfigError::Unreadable { why: error.to_string() })?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// The same from memory.
    #[cfg(any(test, feature = "fuzzing"))]
    #[doc(hidden)]
    pub fn of(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.to_owned() }
    }

    /// Its settings, each with its line; the first complaint ends it.
    pub fn settings(&self) -> Result<Vec<(Key, Value, usize)>, ConfigError> {
        let complain =
            |line, what: String| ConfigError::Line { path: self.path.clone(), line, what };
        let table = DeTable::parse(&self.text).map_err(|error| {
            let line = error.span().map_or(1, |span| self.line(span.start));
            complain(line, error.message().replace('\n', "; "))
        })?;
        let mut settings = Vec::new();
        for (name, value) in table.into_inner() {
            let line = self.line(name.span().start);
            let key =
                Key::find(name.get_ref()).ok_or_else(|| complain(line, unknown(name.get_ref())))?;
            let value = key.kind().parse_toml(value.get_ref()).map_err(|what| {
                complain(self.line(value.span().start), format!("{key}: {what}"))
            })?;
            settings.push((key, value, line));
        }
        Ok(settings)
    }

    /// The line of a byte, the first being 1.
    fn line(&self, byte: usize) -> usize {
        1 + self.text.bytes().take(byte).filter(|byte| *byte == b'\n').count()
    }
}

fn unknown(name: &str) -> String {
    let shown: String = name.chars().take(80).collect();
    match Key::nearest(name) {
        Some(key) => format!("there is no setting {shown:?}; did you mean {key}?"),
        None => {
            format!("there is no setting {shown:?}; `regent config sample` lists all of them")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(text: &str) -> String {
        File::of("regent.toml", text).settings().unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_name_is_told_with_its_line_and_its_neighbour() {
        assert_eq!(
            complaint("# first\nlistn = \"127.0.0.1:1\"\n"),
            "regent.toml:2: there is no setting \"listn\"; did you mean listen?"
        );
        assert!(complaint("[limits]\nx = 1").contains("regent config sample"));
    }

    #[test]
    fn a_wrong_type_is_told_with_its_line_and_what_was_expected() {
        assert_eq!(
            complaint("listen = 7400"),
            "regent.toml:1: listen: expected an address and port in quotes, like \"127.0.0.1:7400\", found an integer"
        );
        assert_eq!(
            complaint("\n\nrequests_max = \"4096\""),
            "regent.toml:3: requests_max: expected a whole number without quotes, found a string"
        );
        assert!(complaint("hosts_allowed = [1]").contains("expected a text in the list"));
    }

    #[test]
    fn a_wrong_value_is_told_with_its_line_and_the_way_out() {
        assert_eq!(
            complaint("idle_timeout = \"soon\""),
            "regent.toml:1: idle_timeout: \"soon\" is no duration; write a number and a unit, like 500ms, 10s, 2m or 1h"
        );
        assert!(complaint("log_level = \"loud\"").contains("choose one of off, error, warn"));
        assert!(complaint("requests_max = -1").starts_with("regent.toml:1: requests_max"));
    }

    #[test]
    fn broken_toml_is_told_with_its_line() {
        assert!(complaint("listen = \"127.0.0.1:1\"\nstore = ").starts_with("regent.toml:2: "));
        assert!(
            complaint("a = 1\na = 2\n").starts_with("regent.toml:2: "),
            "{}",
            complaint("a = 1\na = 2\n")
        );
    }
}
