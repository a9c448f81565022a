//! Exit codes: what a script may conclude. They follow `sysexits.h` where it has a word for it.

use std::process::ExitCode;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It is done, or the answer is yes.
    Done,
    /// The answer is no.
    No,
    /// The command line is wrong.
    Usage,
    /// It was done again and came out otherwise.
    Differs,
    /// Nothing happened because nobody could be asked.
    Unavailable,
    /// It may have happened.
    Uncertain,
    /// A file could not be read or written.
    Files,
    /// Nothing happened; the same may work later.
    TryAgain,
    /// The leadership is not ours, or not any more.
    Lost,
    /// A definite no to what was asked.
    Refused,
    /// The configuration is wrong.
    Config,
    /// Ended by a signal before it was done.
    Interrupted,
    /// As the program ended that `regent run` ran.
    Program(u8),
}

impl Exit {
    /// All that are the command's own, lowest first.
    pub(crate) const ALL: [Self; 12] = [
        Self::Done,
        Self::No,
        Self::Usage,
        Self::Differs,
        Self::Unavailable,
        Self::Uncertain,
        Self::Files,
        Self::TryAgain,
        Self::Lost,
        Self::Refused,
        Self::Config,
        Self::Interrupted,
    ];

    /// The number.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Usage => 64,
            Self::Differs => 65,
            Self::Unavailable => 69,
            Self::Uncertain => 70,
            Self::Files => 74,
            Self::TryAgain => 75,
            Self::Lost => 76,
            Self::Refused => 77,
            Self::Config => 78,
            Self::Interrupted => 130,
            Self::Program(code) => code,
        }
    }

    /// The word for programs, where the server gave none.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Done => "DONE",
            Self::No => "NO",
            Self::Usage => "USAGE",
            Self::Differs => "DIFFERS",
            Self::Unavailable => "UNAVAILABLE",
            Self::Uncertain => "UNCERTAIN",
            Self::Files => "FILES",
            Self::TryAgain => "TRY_AGAIN",
            Self::Lost => "LEADERSHIP_LOST",
            Self::Refused => "REFUSED",
            Self::Config => "BAD_CONFIGURATION",
            Self::Interrupted => "INTERRUPTED",
            Self::Program(_) => "PROGRAM_ENDED",
        }
    }

    /// What a script may conclude.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done, or yes",
            Self::No => "no, as an answer: the campaign was lost, or nobody leads",
            Self::Usage => "the command line is wrong",
            Self::Differs => "what was recorded came out otherwise when it was acted again",
            Self::Unavailable => "the server or its store is unavailable; nothing happened",
            Self::Uncertain => {
                "the outcome is unknown: it may have happened, look before you decide anything"
            }
            Self::Files => "a file could not be read or written",
            Self::TryAgain => "nothing happened; try again a little later",
            Self::Lost => "the leadership is not yours, or not any more: stop at once",
            Self::Refused => "refused: a definite no, nothing happened",
            Self::Config => "the configuration is wrong",
            Self::Interrupted => "interrupted by a signal before it was done",
            Self::Program(_) => "as the program ended that was run",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}

/// The table, for `regent help exit-codes`.
pub(crate) fn table() -> String {
    Exit::ALL.iter().map(|exit| format!("{:>5}  {}\n", exit.number(), exit.meaning())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_ends_share_a_number_or_a_word() {
        for (place, exit) in Exit::ALL.iter().enumerate() {
            for other in &Exit::ALL[place + 1..] {
                assert!(exit.number() < other.number(), "{exit:?} {other:?}");
                assert_ne!(exit.word(), other.word());
            }
        }
    }

    #[test]
    fn the_manual_lists_every_code_with_its_meaning() {
        let manual = include_str!("../../../docs/command.md");
        for exit in Exit::ALL {
            let row = format!("| {} | {} |", exit.number(), exit.meaning());
            assert!(manual.contains(&row), "docs/command.md lacks: {row}");
        }
    }
}
