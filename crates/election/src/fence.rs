//! The fence: the highest term a resource has admitted, and the refusal of lower ones.
//!
//! A lease keeps two *honest and timely* leaders apart. A leader that was paused between its check
//! and its write is neither, and no clock can stop it; the resource can, by remembering one number.
//!
//! The mark must be kept where the write lands, and raised in the same atomic step as the write.
//! That, and durability, is left to the resource: this type is the rule alone. What stands in front of a
//! resource and cannot compare in the step that writes has a [`doorkeeper`] instead.

pub mod doorkeeper;

use crate::name::{Home, Resource};
use crate::term::{Revision, Term};

/// The highest term admitted so far. A fresh fence admits every term that was ever granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    mark: Term,
}

/// Why a fence does not admit a term. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FenceError {
    /// Somebody with a higher term was here: the caller has lost its office.
    #[error("term {given} < current {current}")]
    Stale {
        /// The term of the write.
        given: Term,
        /// The highest term admitted.
        current: Term,
    },
    /// Term 0 is held by nobody.
    #[error("term 0 was never granted; send the term you were elected with")]
    NeverGranted,
}

impl FenceError {
    /// The stable code for wires.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Stale { .. } => "STALE_TERM",
            Self::NeverGranted => "BAD_REQUEST",
        }
    }
}

impl Fence {
    /// A fence that has admitted `mark` before, as read back from the resource.
    #[must_use]
    pub const fn at(mark: Term) -> Self {
        Self { mark }
    }

    /// The highest term admitted.
    #[must_use]
    pub const fn mark(self) -> Term {
        self.mark
    }

    /// Admits a term that is not below the mark, and raises the mark to it.
    ///
    /// Equal terms are admitted: one leader writes more than once. On refusal the mark stays.
    pub fn admit(&mut self, given: Term) -> Result<(), FenceError> {
        if given == Term::NONE {
            return Err(FenceError::NeverGranted);
        }
        if given < self.mark {
            return Err(FenceError::Stale { given, current: self.mark });
        }
        self.mark = given;
        Ok(())
    }
}

/// One page of a group's fences in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencesPage {
    pub fences: Vec<FenceView>,
    /// No resource of this group admits a term below this one, whether it has a fence or not.
    pub floor: Term,
    /// Ask for the page after this name, if there is more.
    pub next: Option<Resource>,
    /// The last term that the group has granted.
    pub term: Term,
    /// The store that the group has moved to: its fences are there.
    pub moved_to: Option<Home>,
    /// Whether the group lives here. If not, what stands here is the past and judges nothing.
    pub is_home: bool,
    /// The revision at which this was true.
    pub revision: Revision,
}

/// One fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceView {
    /// What it protects.
    pub resource: Resource,
    /// The highest term admitted there.
    pub mark: Term,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn term(number: u64) -> Term {
        Term::new(number).unwrap()
    }

    /// S3: a fenced store never accepts a lower token after a higher one.
    #[test]
    fn a_stale_term_is_refused_with_both_numbers() {
        let mut fence = Fence::default();
        fence.admit(term(101)).unwrap();
        let refused = fence.admit(term(100)).unwrap_err();
        assert_eq!(refused.to_string(), "term 100 < current 101");
        assert_eq!(refused.code(), "STALE_TERM");
        assert_eq!(fence.mark(), term(101), "a refusal moves nothing");
    }

    #[test]
    fn one_leader_writes_more_than_once() {
        let mut fence = Fence::at(term(7));
        assert!(fence.admit(term(7)).is_ok());
        assert!(fence.admit(term(7)).is_ok());
    }

    #[test]
    fn a_term_that_nobody_holds_is_refused() {
        assert_eq!(Fence::default().admit(Term::NONE), Err(FenceError::NeverGranted));
    }

    proptest! {
        /// S3: per resource, accepted tokens in store order are non-decreasing, and nothing at or
        /// above the mark is turned away.
        #[test]
        fn admitted_terms_never_fall(numbers in prop::collection::vec(1_u64..50, 0..100)) {
            let mut fence = Fence::default();
            let mut highest = 0;
            for number in numbers {
                prop_assert_eq!(fence.admit(term(number)).is_ok(), number >= highest);
                highest = highest.max(number);
                prop_assert_eq!(fence.mark(), term(highest));
            }
        }
    }
}
