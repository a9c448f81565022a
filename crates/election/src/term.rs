//! The numbers that order everything: terms, revisions, cursors.

use std::fmt;
use std::str::FromStr;

use crate::limits::TERM_MAX;

/// The fencing token: one higher for every tenure of a group, never reused, never lower.
///
/// Zero means "no term was ever granted". Always below 2^53, so it is exact in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(u64);

impl Term {
    /// No tenure yet.
    pub const NONE: Self = Self(0);

    /// A term, if `number` is within range.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number <= TERM_MAX { Some(Self(number)) } else { None }
    }

    /// The term after this one, or `None` when no more can be written exactly.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    /// The plain number, for wires and metrics.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many entries the state machine has applied. A counter of the state, kept in snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One life of a store's numbering: new after a restore, so that cursors of two lives never mix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// The place of one event in everything that ever happened: after it, the rest follows.
///
/// Written `incarnation-revision-ordinal` (hexadecimal, decimal, decimal). One entry may cause
/// many events, so the revision alone would not say where a watcher stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    /// The life of the store this place belongs to.
    pub incarnation: Incarnation,
    /// The entry that caused the event.
    pub revision: Revision,
    /// Which of that entry's events; [`Cursor::WHOLE`] means all of them.
    pub ordinal: u32,
}

impl Cursor {
    /// The ordinal that stands after every event of its revision.
    pub const WHOLE: u32 = u32::MAX;

    /// The place after everything `revision` caused.
    #[must_use]
    pub const fn after(incarnation: Incarnation, revision: Revision) -> Self {
        Self { incarnation, revision, ordinal: Self::WHOLE }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.incarnation.0, self.revision)?;
        if self.ordinal == Self::WHOLE { Ok(()) } else { write!(f, "-{}", self.ordinal) }
    }
}

/// Why a text is no cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a cursor: take it from the `cursor` of an answer or the id of an event, like 5f3a-17-0"
)]
pub struct CursorError;

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let mut parts = text.split('-');
        let incarnation = parts.next().ok_or(CursorError)?;
        let revision = parts.next().ok_or(CursorError)?;
        let ordinal = parts.next();
        if parts.next().is_some() || text.len() > 64 || text.contains('+') {
            return Err(CursorError);
        }
        Ok(Self {
            incarnation: Incarnation(
                u64::from_str_radix(incarnation, 16).map_err(|_| CursorError)?,
            ),
            revision: Revision(revision.parse().map_err(|_| CursorError)?),
            ordinal: match ordinal {
                None => Self::WHOLE,
                Some(number) => number.parse().map_err(|_| CursorError)?,
            },
        })
    }
}

/// A term as people write it. That there was none is no term to act under.
///
/// # Errors
/// A clause that says which numbers are terms.
pub fn parse_term(text: &str) -> Result<Term, String> {
    let refused = || format!("a term is a whole number from 1 to {TERM_MAX}");
    let number: u64 = text.parse().map_err(|_| refused())?;
    Term::new(number).filter(|term| *term != Term::NONE).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_a_whole_number_above_zero() {
        assert_eq!(parse_term("7").unwrap().get(), 7);
        for text in ["", "0", "-1", "1.5", "9007199254740992", "x"] {
            assert!(parse_term(text).is_err(), "{text}");
        }
    }

    #[test]
    fn terms_end_where_json_stops_being_exact() {
        assert_eq!(Term::new(TERM_MAX).and_then(Term::next), None);
        assert_eq!(Term::new(TERM_MAX + 1), None);
        assert_eq!(Term::NONE.next().map(Term::get), Some(1));
    }

    #[test]
    fn cursors_survive_being_written_and_read() {
        for text in ["5f3a-17-0", "0-0", "ffffffffffffffff-18446744073709551615-7"] {
            assert_eq!(text.parse::<Cursor>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_no_cursors() {
        for text in ["", "17", "x-1-1", "1-2-3-4", "-1-2", "1--2", "1-+2-0", "1-2-99999999999"] {
            assert_eq!(text.parse::<Cursor>(), Err(CursorError), "{text}");
        }
    }
}
