//! Text from elsewhere on its way to a terminal: what a terminal would obey is written out.
//!
//! A terminal obeys what it is sent: it moves its cursor, renames its window, and turns the order of
//! letters. Names, reasons and problem details come from a server, which may be hostile. So everything that
//! is printed passes here, at the last moment, and what a terminal would obey is written out instead. Escaping
//! each field where it arrives is the road not taken: one that is forgotten is enough.

use std::borrow::Cow;
use std::fmt::Write;

/// Text of one or more lines, as it may be printed: control characters (C0 but for the end of a line and
/// the tabulator, DEL, C1) and characters that turn the direction of writing are written as `\u{1b}`.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    replaced(
        text,
        |letter| is_obeyed(letter) && letter != '\n' && letter != '\t',
        |letter, out| {
            out.extend(letter.escape_unicode());
        },
    )
}

/// The same for text that must not begin a line of its own.
#[must_use]
pub fn on_one_line(text: &str) -> Cow<'_, str> {
    replaced(text, is_obeyed, |letter, out| match letter {
        '\n' => out.push_str("\\n"),
        other => out.extend(other.escape_unicode()),
    })
}

/// JSON as it may be printed. It stays JSON and says the same: outside of strings there is nothing to escape.
#[must_use]
pub fn json_shown(json: &str) -> Cow<'_, str> {
    replaced(
        json,
        |letter| is_obeyed(letter) && letter != '\n',
        |letter, out| {
            // All of them are in the first plane: one unit of UTF-16 each.
            let _ = write!(out, "\\u{:04x}", u32::from(letter));
        },
    )
}

/// Whether a terminal acts on a character instead of showing it.
fn is_obeyed(letter: char) -> bool {
    let turns = matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    letter.is_control() || turns
}

fn replaced(
    text: &str,
    is_it: impl Fn(char) -> bool,
    escape: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.chars().any(&is_it) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_it(letter) {
            escape(letter, &mut out);
        } else {
            out.push(letter);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        assert_eq!(shown("a\u{1b}[2J\u{7}b\nc\td"), "a\\u{1b}[2J\\u{7}b\nc\td");
        assert_eq!(shown("\r\u{7f}\u{9b}\u{202e}"), "\\u{d}\\u{7f}\\u{9b}\\u{202e}");
        assert_eq!(on_one_line("a\nregent: b"), "a\\nregent: b");
        assert!(matches!(shown("Zoë → 東京"), Cow::Borrowed(_)), "letters stay");
    }

    #[test]
    fn escaped_json_says_the_same() {
        let value = serde_json::json!({ "a": "\u{1b}\u{7f}\u{9b}\u{202e}\n\"" });
        let text = value.to_string();
        let shown = json_shown(&text);
        assert!(!shown.chars().any(is_obeyed), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
