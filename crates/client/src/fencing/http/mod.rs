//! Terms over HTTP: how a request carries its term, and how a refusal is recognised.
//!
//! A request carries its term in one header, `Regent-Term: 101`. The gateway (`regent fence gateway`) and
//! whatever else compares terms over HTTP refuse a stale one with 409 and a problem whose code is
//! `STALE_TERM`, with both numbers. A leader that reads such an answer has lost its office:
//!
//! ```
//! use regent::fencing::http;
//!
//! # let (status, body) = (409, br#"{"type":"urn:regent:problem:stale_term","title":"","status":409,
//! #   "code":"STALE_TERM","detail":"","given_term":100,"current_term":101}"#);
//! if let Some(stale) = http::refusal(status, body) {
//!     assert_eq!(stale.to_string(), "term 100 < current 101"); // stop at once
//! }
//! ```
//!
//! A leader of this library does not have to: [`Permit::stamp`](crate::Permit::stamp) writes the header and
//! [`Permit::heed`](crate::Permit::heed) reads the answer and gives the office up if that is what it says, with any HTTP client. With the feature
//! `fence-http` the layer `LeaderLayer` does both around a client that is a `tower` service, and `FenceLayer` stands
//! before one's own handlers.

#[cfg(feature = "fence-http")]
mod client;
#[cfg(feature = "tools")]
pub mod door;
#[cfg(all(feature = "fence-http", not(feature = "tools")))]
#[allow(dead_code, unreachable_pub, reason = "public with the feature `tools`")]
mod door;
#[cfg(feature = "fence-http")]
mod layer;
mod leader;
#[cfg(any(feature = "fence-http", feature = "tools"))]
mod problems;
#[cfg(feature = "fence-signed")]
mod signed;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use regent_election::{FenceError, Term};

#[cfg(feature = "fence-http")]
pub use client::{LeaderLayer, LeaderService};
#[cfg(feature = "fence-http")]
pub use layer::{Admitted, FenceLayer, FenceService, KeepMark};

#[cfg(all(feature = "fence-http", not(feature = "tools")))]
use problems::problem_of_turn;
#[cfg(feature = "tools")]
pub use problems::{check_step, problem_of, problem_of_cut, problem_of_turn};
pub use regent_api::{Code, Problem};
#[cfg(feature = "fence-http")]
pub use regent_election::fence::doorkeeper::DoorRules;

/// The header that carries a term.
pub const TERM_HEADER: HeaderName = HeaderName::from_static("regent-term");

/// The header that carries a signed term.
pub const TOKEN_HEADER: HeaderName = HeaderName::from_static("regent-token");

/// Digits of the largest term.
const DIGITS_MAX: usize = 16;

/// Why a request has no term that can be believed. The messages are clauses for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermHeaderError {
    /// There is none.
    #[error("this needs a term; send the one you were elected with as Regent-Term")]
    Missing,
    /// There are several: whoever added the second one is not believed, nor is the first.
    #[error("Regent-Term came more than once; send it once")]
    Repeated,
    /// It is no number, or written in another way than the one.
    #[error("Regent-Term is a number from 1 to 2^53 - 1, in plain digits and nothing else")]
    Malformed,
}

/// The term of a request.
///
/// There is one way to write a term: digits, without sign, space or leading zero. Two programs that read
/// the same header differently could be played off against each other.
pub fn term_of(headers: &HeaderMap) -> Result<Term, TermHeaderError> {
    let mut all = headers.get_all(TERM_HEADER).iter();
    let first = all.next().ok_or(TermHeaderError::Missing)?;
    if all.next().is_some() {
        return Err(TermHeaderError::Repeated);
    }
    parse(first.as_bytes()).ok_or(TermHeaderError::Malformed)
}

fn parse(text: &[u8]) -> Option<Term> {
    let is_plain = (1..=DIGITS_MAX).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    if !is_plain || text[0] == b'0' {
        return None;
    }
    let number = text.iter().fold(0, |sum: u64, digit| sum * 10 + u64::from(digit - b'0'));
    Term::new(number)
}

/// The header's value for a term.
#[must_use]
pub fn value_of(term: Term) -> HeaderValue {
    HeaderValue::from(term.get())
}

