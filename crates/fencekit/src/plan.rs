//! What is going to happen in a trial: decided by a seed, before anything happens.

use std::time::Duration;

/// Trials that share one resource, one after the other.
pub(super) const TRIALS_PER_RESOURCE: u64 = 10;

/// Writes of one leader.
const WRITES_MAX: u64 = 3;
/// The longest rest that does not wait for a successor.
const REST_US_MAX: u64 = 2_000;

/// Numbers by a seed (splitmix64). Not secret, and the same everywhere.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// One trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trial {
    /// In the order of their terms, each the successor of the one before.
    pub(super) leaders: Vec<Leader>,
    /// Somebody who was deposed before this trial began, with its term.
    pub(super) straggler: Option<Leader>,
}

/// One leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leader {
    pub(super) term: u64,
    /// It begins when so many writes of the one before have ended, or that one has stopped.
    pub(super) begins_after: usize,
    pub(super) rests: Vec<PlannedRest>,
    /// Whether it goes on writing after a refusal.
    pub(super) is_stubborn: bool,
    /// Whether it looks at the resource after each write.
    pub(super) looks: bool,
}

/// A rest between check and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlannedRest {
    None,
    For(Duration),
    /// Until a write of the successor has ended.
    UntilSucceeded,
}

impl Leader {
    fn new(dice: &mut Dice, term: u64) -> Self {
        let writes = 1 + dice.below(WRITES_MAX);
        let rests = (0..writes)
            .map(|_| match dice.below(3) {
                0 => PlannedRest::None,
                _ => PlannedRest::For(Duration::from_micros(dice.below(REST_US_MAX))),
            })
            .collect();
        let (is_stubborn, looks) = (dice.once_in(2), dice.once_in(2));
        Self { term, begins_after: 0, rests, is_stubborn, looks }
    }
}

/// The trials of one resource. `first_term` is that of its first leader.
pub(super) fn series(dice: &mut Dice, trials: u64, first_term: u64) -> Vec<Trial> {
    let mut incumbent = first_term;
    (0..trials)
        .map(|_| {
            let successors = 1 + u64::from(dice.once_in(4));
            let mut leaders: Vec<Leader> =
                (0..=successors).map(|ahead| Leader::new(dice, incumbent + ahead)).collect();
            for place in 1..leaders.len() {
                let before = &mut leaders[place - 1];
                let writes = before.rests.len() as u64;
                // One write of three leaders in four sleeps through the succession. The successor does not
                // wait for it, nor for anything behind it.
                let begins_after = if dice.once_in(4) {
                    dice.below(writes + 1)
                } else {
                    let sleeps = dice.below(writes);
                    before.rests[usize::try_from(sleeps).unwrap_or(0)] =
                        PlannedRest::UntilSucceeded;
                    dice.below(sleeps + 1)
                };
                leaders[place].begins_after = usize::try_from(begins_after).unwrap_or(0);
            }
            let straggler = (incumbent > first_term && dice.once_in(4)).then(|| {
                let term = first_term + dice.below(incumbent - first_term);
                Leader::new(dice, term)
            });
            incumbent += successors;
            Trial { leaders, straggler }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_plans_the_same_trials() {
        let plan = |seed| series(&mut Dice::new(seed), TRIALS_PER_RESOURCE, 1);
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    /// Nobody waits for a successor that waits for it.
    #[test]
    fn no_plan_waits_for_itself() {
        let mut sleepers = 0;
        let mut stragglers = 0;
        for seed in 0..2_000 {
            let mut incumbent = 5;
            for trial in series(&mut Dice::new(seed), TRIALS_PER_RESOURCE, incumbent) {
                assert_eq!(trial.leaders[0].term, incumbent);
                for pair in trial.leaders.windows(2) {
                    assert_eq!(pair[1].term, pair[0].term + 1);
                    let sleeps =
                        pair[0].rests.iter().position(|it| *it == PlannedRest::UntilSucceeded);
                    sleepers += usize::from(sleeps.is_some());
                    let limit = sleeps.unwrap_or(pair[0].rests.len());
                    assert!(pair[1].begins_after <= limit, "{pair:?}");
                }
                let last = trial.leaders.last().unwrap();
                assert!(!last.rests.contains(&PlannedRest::UntilSucceeded), "{last:?}");
                if let Some(straggler) = &trial.straggler {
                    stragglers += 1;
                    assert!(straggler.term < incumbent);
                    assert!(!straggler.rests.contains(&PlannedRest::UntilSucceeded));
                }
                incumbent = last.term;
            }
        }
        assert!(sleepers > 10_000 && stragglers > 1_000, "{sleepers} {stragglers}");
    }
}
