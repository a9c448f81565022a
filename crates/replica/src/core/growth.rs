//! How many bytes the state will grow by what was proposed and is not applied yet.
//!
//! The budget of the state is asked before a command is proposed, against the state that is applied. Without this
//! sum, everything that fits into the log at once would pass before the first of it counts.

use std::collections::VecDeque;

use regent_election::{Command, Refusal, RequestId};

use super::Core;

/// What the Raft leader has appended and not applied.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Index of the last entry of a batch, and what the batch adds; the oldest first.
    batches: VecDeque<(u64, u64)>,
    sum: u64,
}

impl Growth {
    /// A batch was appended up to this index.
    pub(super) fn appended(&mut self, index: u64, bytes: u64) {
        if bytes > 0 {
            self.batches.push_back((index, bytes));
            self.sum += bytes;
        }
    }

    /// What is still to come after this index was applied.
    pub(super) fn after(&mut self, applied: u64) -> u64 {
        while let Some((_, bytes)) = self.batches.pop_front_if(|(index, _)| *index <= applied) {
            self.sum -= bytes;
        }
        self.sum
    }

    /// Nothing is known of what was appended: another replica leads.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl Core {
    /// Whether the budget has room for a command beside `batch` bytes that are about to be appended; and how
    /// many more it may add.
    pub(super) fn check_budget(
        &mut self,
        command: &Command,
        request: Option<&RequestId>,
        batch: u64,
    ) -> Result<u64, Refusal> {
        let pending = self.growth.after(self.applied) + batch;
        self.ledger.check_budget(command, request, pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_applied_counts_no_longer() {
        let mut growth = Growth::default();
        growth.appended(4, 100);
        growth.appended(5, 0);
        growth.appended(9, 10);
        assert_eq!(growth.after(3), 110);
        assert_eq!(growth.after(4), 10);
        assert_eq!(growth.after(9), 0);
        growth.appended(12, 7);
        growth.forget();
        assert_eq!(growth.after(0), 0);
    }
}