/// What an answer says about the caller's term, if it is a fence's refusal: the office is lost.
///
/// Nothing was written if the code is `STALE_TERM`. A request that was cut on its way because a higher term
/// came is told as `UNCERTAIN`, with both numbers: it may have taken effect, and the office is lost as well.
/// Any other answer says nothing about the office.
#[must_use]
pub fn refusal(status: u16, body: &[u8]) -> Option<FenceError> {
    let says_so = [Code::StaleTerm, Code::Uncertain];
    if !says_so.iter().any(|code| code.status() == status) {
        return None;
    }
    let problem: Problem = serde_json::from_slice(body).ok()?;
    if !says_so.contains(&problem.code) {
        return None;
    }
    let (given, current) = (problem.facts.given_term?, problem.facts.current_term?);
    (given < current).then_some(FenceError::Stale { given, current })
}

impl From<TermHeaderError> for Problem {
    fn from(error: TermHeaderError) -> Self {
        let code = match error {
            TermHeaderError::Missing => Code::TermMissing,
            TermHeaderError::Repeated | TermHeaderError::Malformed => Code::BadRequest,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TERM_HEADER, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_term_is_written_in_one_way() {
        assert_eq!(term_of(&headers(&["101"])).unwrap().get(), 101);
        assert_eq!(term_of(&headers(&["9007199254740991"])).unwrap().get(), (1 << 53) - 1);
        assert_eq!(term_of(&headers(&[])), Err(TermHeaderError::Missing));
        assert_eq!(term_of(&headers(&["1", "1"])), Err(TermHeaderError::Repeated));
        for text in [
            "",
            "0",
            "00",
            "01",
            "+1",
            "-1",
            " 1",
            "1 ",
            "1,2",
            "0x1",
            "1e3",
            "1.0",
            "one",
            "１",
            "9007199254740992",
            "99999999999999999999",
        ] {
            let mut headers = HeaderMap::new();
            headers.append(TERM_HEADER, HeaderValue::from_bytes(text.as_bytes()).unwrap());
            assert_eq!(term_of(&headers), Err(TermHeaderError::Malformed), "{text:?}");
        }
    }

    #[test]
    fn a_refusal_is_recognised_by_its_code_and_both_numbers() {
        let stale =
            FenceError::Stale { given: Term::new(100).unwrap(), current: Term::new(101).unwrap() };
        let body = serde_json::to_vec(&problem_of(stale)).unwrap();
        assert_eq!(refusal(409, &body), Some(stale));
        assert_eq!(refusal(200, &body), None, "an upstream may answer anything");
        let other = serde_json::to_vec(&Problem::new(Code::NotLeader, "x")).unwrap();
        assert_eq!(refusal(409, &other), None);
        assert_eq!(refusal(409, b"conflict"), None);
        let FenceError::Stale { given, current } = stale else { unreachable!() };
        let cut = serde_json::to_vec(&problem_of_cut(given, current)).unwrap();
        assert_eq!(refusal(504, &cut), Some(stale), "cut on its way: the office is lost as well");
        let lost = serde_json::to_vec(&Problem::new(Code::Uncertain, "x")).unwrap();
        assert_eq!(refusal(504, &lost), None);
        let never = serde_json::to_vec(&problem_of(FenceError::NeverGranted)).unwrap();
        assert_eq!(refusal(409, &never), None);
    }

    proptest! {
        #[test]
        fn a_term_survives_its_header(number in 1_u64..1 << 53) {
            let term = Term::new(number).unwrap();
            let mut headers = HeaderMap::new();
            headers.insert(TERM_HEADER, value_of(term));
            prop_assert_eq!(term_of(&headers), Ok(term));
        }

        #[test]
        fn whatever_is_read_is_written_alike(text in "[0-9+ -]{0,18}") {
            let Ok(value) = HeaderValue::from_str(&text) else { return Ok(()) };
            let mut headers = HeaderMap::new();
            headers.insert(TERM_HEADER, value);
            if let Ok(term) = term_of(&headers) {
                prop_assert_eq!(term.to_string(), text);
            }
        }
    }
}
