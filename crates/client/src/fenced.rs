//! Writes that carry the term they were allowed under.
//!
//! A lease keeps two timely leaders apart. A leader that was paused between its check and its write is
//! not timely, and no clock can stop it; the resource can, if every write brings its term. So that no
//! write can forget it, a resource takes a [`Fenced`] value, and only a [`Permit`] makes one:
//!
//! ```
//! use regent::{Fence, FenceError, Fenced, Permit};
//!
//! struct Ledger {
//!     fence: Fence,
//!     rows: Vec<String>,
//! }
//!
//! impl Ledger {
//!     /// Cannot be called without a term.
//!     fn append(&mut self, row: Fenced<String>) -> Result<(), FenceError> {
//!         self.fence.admit(row.term())?;
//!         self.rows.push(row.into_inner());
//!         Ok(())
//!     }
//! }
//!
//! fn post(ledger: &mut Ledger, permit: &Permit) -> Result<(), FenceError> {
//!     ledger.append(permit.fence("paid".to_owned()))
//! }
//! ```

use std::time::Duration;

use regent_election::{FenceError, Group, Term};

use crate::session::Session;
use crate::tenure::Hold;

/// A passed check: at that instant this process led, under this term.
///
/// While a permit lives, the term is not given up by dropping the leadership: whatever is written
/// under it is written by the leader. It extends nothing; how long the lease still ran at the check
/// is [`Permit::valid_for`].
#[derive(Debug)]
#[must_use = "a check that nobody acts on is no check"]
pub struct Permit {
    hold: Hold,
    valid_for: Duration,
}

impl Permit {
    pub(crate) const fn new(hold: Hold, valid_for: Duration) -> Self {
        Self { hold, valid_for }
    }

    /// The fencing token.
    #[must_use]
    pub fn term(&self) -> Term {
        self.hold.tenure().term
    }

    /// The group whose term it is.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.hold.tenure().group
    }

    /// How long the lease ran on at the check, if nothing is renewed.
    #[must_use]
    pub const fn valid_for(&self) -> Duration {
        self.valid_for
    }

    /// A resource refused a write under this permit. If it has admitted a higher term, the office is
    /// lost at once: no check passes any more, and [`lost`](crate::Leadership::lost) is ready. A refusal
    /// of any other kind says nothing about the office, and changes nothing.
    ///
    /// The adapters of [`fencing`](crate::fencing) call it by themselves.
    pub fn refused(&self, why: &FenceError) {
        self.hold.refused(why);
    }

    pub(crate) fn session(&self) -> &Session {
        self.hold.session()
    }

    /// `value`, to be written under this term.
    pub fn fence<T>(&self, value: T) -> Fenced<T> {
        Fenced { term: self.term(), value }
    }
}

/// A value together with the term under which it may be written.
///
/// There is no way to make one without a [`Permit`]: a function that takes it cannot be called by
/// somebody who has not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a fenced value is to be written"]
pub struct Fenced<T> {
    term: Term,
    value: T,
}

impl<T> Fenced<T> {
    /// The fencing token: to be compared where the write lands.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
    }

    /// The value.
    #[must_use]
    pub const fn get(&self) -> &T {
        &self.value
    }

    /// The value alone.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value
    }

    /// The same term with another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Fenced<U> {
        Fenced { term: self.term, value: change(self.value) }
    }
}
