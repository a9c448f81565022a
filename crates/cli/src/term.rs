//! Terms on the command line.

use regent_election::Term;
use regent_election::limits::TERM_MAX;

/// A term from text, or a clause that says what is wrong with it.
pub(crate) fn parse_term(text: &str) -> Result<Term, String> {
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
}
