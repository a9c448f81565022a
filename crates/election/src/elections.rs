//! How long offices that somebody wants go without a leader, as the ledger that serves counts it.
//!
//! ```text
//!   lease over (expiry), resigned, …          promoted           accepted
//!   ──────────┼───────────────────────────────────┼──────────────────┼─────► lease clock
//!             └───────── one election: "success", by the cause of the vacancy ─────┘
//! ```
//!
//! An election begins when an office that is *wanted* loses its leader: a session stands in its line, or a campaign that
//! left nothing behind was told to come back and its pause is not over. An office that nobody wants is no election,
//! however long it is vacant; one begins when a session comes to stand. It ends when a session that knows leads. A
//! promoted session that does not accept, and the last candidate that leaves, end an attempt as "failed".
//!
//! For an expiry the vacancy begins at the deadline that this ledger counted, not when the expiry was applied: what
//! the store took to notice and to agree is part of the election.
//!
//! **Only the ledger that serves measures**, so the figures of all replicas can be added up. Vacancies that were there
//! when it began to serve have no known beginning and are not measured.
//!
//! The road not taken: measuring from a watch. It knows neither the deadline nor when a promoted session accepts, and a
//! replica that catches up would measure how quickly it reads.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::limits::{ELECTIONS_ASKED_MAX, ELECTIONS_TIMED_MAX};
use crate::moment::Moment;
use crate::name::Group;
use crate::outcome::{Cause, OfficeChange};

/// Upper bounds of the counts in milliseconds; what took longer is counted in one more.
pub const ELECTION_BOUNDS_MS: [u64; 16] =
    [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 20_000, 40_000, 80_000];

/// Durations, counted by how long they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElectionCounts {
    /// How many took no longer than the bound of the same place, and longer than the one before.
    pub counts: [u64; ELECTION_BOUNDS_MS.len() + 1],
    /// All of them together.
    pub sum: Duration,
}

impl ElectionCounts {
    fn note(&mut self, took: Duration) {
        let place = ELECTION_BOUNDS_MS.partition_point(|ms| Duration::from_millis(*ms) < took);
        self.counts[place] += 1;
        self.sum += took;
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The elections of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElectionsOfCause {
    /// From the vacancy to the acceptance.
    pub success: ElectionCounts,
    /// From the vacancy until the attempt came to nothing.
    pub failed: ElectionCounts,
}

/// What was measured since the ledger was made, by what had made the offices vacant. [`Cause::Elected`] is for offices
/// that were vacant before anybody wanted them.
pub type ElectionTimes = BTreeMap<Cause, ElectionsOfCause>;

/// An election under way.
#[derive(Clone, Copy, Debug)]
struct Vacancy {
    since: Moment,
    cause: Cause,
    /// When the last campaign that left nothing behind comes back at the latest; none if a session stands.
    wanted_until: Option<Moment>,
    failed_at: Option<Moment>,
}

/// Times elections by what the state machine says of offices.
#[derive(Clone, Debug, Default)]
pub(crate) struct ElectionTimer {
    open: BTreeMap<Group, Vacancy>,
    /// Groups that are led, and until when at the latest a campaign that lost there comes back.
    asked: BTreeMap<Group, Moment>,
    times: ElectionTimes,
}

impl ElectionTimer {
    /// What was measured.
    pub(crate) const fn times(&self) -> &ElectionTimes {
        &self.times
    }

    /// Gives up what is under way: what happens from here on is seen by another ledger.
    pub(crate) fn forget(&mut self) {
        self.open.clear();
        self.asked.clear();
    }

    /// A campaign left nothing behind and comes back after a pause that is over at `until`.
    pub(crate) fn asked(&mut self, now: Moment, group: &Group, is_led: bool, until: Moment) {
        if is_led {
            if self.asked.len() >= ELECTIONS_ASKED_MAX {
                self.asked.retain(|_, until| now <= *until);
            }
            if self.asked.len() < ELECTIONS_ASKED_MAX {
                self.asked.insert(group.clone(), until);
            }
            return;
        }
        match self.open.get_mut(group) {
            Some(vacancy) if vacancy.wanted_until.is_some_and(|until| until < now) => {
                *vacancy = Vacancy::begin(now, Cause::Elected, Some(until));
            }
            Some(vacancy) => {
                vacancy.wanted_until = vacancy.wanted_until.map(|before| before.max(until));
            }
            None => self.begin(group, Vacancy::begin(now, Cause::Elected, Some(until))),
        }
    }

    /// An office changed. `over_at` is when the lease of the leader that is gone was over, if that is why it is gone.
    pub(crate) fn note(
        &mut self,
        now: Moment,
        group: &Group,
        change: OfficeChange,
        over_at: Option<Moment>,
    ) {
        match change {
            OfficeChange::Vacated { cause, is_wanted, session: _ } => {
                let asked = self.asked.remove(group).filter(|until| now <= *until);
                if is_wanted || asked.is_some() {
                    let since = over_at.map_or(now, |at| at.min(now));
                    let wanted_until = asked.filter(|_| !is_wanted);
                    self.begin(group, Vacancy::begin(since, cause, wanted_until));
                }
            }
            OfficeChange::Wanted => match self.open.get_mut(group) {
                Some(vacancy) if vacancy.is_wanted(now) => vacancy.wanted_until = None,
                Some(_) | None => {
                    self.open.remove(group);
                    self.begin(group, Vacancy::begin(now, Cause::Elected, None));
                }
            },
            OfficeChange::NotAccepted => {
                if let Some(vacancy) = self.open.get_mut(group) {
                    vacancy.failed_at = Some(now);
                    let (cause, took) = (vacancy.cause, now.since(vacancy.since));
                    self.times.entry(cause).or_default().failed.note(took);
                }
            }
            OfficeChange::Unwanted => {
                if let Some(vacancy) = self.open.remove(group)
                    && vacancy.failed_at != Some(now)
                {
                    let took = now.since(vacancy.since);
                    self.times.entry(vacancy.cause).or_default().failed.note(took);
                }
            }
            OfficeChange::Filled { was_wanted } => {
                self.asked.remove(group);
                let (cause, took) = match self.open.remove(group) {
                    Some(vacancy) if vacancy.is_wanted(now) => {
                        (vacancy.cause, now.since(vacancy.since))
                    }
                    // It was wanted when this ledger began to serve, or there was no place to note since when.
                    None if was_wanted => return,
                    Some(_) | None => (Cause::Elected, Duration::ZERO),
                };
                self.times.entry(cause).or_default().success.note(took);
            }
            OfficeChange::Gone => {
                self.open.remove(group);
                self.asked.remove(group);
            }
        }
    }

    fn begin(&mut self, group: &Group, vacancy: Vacancy) {
        if self.open.len() < ELECTIONS_TIMED_MAX {
            self.open.insert(group.clone(), vacancy);
        }
    }
}

impl Vacancy {
    const fn begin(since: Moment, cause: Cause, wanted_until: Option<Moment>) -> Self {
        Self { since, cause, wanted_until, failed_at: None }
    }

    /// Whether it was wanted all the time.
    fn is_wanted(&self, now: Moment) -> bool {
        self.wanted_until.is_none_or(|until| now <= until)
    }
}
