//! Deliberate mistakes, one for each rule whose absence the simulation must notice.
//!
//! Outside of tests [`is`] is a constant `false` and the hooks are gone from the binary.

/// One deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    /// After a lost reply the nonce is not compared: the write counts as done.
    NonceIgnored,
    /// A session is taken for dead without having been watched for its ttl.
    StealsAtOnce,
    /// A session is expired in a group without its own entry having ended.
    ExpiresWithoutEnding,
    /// Whoever must stop is not told before its time is counted.
    NobodyIsTold,
    /// The holder counts its lease from the answer instead of the request (in the simulation).
    #[cfg(test)]
    CountsFromAnswer,
    /// A conflict is taken for a success.
    ConflictIgnored,
}

#[cfg(not(test))]
pub(super) const fn is(_mutant: Mutant) -> bool {
    false
}

#[cfg(test)]
pub(super) use planted::{is, plant};

#[cfg(test)]
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
    pub(in crate::lease) fn plant(mutant: Option<Mutant>) {
        PLANTED.set(mutant);
    }
}
