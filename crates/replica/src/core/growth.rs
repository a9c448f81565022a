//! How many bytes the state will grow by what was proposed and is not applied yet, in all and by each principal.
//!
//! The budget of the state is asked before a command is proposed, against the state that is applied. Without these
//! sums, everything that fits into the log at once would pass before the first of it counts.

use std::collections::{BTreeMap, VecDeque};

use regent_election::access::Principal;
use regent_election::{Command, Refusal, RequestId, StateGrowth};

use super::Core;

/// What some proposals add.
#[derive(Debug, Default)]
pub(super) struct Added {
    bytes: u64,
    /// By the principals whose shares grow.
    by: BTreeMap<Principal, u64>,
}

impl Added {
    /// One more proposal was taken.
    pub(super) fn note(&mut self, command: &Command, growth: StateGrowth) {
        self.bytes += growth.state;
        if let Some(who) = command.who().filter(|_| growth.share > 0) {
            *self.by.entry(who.clone()).or_default() += growth.share;
        }
    }

    /// What counts against a command of this caller.
    fn against(&self, who: Option<&Principal>) -> StateGrowth {
        let share = who.and_then(|who| self.by.get(who)).copied().unwrap_or_default();
        StateGrowth { state: self.bytes, share }
    }
}

/// What the Raft leader has appended and not applied.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Index of the last entry of a batch, and what the batch adds; the oldest first.
    batches: VecDeque<(u64, Added)>,
    sum: Added,
}

impl Growth {
    /// A batch was appended up to this index.
    pub(super) fn appended(&mut self, index: u64, added: Added) {
        if added.bytes == 0 && added.by.is_empty() {
            return;
        }
        self.sum.bytes += added.bytes;
        for (who, bytes) in &added.by {
            *self.sum.by.entry(who.clone()).or_default() += bytes;
        }
        self.batches.push_back((index, added));
    }

    /// What is still to come after this index was applied.
    pub(super) fn after(&mut self, applied: u64) -> &Added {
        while let Some((_, added)) = self.batches.pop_front_if(|(index, _)| *index <= applied) {
            self.sum.bytes -= added.bytes;
            for (who, bytes) in added.by {
                if let Some(sum) = self.sum.by.get_mut(&who) {
                    *sum -= bytes;
                    if *sum == 0 {
                        self.sum.by.remove(&who);
                    }
                }
            }
        }
        &self.sum
    }

    /// Nothing is known of what was appended: another replica leads.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl Core {
    /// Whether the budget has room for a command beside a batch that is about to be appended; and how much it may
    /// add.
    pub(super) fn check_budget(
        &mut self,
        command: &Command,
        request: Option<&RequestId>,
        batch: &Added,
    ) -> Result<StateGrowth, Refusal> {
        let who = command.who();
        let (appended, batch) = (self.growth.after(self.applied).against(who), batch.against(who));
        let pending = StateGrowth {
            state: appended.state + batch.state,
            share: appended.share + batch.share,
        };
        self.ledger.check_budget(command, request, pending)
    }
}

#[cfg(test)]
mod tests {
    use regent_election::{Node, SessionId};

    use super::*;

    fn of(name: &str) -> Command {
        let (session, node) = (SessionId::new(1).unwrap(), Node::new("a").unwrap());
        let open = Command::Open { session, node, ttl_ms: 10_000 };
        open.on_behalf_of(name.parse().unwrap(), None)
    }

    fn added(parts: &[(&str, u64)]) -> Added {
        let mut added = Added::default();
        for (name, bytes) in parts {
            added.note(&of(name), StateGrowth { state: *bytes, share: *bytes });
        }
        added
    }

    #[test]
    fn what_is_applied_counts_no_longer() {
        let (alice, bob) = ("user:alice", "user:bob");
        let mut growth = Growth::default();
        growth.appended(4, added(&[(alice, 60), (bob, 30), (alice, 10)]));
        growth.appended(5, added(&[]));
        growth.appended(9, added(&[(bob, 10)]));
        let mut left = |applied, name| growth.after(applied).against(of(name).who());
        assert_eq!(left(3, alice), StateGrowth { state: 110, share: 70 });
        assert_eq!(left(3, bob), StateGrowth { state: 110, share: 40 });
        assert_eq!(left(4, alice), StateGrowth { state: 10, share: 0 });
        assert_eq!(left(4, bob), StateGrowth { state: 10, share: 10 });
        assert_eq!(left(9, bob), StateGrowth::default());
        assert!(growth.sum.by.is_empty(), "nobody is remembered");
        growth.appended(12, added(&[(alice, 7)]));
        assert_eq!(growth.after(9).against(None), StateGrowth { state: 7, share: 0 });
        growth.forget();
        assert_eq!(growth.after(0).against(of(alice).who()), StateGrowth::default());
    }

    /// A policy that takes the place of another's of the same weight adds nothing to the state, and all of it to a share.
    #[test]
    fn what_only_changes_hands_counts_until_it_is_applied() {
        let mut growth = Growth::default();
        let mut batch = Added::default();
        batch.note(&of("user:alice"), StateGrowth { state: 0, share: 50 });
        growth.appended(4, batch);
        let against =
            |growth: &mut Growth, applied| growth.after(applied).against(of("user:alice").who());
        assert_eq!(against(&mut growth, 3), StateGrowth { state: 0, share: 50 });
        assert_eq!(against(&mut growth, 4), StateGrowth::default());
    }
}
