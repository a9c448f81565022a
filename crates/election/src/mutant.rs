//! Deliberate mistakes, one for each rule whose absence the simulator must notice.
//!
//! A hook stands where the rule stands and reads [`is`]. Without the feature `mutants` that is a
//! constant `false` and the hook is gone from the binary; with it, one mistake at a time is switched
//! on for the calling thread. A rule whose mutant nobody finds is a rule that nobody tests.

use std::fmt;
use std::str::FromStr;

/// One deliberate mistake. The numbers are those of the rules they break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// 2: the margin is ρ instead of 2ρ/(1+ρ).
    MarginOnce,
    /// 3: validity counts from the answer, not from the send.
    CountFromAnswer,
    /// 3: being elected adds validity.
    ElectionExtends,
    /// 4: a lost term is not given back to the store, whoever asks for it.
    LostNotDisowned,
    /// 5: the arrival of a heartbeat does not move the deadline.
    ArrivalExtendsNothing,
    /// 6: a heartbeat is answered without a quorum round.
    HeartbeatWithoutRound,
    /// 6: what waits for a round is answered before its index is applied.
    AnswerBeforeApply,
    /// 6: a Raft leader that begins to judge gives nobody a full ttl.
    NoTtlAfterPromotion,
    /// 8: a loop that slept judges as if it had not.
    NoGapRule,
    /// 9: every round of reads has the same context.
    ContextReused,
    /// A linearizable read is served from whatever this replica knows.
    ReadWithoutRound,
    /// A heartbeat that meets a proposed expiry is acknowledged.
    ExpiringRevived,
    /// 11: a gentle end takes the office at once.
    EndingSkipped,
    /// 11: a heartbeat's news does not hold the extension back.
    EpochIgnored,
    /// 12: a promoted session acts before its acceptance is acknowledged.
    ActsUnaccepted,
    /// 12: standbys that cannot be heard are promoted like others.
    SilentPromoted,
    /// 19: a repeated request runs again.
    RepeatsRunAgain,
    /// 22: a deleted group starts again from its first term.
    TermsRestart,
    /// A proposal that the network delivered twice is applied twice.
    DuplicatesApplied,
    /// A replica that lost contact campaigns without asking first.
    NoPreVote,
    /// A Raft leader without a quorum goes on leading.
    NoCheckQuorum,
    /// 23: a restored store goes on with the terms of its backup.
    RestoreKeepsTerms,
    /// 23: a restored store grants at once.
    RestoreGrantsAtOnce,
    /// 35: voters have unequal priorities.
    UnequalPriorities,
    /// A witness keeps entries without what is in them.
    StrippedWitness,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 25] = [
        Self::MarginOnce,
        Self::CountFromAnswer,
        Self::ElectionExtends,
        Self::LostNotDisowned,
        Self::ArrivalExtendsNothing,
        Self::HeartbeatWithoutRound,
        Self::AnswerBeforeApply,
        Self::NoTtlAfterPromotion,
        Self::NoGapRule,
        Self::ContextReused,
        Self::ReadWithoutRound,
        Self::ExpiringRevived,
        Self::EndingSkipped,
        Self::EpochIgnored,
        Self::ActsUnaccepted,
        Self::SilentPromoted,
        Self::RepeatsRunAgain,
        Self::TermsRestart,
        Self::DuplicatesApplied,
        Self::NoPreVote,
        Self::NoCheckQuorum,
        Self::RestoreKeepsTerms,
        Self::RestoreGrantsAtOnce,
        Self::UnequalPriorities,
        Self::StrippedWitness,
    ];

    /// The word by which a command line names it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::MarginOnce => "margin-once",
            Self::CountFromAnswer => "count-from-answer",
            Self::ElectionExtends => "election-extends",
            Self::LostNotDisowned => "lost-not-disowned",
            Self::ArrivalExtendsNothing => "arrival-extends-nothing",
            Self::HeartbeatWithoutRound => "heartbeat-without-round",
            Self::AnswerBeforeApply => "answer-before-apply",
            Self::NoTtlAfterPromotion => "no-ttl-after-promotion",
            Self::NoGapRule => "no-gap-rule",
            Self::ContextReused => "context-reused",
            Self::ReadWithoutRound => "read-without-round",
            Self::ExpiringRevived => "expiring-revived",
            Self::EndingSkipped => "ending-skipped",
            Self::EpochIgnored => "epoch-ignored",
            Self::ActsUnaccepted => "acts-unaccepted",
            Self::SilentPromoted => "silent-promoted",
            Self::RepeatsRunAgain => "repeats-run-again",
            Self::TermsRestart => "terms-restart",
            Self::DuplicatesApplied => "duplicates-applied",
            Self::NoPreVote => "no-pre-vote",
            Self::NoCheckQuorum => "no-check-quorum",
            Self::RestoreKeepsTerms => "restore-keeps-terms",
            Self::RestoreGrantsAtOnce => "restore-grants-at-once",
            Self::UnequalPriorities => "unequal-priorities",
            Self::StrippedWitness => "stripped-witness",
        }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Mutant {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|mutant| mutant.word() == word).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|mutant| mutant.word()).collect();
            format!("there is no mutant {word}; there are {}", known.join(", "))
        })
    }
}

#[cfg(feature = "mutants")]
std::thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Switches one mistake on for this thread, or all of them off.
#[cfg(feature = "mutants")]
pub fn switch(mutant: Option<Mutant>) {
    ACTIVE.with(|active| active.set(mutant));
}

/// Whether this mistake is to be made.
#[cfg(feature = "mutants")]
#[must_use]
pub fn is(mutant: Mutant) -> bool {
    ACTIVE.with(|active| active.get() == Some(mutant))
}

/// Whether this mistake is to be made: never, in a binary that serves anybody.
#[cfg(not(feature = "mutants"))]
#[must_use]
pub const fn is(_mutant: Mutant) -> bool {
    false
}
