//! Errors as text for people: one printer for the whole workspace.
//!
//! Libraries print only the top of an error and leave the rest to [`Error::source`]. Messages of ours
//! are one line, so they need either all of the chain or its bottom.

use std::error::Error;
use std::io;

/// An error and all its causes, outermost first, separated by colons.
///
/// Some errors repeat the text of their cause in their own; a cause whose text is there already is not
/// added again.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

/// The last cause of an error only: for clients whose outer errors just say that a request failed.
#[must_use]
pub fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}

/// The text of an operating system error without its number, as part of a sentence.
#[must_use]
pub fn plain(error: &io::Error) -> String {
    without_os_number(error.to_string())
}

/// Cuts "(os error N)" off, and begins with a small letter if it was there; other text stays as it is.
#[must_use]
pub fn without_os_number(text: String) -> String {
    match text.find(" (os error ") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    fn chain(texts: &[&'static str]) -> Layer {
        let (last, outer) = texts.split_last().unwrap();
        outer.iter().rev().fold(Layer(last, None), |cause, text| Layer(text, Some(cause.into())))
    }

    #[test]
    fn every_cause_is_printed_once() {
        let error = chain(&["cannot connect", "tcp", "refused by 10.0.0.1"]);
        assert_eq!(with_causes(&error), "cannot connect: tcp: refused by 10.0.0.1");
        assert_eq!(innermost(&error), "refused by 10.0.0.1");
        let repeats = chain(&["cannot connect: tcp", "tcp", "refused"]);
        assert_eq!(with_causes(&repeats), "cannot connect: tcp: refused");
        assert_eq!(with_causes(&chain(&["alone"])), "alone");
    }

    #[test]
    fn only_the_number_of_a_system_error_is_cut() {
        assert_eq!(plain(&io::Error::from_raw_os_error(13)), "permission denied");
        assert_eq!(plain(&io::Error::other("Disk 7 is gone")), "Disk 7 is gone");
    }
}
