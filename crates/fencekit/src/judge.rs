//! The judge: whether what clients saw of one resource can have come about behind a fence (S3).
//!
//! Every moment is a number in the order of the run. A write has *left* when its pause was over and has
//! *ended* when its outcome was known; it took effect in between, if at all. So of two writes of which one
//! ended before the other left, the order in the store is known, and whatever overlaps may have come in
//! either order, as long as reads agree. Its term may have been *shown* before: a request that rests between
//! its head and its body has told it, and a fence may raise its mark by that.

use std::fmt;

/// What came of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    Accepted,
    /// With the numbers that were told.
    Refused {
        given: u64,
        current: u64,
    },
    Uncertain,
    /// Nothing was written, so it is said.
    Failed,
}

/// One write.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) term: u64,
    pub(super) value: String,
    /// When the target may have learnt of the term: not after it left.
    pub(super) shown_at: u64,
    pub(super) left_at: u64,
    pub(super) ended_at: u64,
    pub(super) outcome: WriteOutcome,
}

/// One read.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) left_at: u64,
    pub(super) ended_at: u64,
    pub(super) value: Option<String>,
}

/// Everything that was seen of one resource.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) writes: Vec<Done>,
    pub(super) looks: Vec<Look>,
}

/// What must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceFault {
    pub resource: String,
    pub kind: FaultKind,
}

/// What must not be, with the terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A write was accepted although a higher term had been.
    StaleAccepted {
        /// The term of the write.
        term: u64,
        /// The term that had been accepted before it left.
        after: u64,
    },
    /// A read showed a value of a lower term after a higher one had been accepted or read.
    StaleRead {
        /// The term of what was read.
        term: u64,
        /// The term that had been accepted or read before.
        after: u64,
    },
    /// A read showed what a write had left that was not made, so it was said.
    RefusedButWritten { term: u64 },
    /// A read showed nothing although a write had been accepted.
    Vanished { after: u64 },
    /// A read showed what nobody had written.
    Unknown {
        /// What it was.
        value: String,
    },
    /// A write was refused although no higher term had tried to write, or with numbers that cannot be.
    WronglyRefused {
        term: u64,
        /// The term that was told as given.
        given: u64,
        /// The term that was told as current.
        current: u64,
    },
}

impl fmt::Display for FenceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.resource)?;
        match &self.kind {
            FaultKind::StaleAccepted { term, after } => {
                write!(f, "a write under term {term} was accepted after one under term {after}")
            }
            FaultKind::StaleRead { term, after } => {
                write!(f, "the value of term {term} stands there after one of term {after}")
            }
            FaultKind::RefusedButWritten { term } => {
                write!(f, "a write under term {term} was refused, and stands there")
            }
            FaultKind::Vanished { after } => {
                write!(f, "nothing stands there after a write under term {after}")
            }
            FaultKind::Unknown { value } => write!(f, "nobody wrote {value:?}, which stands there"),
            FaultKind::WronglyRefused { term, given, current } => write!(
                f,
                "a write under term {term} was refused (\"term {given} < current {current}\") though no \
                 higher term had come"
            ),
        }
    }
}

impl FaultKind {
    /// The word for programs.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::StaleAccepted { .. } => "STALE_ACCEPTED",
            Self::StaleRead { .. } => "STALE_READ",
            Self::RefusedButWritten { .. } => "REFUSED_BUT_WRITTEN",
            Self::Vanished { .. } => "VANISHED",
            Self::Unknown { .. } => "UNKNOWN_VALUE",
            Self::WronglyRefused { .. } => "WRONGLY_REFUSED",
        }
    }

    /// Whether it is a stale write: what a fence is there to prevent.
    #[must_use]
    pub const fn is_stale(&self) -> bool {
        matches!(self, Self::StaleAccepted { .. } | Self::StaleRead { .. })
    }
}

/// Everything that is wrong with a history, each write and each read told at most once.
pub(super) fn judge(history: &History) -> Vec<FaultKind> {
    let writes = history.writes.iter().filter_map(|write| judge_write(history, write));
    let looks = history.looks.iter().filter_map(|look| judge_look(history, look));
    writes.chain(looks).collect()
}

/// The highest term accepted before this moment.
fn accepted_before(history: &History, moment: u64) -> Option<u64> {
    let accepted = history.writes.iter().filter(|write| write.outcome == WriteOutcome::Accepted);
    accepted.filter(|write| write.ended_at < moment).map(|write| write.term).max()
}

fn judge_write(history: &History, write: &Done) -> Option<FaultKind> {
    let term = write.term;
    match write.outcome {
        WriteOutcome::Accepted => accepted_before(history, write.left_at)
            .filter(|after| *after > term)
            .map(|after| FaultKind::StaleAccepted { term, after }),
        WriteOutcome::Refused { given, current } => {
            let has_come = history
                .writes
                .iter()
                .any(|other| other.term > term && other.shown_at < write.ended_at);
            let is_right = has_come && given == term && current > term;
            (!is_right).then_some(FaultKind::WronglyRefused { term, given, current })
        }
        WriteOutcome::Uncertain | WriteOutcome::Failed => None,
    }
}

