//! A leader of a trial: a term that no election gave.

use std::sync::atomic::{AtomicBool, Ordering};

use regent_election::{FenceError, Term};

use super::{Proof, sealed};

/// A leader of a trial: a term that no election gave.
///
/// For tests of fences and nothing else. Whoever writes to real storage with it writes without an office.
#[derive(Debug)]
pub struct Pretender {
    term: Term,
    is_refused: AtomicBool,
}

impl Pretender {
    /// Somebody with this term.
    #[must_use]
    pub const fn new(term: Term) -> Self {
        Self { term, is_refused: AtomicBool::new(false) }
    }

    /// Whether it was told that a higher term was admitted.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }
}

impl sealed::Sealed for Pretender {}

impl Proof for Pretender {
    fn term(&self) -> Term {
        self.term
    }

    fn refused(&self, why: &FenceError) {
        match why {
            FenceError::Stale { .. } => self.is_refused.store(true, Ordering::Relaxed),
            FenceError::NeverGranted => {}
        }
    }
}
