//! Exit codes: what a script may conclude. They follow `sysexits.h` where it has a word for it.

use std::process::ExitCode;

macro_rules! exits {
    ($($(#[$doc:meta])+ $variant:ident = $number:literal, $word:literal, $meaning:literal;)+) => {
        /// How the command ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Exit {
            $($(#[$doc])+ $variant,)+
            /// As the program ended that `regent run` ran.
            Program(u8),
        }

        impl Exit {
            /// All that are the command's own, lowest first.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),+];

            /// The number.
            pub(crate) const fn number(self) -> u8 {
                match self {
                    $(Self::$variant => $number,)+
                    Self::Program(code) => code,
                }
            }

            /// The word for programs, where the server gave none.
            pub(crate) const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Program(_) => "PROGRAM_ENDED",
                }
            }

            /// What a script may conclude.
            pub(crate) const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)+
                    Self::Program(_) => "as the program ended that was run",
                }
            }
        }
    };
}

exits! {
    /// It is done, or the answer is yes.
    Done = 0, "DONE", "done, or yes";
    /// The answer is no.
    No = 1, "NO", "no, as an answer: the campaign was lost, or nobody leads";
    /// The command line is wrong.
    Usage = 64, "USAGE", "the command line is wrong";
    /// It was done again and came out otherwise.
    Differs = 65, "DIFFERS", "the replay diverged from the recording";
    /// An audit log was changed, or something is missing from it that it does not tell of.
    Tampered = 66, "TAMPERED", "the audit log was changed, or part of it is missing";
    /// Nothing happened because nobody could be asked.
    Unavailable = 69, "UNAVAILABLE", "the server or its store is unavailable; nothing happened";
    /// It may have happened.
    Uncertain = 70, "UNCERTAIN",
        "the outcome is unknown: it may have happened, look before you decide anything";
    /// A file could not be read or written.
    Files = 74, "FILES", "a file could not be read or written";
    /// Nothing happened; the same may work later.
    TryAgain = 75, "TRY_AGAIN", "nothing happened; try again a little later";
    /// The leadership is not ours, or not any more.
    Lost = 76, "LEADERSHIP_LOST", "the leadership is not yours, or not any more: stop at once";
    /// A definite no to what was asked.
    Refused = 77, "REFUSED", "refused: a definite no, nothing happened";
    /// The configuration is wrong.
    Config = 78, "BAD_CONFIGURATION", "the configuration is wrong";
    /// Ended by a signal before it was done.
    Interrupted = 130, "INTERRUPTED", "interrupted by a signal before it was done";
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
