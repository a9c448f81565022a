//! What many runs come to: sums and a histogram, so that the order in which runs are added changes nothing.

use std::collections::BTreeMap;

use crate::stage::measure::Figures;

/// Nanoseconds in a millisecond.
const MILLI: u64 = 1_000_000;

/// How long things lasted, counted by the millisecond: as exact as anybody reads it, and as large as the
/// longest of them at most, however many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    by_ms: BTreeMap<u64, u64>,
    /// Those that had not ended when their runs did.
    endless: u64,
}

/// A time at some rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// So many milliseconds.
    Ms(u64),
    /// It had not ended when the run did.
    Never,
}

impl Times {
    fn add(&mut self, nanos: u64) {
        *self.by_ms.entry((nanos + MILLI / 2) / MILLI).or_default() += 1;
    }

    fn merge(&mut self, other: &Self) {
        for (ms, count) in &other.by_ms {
            *self.by_ms.entry(*ms).or_default() += count;
        }
        self.endless += other.endless;
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.by_ms.values().sum::<u64>() + self.endless
    }

    /// How many had not ended when their runs did.
    #[must_use]
    pub const fn endless(&self) -> u64 {
        self.endless
    }

    /// What this share of all were not longer than; what never ended is longer than anything.
    #[must_use]
    pub fn at(&self, percent: u64) -> Option<Time> {
        let count = self.count();
        let rank = (count * percent).div_ceil(100).max(1);
        let mut passed = 0;
        for (ms, here) in &self.by_ms {
            passed += here;
            if passed >= rank {
                return Some(Time::Ms(*ms));
            }
        }
        (count > 0).then_some(Time::Never)
    }
}

/// What many runs of one algorithm under one scenario come to. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// How many runs.
    pub runs: u64,
    /// Those that were stopped because too much happened.
    pub cut_short: u64,
    /// How many tenures began.
    pub elections: u64,
    /// Messages sent to elect somebody.
    pub messages: u64,
    /// Their payload.
    pub bytes: u64,
    /// Messages sent because all was well.
    pub upkeep_messages: u64,
    /// Their payload.
    pub upkeep_bytes: u64,
    /// How long it took until somebody led for the first time.
    pub first: Times,
    /// How long each later vacancy lasted.
    pub vacancies: Times,
    /// How long nobody acted as leader.
    pub leaderless_ns: u64,
    /// How long more than one did.
    pub two_leaders_ns: u64,
    /// Runs in which more than one ever did.
    pub runs_with_two: u64,
    /// Writes that reached the storage.
    pub writes: u64,
    /// Those that were wrong, where nobody checks.
    pub wrong_writes: u64,
    /// Those that were wrong and passed a fence.
    pub wrong_writes_fenced: u64,
    /// Those that a fence refused.
    pub refused_writes: u64,
}

impl Cell {
    /// One run.
    #[must_use]
    pub fn of(figures: &Figures, is_cut_short: bool) -> Self {
        let (mut first, mut vacancies) = (Times::default(), Times::default());
        let mut all = figures.vacancies_ns.iter();
        match all.next() {
            Some(nanos) => first.add(*nanos),
            // Nobody has ever led; or somebody did from the start, and nothing was vacant.
            None => first.endless += u64::from(figures.elections == 0),
        }
        all.for_each(|nanos| vacancies.add(*nanos));
        vacancies.endless += u64::from(figures.unfilled_ns.is_some() && figures.elections > 0);
        Self {
            runs: 1,
            cut_short: u64::from(is_cut_short),
            elections: figures.elections,
            messages: figures.messages,
            bytes: figures.bytes,
            upkeep_messages: figures.upkeep_messages,
            upkeep_bytes: figures.upkeep_bytes,
            first,
            vacancies,
            leaderless_ns: figures.leaderless_ns,
            two_leaders_ns: figures.two_leaders_ns,
            runs_with_two: u64::from(figures.two_leaders_ns > 0),
            writes: figures.writes,
            wrong_writes: figures.wrong_writes,
            wrong_writes_fenced: figures.wrong_writes_fenced,
            refused_writes: figures.refused_writes,
        }
    }

    /// Adds other runs. In whatever order, the sum is the same.
    pub fn merge(&mut self, other: &Self) {
        self.runs += other.runs;
        self.cut_short += other.cut_short;
        self.elections += other.elections;
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.upkeep_messages += other.upkeep_messages;
        self.upkeep_bytes += other.upkeep_bytes;
        self.first.merge(&other.first);
        self.vacancies.merge(&other.vacancies);
        self.leaderless_ns += other.leaderless_ns;
        self.two_leaders_ns += other.two_leaders_ns;
        self.runs_with_two += other.runs_with_two;
        self.writes += other.writes;
        self.wrong_writes += other.wrong_writes;
        self.wrong_writes_fenced += other.wrong_writes_fenced;
        self.refused_writes += other.refused_writes;
    }

    /// Messages per election; none without an election.
    #[must_use]
    pub fn messages_per_election(&self) -> Option<f64> {
        (self.elections > 0).then(|| self.messages as f64 / self.elections as f64)
    }

    /// Their payload per election.
    #[must_use]
    pub fn bytes_per_election(&self) -> Option<f64> {
        (self.elections > 0).then(|| self.bytes as f64 / self.elections as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(vacancies_ms: &[u64], unfilled_ms: Option<u64>) -> Cell {
        let figures = Figures {
            elections: vacancies_ms.len() as u64,
            messages: 7,
            vacancies_ns: vacancies_ms.iter().map(|ms| ms * MILLI).collect(),
            unfilled_ns: unfilled_ms.map(|ms| ms * MILLI),
            ..Figures::default()
        };
        Cell::of(&figures, false)
    }

    #[test]
    fn the_order_in_which_runs_are_added_changes_nothing() {
        let runs = [cell(&[5, 600], None), cell(&[7, 400, 900], Some(3)), cell(&[], Some(30))];
        let sum = |order: [usize; 3]| {
            let mut sum = Cell::default();
            order.iter().for_each(|place| sum.merge(&runs[*place]));
            sum
        };
        let all = sum([0, 1, 2]);
        assert_eq!(all, sum([2, 0, 1]));
        assert_eq!((all.runs, all.elections, all.messages), (3, 5, 21));
    }

    #[test]
    fn the_first_election_and_take_overs_are_told_apart() {
        let cell = cell(&[5, 600, 900], None);
        assert_eq!((cell.first.count(), cell.first.at(50)), (1, Some(Time::Ms(5))));
        assert_eq!((cell.vacancies.count(), cell.vacancies.at(50)), (2, Some(Time::Ms(600))));
        assert_eq!(cell.vacancies.at(99), Some(Time::Ms(900)));
        assert_eq!(Times::default().at(50), None);
    }

    #[test]
    fn a_vacancy_that_never_ends_is_longer_than_any_that_did() {
        let mut sum = cell(&[5, 600], None);
        sum.merge(&cell(&[5], Some(9_000)));
        assert_eq!(sum.vacancies.at(50), Some(Time::Ms(600)));
        assert_eq!((sum.vacancies.at(99), sum.vacancies.endless()), (Some(Time::Never), 1));
        let nobody = cell(&[], Some(30_000));
        assert_eq!((nobody.first.at(1), nobody.vacancies.count()), (Some(Time::Never), 0));
    }
}
