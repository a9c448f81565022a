//! What the log is told of peers that are refused: a line now and then, so that none of them can fill it.

use regent_election::Moment;

use crate::limits::REFUSALS_TOLD_EVERY;

/// Refusals since the log was last told of one.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    told_at: Option<Moment>,
    untold: u64,
}

impl Refusals {
    /// Counts one. If the log is to be told of it: how many others it was not told of.
    pub(super) fn note(&mut self, now: Moment) -> Option<u64> {
        if self.told_at.is_some_and(|at| now.since(at) < REFUSALS_TOLD_EVERY) {
            self.untold += 1;
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flood_of_refusals_is_told_in_few_lines_that_count_the_others() {
        let mut refusals = Refusals::default();
        let at = |ms| Moment::ZERO + Duration::from_millis(ms);
        assert_eq!(refusals.note(at(0)), Some(0));
        assert!((1..1_000).all(|ms| refusals.note(at(ms)).is_none()));
        assert_eq!(refusals.note(at(10_000)), Some(999));
        assert_eq!(refusals.note(at(20_000)), Some(0));
    }
}
