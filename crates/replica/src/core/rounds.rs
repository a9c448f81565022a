//! Rounds: by which a replica knows that what it answers is not older than the question.
//!
//! One round serves everything that waits when it begins. Its context is the replica, its run and a
//! counter, never used twice: a late confirmation of an old round must not confirm a later one. A
//! round that is not confirmed within an election time-out is begun again with a fresh context; what
//! has waited for two of them is answered `unavailable`. So is what was confirmed and then waited for
//! ten: a replica that knows how far it must be and does not get there must not keep its clients.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use regent_election::Moment;
use regent_election::mutant::{self, Mutant};

use crate::limits::{ROUNDS_INFLIGHT_MAX, WAITING_FOR_ROUND_MAX};
use crate::member::ReplicaId;

/// Somebody who waits for a round.
pub(super) trait Waits {
    /// The member that asks for a client of its own; none if the client is this replica's.
    fn member(&self) -> Option<ReplicaId>;
}

/// Rounds of one replica, each with those that wait for it.
#[derive(Debug)]
pub(super) struct Rounds<W> {
    /// The replica and its run, as every context opens: the Raft leader keeps the rounds of all replicas
    /// in one place, and an answer to one must never count for another's.
    name: [u8; 16],
    counter: u64,
    patience: Duration,
    next: Vec<(Moment, W)>,
    /// How many of those each other member asks for.
    next_of: BTreeMap<ReplicaId, usize>,
    inflight: VecDeque<Round<W>>,
    /// By the index they wait for. The moment is that of the confirmation.
    confirmed: VecDeque<(u64, Moment, Vec<W>)>,
    /// How many those are.
    confirmed_count: usize,
}

#[derive(Debug)]
struct Round<W> {
    number: u64,
    began_at: Moment,
    waiting: Vec<(Moment, W)>,
}

impl<W: Waits> Rounds<W> {
    pub(super) fn new(replica: u64, boot: u64, patience: Duration) -> Self {
        let mut name = [0; 16];
        name[..8].copy_from_slice(&replica.to_le_bytes());
        name[8..].copy_from_slice(&boot.to_le_bytes());
        Self {
            name,
            counter: 0,
            patience,
            next: Vec::new(),
            next_of: BTreeMap::new(),
            inflight: VecDeque::new(),
            confirmed: VecDeque::new(),
            confirmed_count: 0,
        }
    }

    /// Rounds are given this long from here on.
    pub(super) const fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Queues somebody for the next round, or gives it back if too many wait.
    ///
    /// Another member takes at most as many places as are free after it, so half of them if it alone asks: one that asks
    /// without end keeps neither this replica's clients nor those of the others from being answered.
    pub(super) fn queue(&mut self, now: Moment, waiter: W) -> Result<(), W> {
        let taken = self.next.len() + self.confirmed_count;
        let free = WAITING_FOR_ROUND_MAX.saturating_sub(taken);
        let own = waiter.member().map(|member| self.next_of.entry(member).or_default());
        if free == 0 || own.as_ref().is_some_and(|own| **own >= free) {
            return Err(waiter);
        }
        if let Some(own) = own {
            *own += 1;
        }
        self.next.push((now, waiter));
        Ok(())
    }

    fn count_members(&mut self) {
        self.next_of.clear();
        for member in self.next.iter().filter_map(|(_, waiter)| waiter.member()) {
            *self.next_of.entry(member).or_default() += 1;
        }
    }

    /// Whether a round should begin.
    pub(super) fn is_wanted(&self) -> bool {
        !self.next.is_empty() && self.inflight.len() < ROUNDS_INFLIGHT_MAX
    }

    /// How many are confirmed and wait for their index to be applied.
    pub(super) const fn confirmed(&self) -> usize {
        self.confirmed_count
    }

    /// The number of the last round begun.
    pub(super) const fn last_begun(&self) -> u64 {
        self.counter
    }

