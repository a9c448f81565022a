//! Deliberate mistakes, one for each rule whose absence the simulator must notice.
//!
//! Only in tests and with the feature `mutants`, which no binary that serves is built with. Otherwise the
//! question is a constant `false`, and the hooks are gone from the binary.

/// One deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// After a lost reply the nonce is not compared: the write counts as done.
    NonceIgnored,
    /// A session is taken for dead without having been watched for its ttl.
    StealsAtOnce,
    /// A session is expired in a group without its own entry having ended.
    ExpiresWithoutEnding,
    /// Whoever must stop is not told before its time is counted.
    NobodyIsTold,
    /// A conflict is taken for a success.
    ConflictIgnored,
    /// One who was not there once is taken for one who has ended. Not hunted: seeds meet it less than once in
    /// a thousand, and a directed test shows it.
    AbsenceRemembered,
}

impl Mutant {
    /// Those that seeds find soon.
    pub const ALL: [Self; 5] = [
        Self::NonceIgnored,
        Self::StealsAtOnce,
        Self::ExpiresWithoutEnding,
        Self::NobodyIsTold,
        Self::ConflictIgnored,
    ];

    /// The word by which a command line names it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NonceIgnored => "nonce-ignored",
            Self::StealsAtOnce => "steals-at-once",
            Self::ExpiresWithoutEnding => "expires-without-ending",
            Self::NobodyIsTold => "nobody-is-told",
            Self::ConflictIgnored => "conflict-ignored",
            Self::AbsenceRemembered => "absence-remembered",
        }
    }
}

#[cfg(not(any(test, feature = "mutants")))]
pub(super) const fn is(_mutant: Mutant) -> bool {
    false
}

#[cfg(any(test, feature = "mutants"))]
pub use planted::plant;

#[cfg(any(test, feature = "mutants"))]
pub(super) use planted::is;

#[cfg(any(test, feature = "mutants"))]
mod planted {
    use super::Mutant;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Whether this mistake is switched on for this thread.
    pub(in crate::lease) fn is(mutant: Mutant) -> bool {
        PLANTED.get() == Some(mutant)
    }

    /// Switches a mistake on for this thread, or all off.
    pub fn plant(mutant: Option<Mutant>) {
        PLANTED.set(mutant);
    }
}
