//! Adapters: other people's storage, taught to compare terms where the write lands.
//!
//! A lease cannot stop a process that was paused between its check and its write. The storage can, if it
//! remembers the highest term it has admitted and compares in the very step that writes. Each adapter is
//! that one step for one kind of storage:
//!
//! | adapter | the step | feature |
//! |---|---|---|
//! | [`postgres`] | a guard function and triggers, inside the caller's transaction | `fence-postgres` for the driver |
//! | `redis` | one script: compare, raise, write | `fence-redis` |
//! | `dynamodb` | a condition on the item that is written | `fence-dynamodb` |
//! | `object` | a conditional put over the version that was read | `fence-object` |
//! | [`mod@file`] | a lock, a mark, an atomic replacement; one host | |
//! | [`http`] | the header that the gateway compares, and its refusal; a layer before one's own handlers | `fence-http` for the layer |
//! | `signed` | none: it gets a term out of a token that the service signed, for those above | `fence-signed` |
//! | [`Permit::admit_at`] | none: it asks the store of the elections first, for what cannot compare | |
//!
//! Every write takes the proof that it may be made: a [`Permit`], a term from a signed token, or in trials of
//! the conformance kit a pretended one. A refusal for a higher term is the loss
//! of the office, and each adapter says so by itself ([`Permit::refused`]): `lost` is ready, no check passes
//! any more, and the work stops. The term ends in this process before the write returns, and the session's
//! thread then reports the refusal to the store.
//!
//! The crate `regent-fencekit` and `regent fence test` hammer a fence from leaders that were paused, and show
//! the stale write if there is one.
//!
//! Road not taken: one trait over all storages. What a write *is* differs too much; what they share is
//! [`Proof`] on the way in and [`WriteError`] on the way out.

#[cfg(feature = "fence-dynamodb")]
pub mod dynamodb;
pub mod file;
pub mod http;
#[cfg(feature = "fence-object")]
pub mod object;
pub mod postgres;
#[cfg(any(test, feature = "fence-trial"))]
mod pretender;
#[cfg(feature = "fence-redis")]
pub mod redis;
mod service;
#[cfg(feature = "fence-signed")]
pub mod signed;

use std::error::Error;

use regent_election::{FenceError, Term};

use crate::fenced::Permit;

#[cfg(any(test, feature = "fence-trial"))]
pub use pretender::Pretender;

/// Why a write was not made, or may not have been.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Nothing was written. For a higher term: this process has lost its office, and has been told so.
    #[error("{code}: {0}", code = .0.code())]
    Refused(FenceError),
    /// It may have been written, in whole. Look before you decide anything; to write the same again
    /// under the same term does no harm that the write itself would not do.
    #[error("it may have been written: {0}")]
    Uncertain(Box<dyn Error + Send + Sync>),
    /// Nothing was written, for a reason of the storage's own.
    #[error("nothing was written: {0}")]
    Failed(Box<dyn Error + Send + Sync>),
}

/// What every write returns.
pub type WriteResult<T> = Result<T, WriteError>;

impl WriteError {
    pub(crate) fn failed(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Failed(why.into())
    }

    pub(crate) fn uncertain(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Uncertain(why.into())
    }

    /// The refusal, if it is one.
    #[must_use]
    pub const fn refusal(&self) -> Option<FenceError> {
        match self {
            Self::Refused(refusal) => Some(*refusal),
            Self::Uncertain(_) | Self::Failed(_) => None,
        }
    }
}

/// A term, by somebody who may write under it: a [`Permit`], a term that was verified (`signed::Verified`), or a
/// leader of a trial (`Pretender`, with the feature `fence-trial`).
pub trait Proof: sealed::Sealed + Sync {
    /// The fencing token.
    fn term(&self) -> Term;

    /// A resource refused it.
    fn refused(&self, why: &FenceError);
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::Permit {}
}

impl Proof for Permit {
    fn term(&self) -> Term {
        Self::term(self)
    }

    fn refused(&self, why: &FenceError) {
        Self::refused(self, why);
    }
}

/// The refusal as an error, told to whoever was refused.
pub(crate) fn refuse(proof: &impl Proof, why: FenceError) -> WriteError {
    proof.refused(&why);
    WriteError::Refused(why)
}

/// Reads `term 100 < current 101` back from wherever it stands in a message.
#[must_use]
pub fn stale_in(message: &str) -> Option<FenceError> {
    let (_, after) = message.split_once("STALE_TERM")?;
    let (_, after) = after.split_once("term ")?;
    let (given, after) = after.split_once(" < current ")?;
    let digits = after.len() - after.trim_start_matches(|it: char| it.is_ascii_digit()).len();
    let term = |text: &str| Term::new(text.parse().ok()?).filter(|term| *term != Term::NONE);
    let (given, current) = (term(given)?, term(&after[..digits])?);
    (given < current).then_some(FenceError::Stale { given, current })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(number: u64) -> Term {
        Term::new(number).unwrap()
    }

    #[test]
    fn a_refusal_is_read_back_from_what_a_driver_says() {
        let told = FenceError::Stale { given: term(100), current: term(101) };
        for message in [
            "STALE_TERM: term 100 < current 101",
            "db error: ERROR: STALE_TERM: term 100 < current 101\nDETAIL: resource public.orders",
            "An error was signalled by the server: STALE_TERM: term 100 < current 101 script: 4f",
        ] {
            assert_eq!(stale_in(message), Some(told), "{message}");
        }
        for message in [
            "",
            "STALE_TERM",
            "term 100 < current 101",
            "STALE_TERM: term 101 < current 100",
            "STALE_TERM: term 100 < current ",
            "STALE_TERM: term -1 < current 5",
            "STALE_TERM: term 0 < current 5",
            "STALE_TERM: term 1 < current 99999999999999999999",
        ] {
            assert_eq!(stale_in(message), None, "{message}");
        }
    }

    #[test]
    fn an_error_says_what_is_known() {
        let refused = WriteError::Refused(FenceError::Stale { given: term(1), current: term(2) });
        assert_eq!(refused.to_string(), "STALE_TERM: term 1 < current 2");
        assert!(WriteError::uncertain("gone").to_string().starts_with("it may have been"));
        assert!(WriteError::failed("gone").to_string().starts_with("nothing was written"));
    }
}