    /// Begins a round for all who wait, and gives its context.
    pub(super) fn begin(&mut self, now: Moment) -> Vec<u8> {
        self.counter += 1;
        let waiting = std::mem::take(&mut self.next);
        self.next_of.clear();
        self.inflight.push_back(Round { number: self.counter, began_at: now, waiting });
        if mutant::is(Mutant::ContextReused) {
            return b"the same context for every round".to_vec();
        }
        [self.name.as_slice(), &self.counter.to_le_bytes()].concat()
    }

    /// A round is confirmed at `index`: those who waited are answered once it is applied. Returns
    /// the round's number; none for a context of another run, or one that was given up.
    pub(super) fn confirm(&mut self, now: Moment, context: &[u8], index: u64) -> Option<u64> {
        let number = self.number_of(context)?;
        let at = self.inflight.iter().position(|round| round.number == number)?;
        let round = self.inflight.remove(at)?;
        let waiters: Vec<W> = round.waiting.into_iter().map(|(_, waiter)| waiter).collect();
        self.confirmed_count += waiters.len();
        self.confirmed.push_back((index, now, waiters));
        Some(number)
    }

    /// The number of the round that has this context, if it is of this run.
    fn number_of(&self, context: &[u8]) -> Option<u64> {
        if mutant::is(Mutant::ContextReused) {
            return self.inflight.front().map(|round| round.number);
        }
        let (name, counter) = context.split_at_checked(16)?;
        if name != self.name {
            return None;
        }
        Some(u64::from_le_bytes(counter.try_into().ok()?))
    }

    /// Takes out those of the round just confirmed that `pick` picks.
    pub(super) fn take_remote<T>(&mut self, pick: impl Fn(&W) -> Option<T>) -> Vec<T> {
        let Some((_, _, waiters)) = self.confirmed.back_mut() else { return Vec::new() };
        let picked: Vec<T> = waiters.iter().filter_map(&pick).collect();
        if !picked.is_empty() {
            waiters.retain(|waiter| pick(waiter).is_none());
            self.confirmed_count -= picked.len();
        }
        picked
    }

    /// Adds somebody whose round was confirmed elsewhere.
    pub(super) fn confirm_one(&mut self, now: Moment, index: u64, waiter: W) {
        self.confirmed_count += 1;
        self.confirmed.push_back((index, now, vec![waiter]));
    }

    /// Those whose index is applied.
    pub(super) fn settled(&mut self, applied: u64) -> Vec<W> {
        if self.confirmed.is_empty() {
            return Vec::new();
        }
        let mut settled = Vec::new();
        self.confirmed.retain_mut(|(index, _, waiters)| {
            let is_applied = *index <= applied || mutant::is(Mutant::AnswerBeforeApply);
            if is_applied {
                settled.append(waiters);
            }
            !is_applied
        });
        self.confirmed_count -= settled.len();
        settled
    }

    /// Begins late rounds again and returns those who have waited too long.
    pub(super) fn time_out(&mut self, now: Moment) -> Vec<W> {
        let before = self.next.len();
        while let Some(round) = self.inflight.front()
            && now.since(round.began_at) >= self.patience
        {
            if let Some(round) = self.inflight.pop_front() {
                self.next.splice(0..0, round.waiting);
            }
        }
        if self.next.len() != before {
            self.count_members();
        }
        let mut given_up = Vec::new();
        while let Some((_, at, _)) = self.confirmed.front()
            && now.since(*at) >= self.patience * 10
        {
            let late = self.confirmed.pop_front().map(|(.., waiters)| waiters).unwrap_or_default();
            self.confirmed_count -= late.len();
            given_up.extend(late);
        }
        let limit = self.patience * 2;
        let is_late = |asked_at: Moment| now.since(asked_at) >= limit;
        if !self.next.first().is_some_and(|(asked_at, _)| is_late(*asked_at)) {
            return given_up;
        }
        let (late, rest) = std::mem::take(&mut self.next)
            .into_iter()
            .partition(|(asked_at, _)| is_late(*asked_at));
        self.next = rest;
        self.count_members();
        let late: Vec<(Moment, W)> = late;
        given_up.extend(late.into_iter().map(|(_, waiter)| waiter));
        given_up
    }