fn judge_look(history: &History, look: &Look) -> Option<FaultKind> {
    let accepted = accepted_before(history, look.left_at);
    let Some(value) = &look.value else {
        return accepted.map(|after| FaultKind::Vanished { after });
    };
    let Some(write) = history.writes.iter().find(|write| write.value == *value) else {
        return Some(FaultKind::Unknown { value: value.clone() });
    };
    let term = write.term;
    match write.outcome {
        WriteOutcome::Accepted | WriteOutcome::Uncertain => {}
        WriteOutcome::Refused { .. } | WriteOutcome::Failed => {
            return Some(FaultKind::RefusedButWritten { term });
        }
    }
    // What was read before was in the store before.
    let read = history
        .looks
        .iter()
        .filter(|other| other.ended_at < look.left_at)
        .filter_map(|other| other.value.as_ref())
        .filter_map(|value| history.writes.iter().find(|write| write.value == *value))
        .map(|write| write.term)
        .max();
    let after = accepted.max(read)?;
    (after > term).then_some(FaultKind::StaleRead { term, after })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(term: u64, left_at: u64, ended_at: u64, outcome: WriteOutcome) -> Done {
        let value = format!("{term} at {left_at}");
        Done { term, value, shown_at: left_at, left_at, ended_at, outcome }
    }

    fn look(left_at: u64, value: Option<&str>) -> Look {
        Look { left_at, ended_at: left_at + 1, value: value.map(str::to_owned) }
    }

    fn refused(given: u64, current: u64) -> WriteOutcome {
        WriteOutcome::Refused { given, current }
    }

    fn judged(writes: Vec<Done>, looks: Vec<Look>) -> Vec<FaultKind> {
        judge(&History { writes, looks })
    }

    #[test]
    fn an_honest_history_has_no_fault() {
        let writes = vec![
            write(1, 1, 2, WriteOutcome::Accepted),
            write(2, 3, 6, WriteOutcome::Accepted),
            // Overlaps the one before: it may have come first.
            write(1, 4, 5, WriteOutcome::Accepted),
            write(1, 9, 10, refused(1, 2)),
            write(2, 11, 12, WriteOutcome::Uncertain),
        ];
        let looks = vec![look(7, Some("2 at 3")), look(13, Some("2 at 11"))];
        assert_eq!(judged(writes, looks), []);
    }

    #[test]
    fn a_stale_write_is_seen_when_it_is_accepted() {
        let writes =
            vec![write(2, 1, 2, WriteOutcome::Accepted), write(1, 3, 4, WriteOutcome::Accepted)];
        assert_eq!(judged(writes, vec![]), [FaultKind::StaleAccepted { term: 1, after: 2 }]);
    }

    #[test]
    fn a_stale_write_that_raced_is_seen_by_what_it_left_behind() {
        let writes =
            vec![write(2, 1, 4, WriteOutcome::Accepted), write(1, 2, 3, WriteOutcome::Accepted)];
        let fault = FaultKind::StaleRead { term: 1, after: 2 };
        assert_eq!(judged(writes, vec![look(5, Some("1 at 2"))]), [fault]);
    }

    #[test]
    fn what_was_read_does_not_go_back() {
        let writes =
            vec![write(1, 1, 2, WriteOutcome::Accepted), write(2, 3, 9, WriteOutcome::Uncertain)];
        let looks = vec![look(4, Some("2 at 3")), look(10, Some("1 at 1"))];
        assert_eq!(judged(writes, looks), [FaultKind::StaleRead { term: 1, after: 2 }]);
    }

    #[test]
    fn a_refusal_must_be_true_in_every_way() {
        let accepted = write(2, 1, 2, WriteOutcome::Accepted);
        let stands = vec![accepted.clone(), write(1, 3, 4, refused(1, 2))];
        assert_eq!(
            judged(stands, vec![look(5, Some("1 at 3"))]),
            [FaultKind::RefusedButWritten { term: 1 }]
        );
        for (outcome, given, current) in [(refused(2, 3), 2, 3), (refused(2, 2), 2, 2)] {
            let wrong = FaultKind::WronglyRefused { term: 2, given, current };
            assert_eq!(judged(vec![accepted.clone(), write(2, 3, 4, outcome)], vec![]), [wrong]);
        }
        let wrong = FaultKind::WronglyRefused { term: 1, given: 5, current: 6 };
        assert_eq!(judged(vec![accepted, write(1, 3, 4, refused(5, 6))], vec![]), [wrong]);
    }

    #[test]
    fn a_term_that_was_shown_before_its_write_left_may_refuse_others() {
        let refused = write(1, 3, 4, refused(1, 2));
        let higher = |shown_at| Done { shown_at, ..write(2, 7, 8, WriteOutcome::Accepted) };
        assert_eq!(judged(vec![refused.clone(), higher(2)], vec![]), []);
        let wrong = FaultKind::WronglyRefused { term: 1, given: 1, current: 2 };
        assert_eq!(judged(vec![refused, higher(7)], vec![]), [wrong]);
        // It raises a mark and is no write: whoever was let in before it may still land.
        let landed = vec![write(1, 3, 4, WriteOutcome::Accepted), higher(2)];
        assert_eq!(judged(landed, vec![look(5, Some("1 at 3"))]), []);
    }

    #[test]
    fn what_vanished_or_came_from_nowhere_is_told() {
        let accepted = || vec![write(2, 1, 2, WriteOutcome::Accepted)];
        assert_eq!(judged(accepted(), vec![look(3, None)]), [FaultKind::Vanished { after: 2 }]);
        let unknown = FaultKind::Unknown { value: "x".into() };
        assert_eq!(judged(accepted(), vec![look(3, Some("x"))]), [unknown]);
        assert_eq!(judged(vec![], vec![look(3, None)]), []);
    }
}
