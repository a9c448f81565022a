//! Kinds of settings: how each is read from text and from TOML, and how it is shown again.
//!
//! Flags and environment are text; a file has types of its own, and `connections_max = "many"` must
//! be told as the wrong type, not as a bad number. Both roads end in the same [`Value`].

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use crate::duration;

/// What a setting may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// An address and a port to listen on.
    Address,
    /// A directory; empty means that one is chosen.
    Directory,
    /// Any text without control characters.
    Text,
    /// A duration like `10s`.
    Duration,
    /// A whole number.
    Count,
    /// Yes or no.
    Bool,
    /// A list of words; in text, with commas between.
    Words,
    /// One of these words.
    OneOf(&'static [&'static str]),
}

/// What a setting holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// See [`ValueKind::Address`].
    Address(SocketAddr),
    /// See [`ValueKind::Directory`].
    Directory(PathBuf),
    /// See [`ValueKind::Text`] and [`ValueKind::OneOf`].
    Text(String),
    /// See [`ValueKind::Duration`].
    Duration(Duration),
    /// See [`ValueKind::Count`].
    Count(u32),
    /// See [`ValueKind::Bool`].
    Bool(bool),
    /// See [`ValueKind::Words`].
    Words(Vec<String>),
}

impl ValueKind {
    /// A value from a flag or from the environment, or a clause that says what is wrong.
    pub fn parse_text(self, text: &str) -> Result<Value, String> {
        let shown = shorten(text);
        if text.chars().any(char::is_control) {
            return Err(format!("{shown:?} holds control characters"));
        }
        match self {
            Self::Address => text.parse().map(Value::Address).map_err(|_| {
                format!(
                    "{shown:?} is no address and port; write it like 127.0.0.1:7400 or [::1]:7400"
                )
            }),
            Self::Directory => Ok(Value::Directory(text.into())),
            Self::Text => Ok(Value::Text(text.to_owned())),
            Self::Duration => duration::parse(text).map(Value::Duration),
            Self::Count => text.parse().map(Value::Count).map_err(|_| not_a_count(&shown)),
            Self::Bool => match text {
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                _ => Err(format!("{shown:?} is neither true nor false")),
            },
            Self::Words => Ok(Value::Words(
                text.split(',')
                    .map(str::trim)
                    .filter(|word| !word.is_empty())
                    .map(str::to_owned)
                    .collect(),
            )),
            Self::OneOf(words) if words.contains(&text) => Ok(Value::Text(text.to_owned())),
            Self::OneOf(words) => {
                Err(format!("{shown:?} is not known; choose one of {}", words.join(", ")))
            }
        }
    }

    /// A value from a file.
    pub(crate) fn parse_toml(self, value: &DeValue<'_>) -> Result<Value, String> {
        match (self, value) {
            (Self::Count, DeValue::Integer(number)) => {
                let digits = number.as_str().replace('_', "");
                u32::from_str_radix(&digits, number.radix())
                    .map(Value::Count)
                    .map_err(|_| not_a_count(&digits))
            }
            (Self::Bool, DeValue::Boolean(is_so)) => Ok(Value::Bool(*is_so)),
            (Self::Words, DeValue::Array(items)) => {
                let words = items.iter().map(|item| match item.get_ref() {
                    DeValue::String(word) => Ok(word.clone().into_owned()),
                    other => Err(format!("expected a text in the list, found {}", article(other))),
                });
                words.collect::<Result<_, _>>().map(Value::Words)
            }
            (
                Self::Address | Self::Directory | Self::Text | Self::Duration | Self::OneOf(_),
                DeValue::String(text),
            ) => self.parse_text(text),
            (_, other) => Err(format!("expected {}, found {}", self.expected(), article(other))),
        }
    }

    const fn expected(self) -> &'static str {
        match self {
            Self::Address => "an address and port in quotes, like \"127.0.0.1:7400\"",
            Self::Directory => "a directory in quotes",
            Self::Text | Self::OneOf(_) => "a text in quotes",
            Self::Duration => "a duration in quotes, like \"10s\"",
            Self::Count => "a whole number without quotes",
            Self::Bool => "true or false without quotes",
            Self::Words => "a list of texts, like [\"a\", \"b\"]",
        }
    }
}

impl fmt::Display for Value {
    /// As it stands in a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        match self {
            Self::Address(address) => f.write_str(&quoted(&address.to_string())),
            Self::Directory(path) => f.write_str(&quoted(&path.display().to_string())),
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::Duration(duration) => f.write_str(&quoted(&duration::show(*duration))),
            Self::Count(count) => write!(f, "{count}"),
            Self::Bool(is_so) => write!(f, "{is_so}"),
            Self::Words(words) => {
                let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
                write!(f, "[{}]", words.join(", "))
            }
        }
    }
}

impl serde::Serialize for Value {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Address(address) => to.collect_str(address),
            Self::Directory(path) => to.collect_str(&path.display()),
            Self::Text(text) => to.serialize_str(text),
            Self::Duration(duration) => to.serialize_str(&duration::show(*duration)),
            Self::Count(count) => to.serialize_u32(*count),
            Self::Bool(is_so) => to.serialize_bool(*is_so),
            Self::Words(words) => to.collect_seq(words),
        }
    }
}

fn not_a_count(shown: &str) -> String {
    format!("{shown:?} is no whole number from 0 to {}", u32::MAX)
}

fn article(value: &DeValue<'_>) -> String {
    let kind = value.type_str();
    let an = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{an} {kind}")
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_in_a_file_is_read_back_the_same() {
        for (kind, value) in [
            (ValueKind::Address, Value::Address("[::1]:7400".parse().unwrap())),
            (ValueKind::Directory, Value::Directory("/var/lib/a \"b\"\\c".into())),
            (ValueKind::Text, Value::Text("it's".into())),
            (ValueKind::Duration, Value::Duration(Duration::from_millis(1500))),
            (ValueKind::Count, Value::Count(u32::MAX)),
            (ValueKind::Bool, Value::Bool(false)),
            (ValueKind::Words, Value::Words(vec!["a".into(), "b".into()])),
            (ValueKind::OneOf(&["x", "y"]), Value::Text("y".into())),
        ] {
            let text = value.to_string();
            let parsed = DeValue::parse(&text).unwrap();
            assert_eq!(kind.parse_toml(parsed.get_ref()), Ok(value), "{text}");
        }
    }

    #[test]
    fn numbers_outside_their_range_are_refused_not_wrapped() {
        for text in ["-1", "1.5", "4294967296", "", "many"] {
            assert!(ValueKind::Count.parse_text(text).is_err(), "{text}");
        }
        let parsed = DeValue::parse("4_294_967_296").unwrap();
        assert!(ValueKind::Count.parse_toml(parsed.get_ref()).unwrap_err().contains("4294967295"));
    }
}