    /// Gives up everything that is not confirmed.
    pub(super) fn give_up(&mut self) -> Vec<W> {
        let inflight = std::mem::take(&mut self.inflight);
        let next = std::mem::take(&mut self.next);
        self.next_of.clear();
        let waiting = inflight.into_iter().flat_map(|round| round.waiting);
        waiting.chain(next).map(|(_, waiter)| waiter).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Waits for &str {
        fn member(&self) -> Option<ReplicaId> {
            None
        }
    }

    /// A client of this member.
    impl Waits for u64 {
        fn member(&self) -> Option<ReplicaId> {
            ReplicaId::new(*self)
        }
    }

    fn at(ms: u64) -> Moment {
        Moment::from_millis(ms)
    }

    fn rounds() -> Rounds<&'static str> {
        Rounds::new(1, 9, Duration::from_millis(300))
    }

    #[test]
    fn one_round_serves_all_who_waited_when_it_began() {
        let mut rounds = rounds();
        rounds.queue(at(0), "a").unwrap();
        rounds.queue(at(0), "b").unwrap();
        let context = rounds.begin(at(1));
        rounds.queue(at(2), "late").unwrap();
        assert_eq!(rounds.confirm(at(9), &context, 5), Some(1));
        assert_eq!(rounds.settled(4), Vec::<&str>::new());
        assert_eq!(rounds.settled(5), vec!["a", "b"]);
        assert!(rounds.is_wanted(), "who came after the round began waits for the next");
    }

    #[test]
    fn a_context_confirms_once_and_only_in_its_own_run() {
        let mut rounds = rounds();
        rounds.queue(at(0), "a").unwrap();
        let context = rounds.begin(at(1));
        assert_eq!(rounds.confirm(at(9), &context, 5), Some(1));
        assert_eq!(rounds.confirm(at(9), &context, 5), None);
        let mut other = Rounds::new(1, 8, Duration::from_millis(300));
        other.queue(at(0), "x").unwrap();
        other.begin(at(1));
        assert_eq!(other.confirm(at(9), &context, 5), None);
        assert_eq!(other.confirm(at(9), b"short", 5), None);
    }

    #[test]
    fn two_replicas_in_their_first_run_never_share_a_context() {
        let patience = Duration::from_millis(300);
        let mut one = Rounds::<u64>::new(1, 1, patience);
        let mut other = Rounds::<u64>::new(2, 1, patience);
        assert_ne!(one.begin(at(1)), other.begin(at(1)));
    }

    #[test]
    fn a_late_round_is_begun_again_and_then_given_up() {
        let mut rounds = rounds();
        rounds.queue(at(0), "a").unwrap();
        let first = rounds.begin(at(0));
        assert!(rounds.time_out(at(299)).is_empty());
        assert!(rounds.time_out(at(300)).is_empty());
        assert!(rounds.is_wanted());
        let second = rounds.begin(at(300));
        assert_ne!(first, second);
        assert_eq!(rounds.confirm(at(9), &first, 5), None, "the old context is void");
        assert_eq!(rounds.time_out(at(600)), vec!["a"]);
    }

    #[test]
    fn a_member_that_asks_without_end_leaves_half_of_the_places_to_the_others() {
        let mut rounds = Rounds::<u64>::new(1, 9, Duration::from_millis(300));
        let half = WAITING_FOR_ROUND_MAX / 2;
        let mut taken = |member: u64| {
            (0..=WAITING_FOR_ROUND_MAX).take_while(|_| rounds.queue(at(0), member).is_ok()).count()
        };
        assert_eq!((taken(2), taken(3), taken(2)), (half, half / 2, 0));
        assert_eq!(taken(0), half / 2, "clients of this replica take what is left");
        assert_eq!(taken(3), 0);
        rounds.begin(at(1));
        assert_eq!(rounds.queue(at(1), 2), Ok(()), "the next round has room again");
        // A round that is late comes back, and counts as before.
        rounds.time_out(at(301));
        assert_eq!(rounds.queue(at(301), 2), Err(2));
        assert_eq!(rounds.queue(at(301), 0), Err(0));
    }
}
