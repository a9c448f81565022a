//! What is shown of a cell, and how.

use super::cell::{Cell, Time};

/// Nanoseconds in a second.
const SECOND: u128 = 1_000_000_000;

/// One thing that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Messages per election.
    Messages,
    /// Their payload.
    Bytes,
    /// How long vacancies last.
    TimeToElect,
    /// How long nobody led.
    Leaderless,
    /// How long more than one led.
    TwoLeaders,
    /// Wrong writes where nobody checks.
    WrongWrites,
    /// Wrong writes that passed a fence.
    WrongWritesFenced,
}

impl Measure {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Messages,
        Self::Bytes,
        Self::TimeToElect,
        Self::Leaderless,
        Self::TwoLeaders,
        Self::WrongWrites,
        Self::WrongWritesFenced,
    ];

    /// The head of its column.
    #[must_use]
    pub const fn head(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Bytes => "bytes",
            Self::TimeToElect => "elect p50/p99",
            Self::Leaderless => "no leader",
            Self::TwoLeaders => "two leaders",
            Self::WrongWrites => "wrong",
            Self::WrongWritesFenced => "fenced",
        }
    }

    /// What it is, as the title of a table.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Messages => "Messages per election",
            Self::Bytes => "Bytes per election",
            Self::TimeToElect => "Time to elect: median and 99th percentile, in seconds",
            Self::Leaderless => "Time without a leader, in seconds per run",
            Self::TwoLeaders => "Time with two leaders, in seconds per run",
            Self::WrongWrites => "Wrong writes per run, without a fence",
            Self::WrongWritesFenced => "Wrong writes per run, with a fence",
        }
    }

    /// What a cell shows of it. A figure that is too small to be seen is never shown as zero.
    #[must_use]
    pub fn show(self, cell: &Cell) -> String {
        let runs = u128::from(cell.runs);
        let seconds = |nanos: u64| hundredths(u128::from(nanos), runs * SECOND);
        match self {
            Self::Messages => per_election(cell.messages, cell.elections),
            Self::Bytes => per_election(cell.bytes, cell.elections),
            Self::TimeToElect => match (cell.vacancies.at(50), cell.vacancies.at(99)) {
                (Some(half), Some(most)) => format!("{} / {}", time(half), time(most)),
                (_, None) | (None, _) => "-".to_owned(),
            },
            Self::Leaderless => seconds(cell.leaderless_ns),
            Self::TwoLeaders => seconds(cell.two_leaders_ns),
            Self::WrongWrites => hundredths(u128::from(cell.wrong_writes), runs),
            Self::WrongWritesFenced => hundredths(u128::from(cell.wrong_writes_fenced), runs),
        }
    }
}

/// A time, in seconds.
fn time(time: Time) -> String {
    match time {
        Time::Ms(ms) => hundredths(u128::from(ms), 1_000),
        Time::Never => "never".to_owned(),
    }
}

fn per_election(count: u64, elections: u64) -> String {
    if elections == 0 {
        return "-".to_owned();
    }
    let tenths = (u128::from(count) * 20 + u128::from(elections)) / (u128::from(elections) * 2);
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// A quotient to two decimals, rounded; nothing at all is `0`, and what is less than a hundredth says so.
#[must_use]
pub fn hundredths(value: u128, of: u128) -> String {
    if of == 0 {
        return "-".to_owned();
    }
    match (value * 200 + of) / (of * 2) {
        0 if value == 0 => "0".to_owned(),
        0 => "<0.01".to_owned(),
        parts => format!("{}.{:02}", parts / 100, parts % 100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nothing_is_shown_as_zero() {
        assert_eq!(hundredths(0, 7), "0");
        assert_eq!(hundredths(1, 1_000), "<0.01");
        assert_eq!(hundredths(5, 1_000), "0.01");
        assert_eq!(hundredths(1_999, 1_000), "2.00");
        assert_eq!(hundredths(1, 0), "-");
        assert_eq!(per_election(7, 2), "3.5");
        assert_eq!(per_election(199, 20), "10.0");
        assert_eq!(per_election(5, 0), "-");
    }
}
