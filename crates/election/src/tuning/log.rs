//! The time-outs of the replicated log: how often its living leader would be deposed, and how long
//! a dead one is missed.
//!
//! A leader steps down when, for a whole smallest election time-out, too few others answered it;
//! and a follower stands for election when it has heard nothing for a time drawn by lot between the
//! smallest and the largest one, if a majority was left without a sign for at least the smallest. A
//! change of the log's leader ends no tenure of any group, but nobody is answered until it is over.
//!
//! Who has least patience stands first, so the leader is taken to have drawn the least of all: the
//! next to stand has the second smallest of all draws. Time-outs are drawn again only with an
//! election, so that after some pauses of one length only patient ones follow: such pauses depose
//! less often than is said here, and never more often.

use super::curve::{DAY_MS, Estimate};
use super::surroundings::{Pause, Surroundings, Trips};

/// Moments between two heartbeats that are looked at.
const PHASES: u64 = 8;
/// Heartbeats that are looked at for one window: far more than fit into the most patient one that
/// is slow.
const SENDS_MAX: u64 = 4096;
/// Halvings in which the place of a draw is found: finer than a millisecond.
const HALVINGS: u32 = 40;
/// Ticks of the log, which heartbeats are counted in.
const TICK_MS: u64 = 10;

/// Smallest election time-outs worth looking at.
const ELECTIONS_MS: &[u64] = &[
    100, 150, 200, 250, 300, 400, 500, 600, 800, 1_000, 1_500, 2_000, 3_000, 5_000, 7_500, 10_000,
    15_000, 20_000, 30_000,
];

/// Time-outs of one cluster's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogTimers {
    /// How often the leader shows itself.
    pub heartbeat_ms: u64,
    /// The smallest election time-out.
    pub election_ms_min: u64,
    /// The bound below which election time-outs are drawn.
    pub election_ms_max: u64,
}

impl LogTimers {
    /// Three signs of life before the most impatient loses patience, and twice the patience for the
    /// most patient: the proportions of a data centre.
    #[must_use]
    pub fn of_election(election_ms_min: u64) -> Self {
        let heartbeat_ms = (election_ms_min / 3 / TICK_MS * TICK_MS).max(TICK_MS);
        Self { heartbeat_ms, election_ms_min, election_ms_max: 2 * election_ms_min }
    }

    /// The same heartbeats with more patience: election time-outs of so many per cent.
    #[must_use]
    pub const fn stretched(self, percent: u64) -> Self {
        Self {
            heartbeat_ms: self.heartbeat_ms,
            election_ms_min: self.election_ms_min * percent / 100,
            election_ms_max: self.election_ms_max * percent / 100,
        }
    }
}

/// Time-outs from quick to patient.
#[must_use]
pub fn ladder() -> Vec<LogTimers> {
    ELECTIONS_MS.iter().map(|ms| LogTimers::of_election(*ms)).collect()
}

/// What these time-outs cost a leader with these ways to its fellow voters. Alone, it loses
/// nothing.
#[must_use]
pub fn estimate(timers: &LogTimers, surroundings: &Surroundings) -> Estimate {
    let log = Log { timers: *timers, surroundings };
    let peers = surroundings.ways().len();
    if peers == 0 {
        let failover_ms_p99 = timers.election_ms_max;
        return Estimate {
            false_by_network: 0.0,
            false_by_pauses: 0.0,
            failover_ms_p50: timers.election_ms_min.midpoint(timers.election_ms_max),
            failover_ms_p99,
        };
    }
    let windows_per_day = DAY_MS as f64 / timers.election_ms_min.max(1) as f64;
    let heartbeats_per_day = DAY_MS as f64 / timers.heartbeat_ms.max(1) as f64;
    Estimate {
        false_by_network: windows_per_day * log.unanswered(None)
            + heartbeats_per_day * log.unheard(),
        false_by_pauses: surroundings
            .pauses()
            .iter()
            .fold(0.0, |sum, pause| sum + log.lost_by(*pause)),
        failover_ms_p50: log.failover_ms(0.5, 500),
        failover_ms_p99: log.failover_ms(0.01, 990),
    }
}

struct Log<'a> {
    timers: LogTimers,
    surroundings: &'a Surroundings,
}

impl Log<'_> {
    fn majority(&self) -> usize {
        let voters = self.surroundings.ways().len() + 1;
        voters / 2 + 1
    }

    /// The chance that too few answer within one window of the quorum check. A peer that stands
    /// still is known to be silent.
    fn unanswered(&self, still: Option<usize>) -> f64 {
        let silent = |(number, way): (usize, &Trips)| match still {
            Some(still) if still == number => 1.0,
            Some(_) | None => {
                self.silent(self.surroundings.answered(), |us| way.within(us), way.longest_us())
            }
        };
        let silent: Vec<f64> = self.surroundings.ways().iter().enumerate().map(silent).collect();
        // Heard are the leader itself and who answers: too few if at least so many are silent.
        at_least(&silent, silent.len() + 2 - self.majority())
    }

    /// The chance that a majority hears nothing for the smallest election time-out from some
    /// heartbeat on.
    fn unheard(&self) -> f64 {
        let of = |way: &Trips| {
            self.silent(
                self.surroundings.arrives(),
                |us| way.within(us.saturating_mul(2)),
                way.longest_us() / 2,
            )
        };
        let silent: Vec<f64> = self.surroundings.ways().iter().map(of).collect();
        at_least(&silent, self.majority())
    }

    /// The chance that nothing arrives for a whole smallest election time-out, of signs sent with
    /// every heartbeat that take `within` a time and arrive with this chance.
    fn silent(&self, arrives: f64, within: impl Fn(u64) -> f64, longest_us: u64) -> f64 {
        let (window_us, every_us) =
            (self.timers.election_ms_min * 1000, self.timers.heartbeat_ms * 1000);
        let at_phase = |phase: u64| -> f64 {
            // Counted back from the end of the window: when the sign was sent.
            let first_us = every_us * (2 * phase + 1) / (2 * PHASES);
            let sends = (0..SENDS_MAX).map(|number| first_us + number * every_us);
            let sends = sends.take_while(|ago_us| *ago_us <= window_us + longest_us);
            let missed = sends.map(|ago_us| {
                let too_soon = match ago_us.checked_sub(window_us) {
                    None | Some(0) => 0.0,
                    Some(before_us) => within(before_us),
                };
                1.0 - arrives * (within(ago_us) - too_soon).max(0.0)
            });
            missed.product()
        };
        (0..PHASES).map(at_phase).sum::<f64>() / PHASES as f64
    }

    /// How often a day a living leader is deposed by pauses of this kind, of its own or of a peer.
    fn lost_by(&self, pause: Pause) -> f64 {
        let LogTimers { heartbeat_ms, election_ms_min, .. } = self.timers;
        let slow_ms = self.surroundings.slowest().at_permille(500).div_ceil(2000);
        let own: f64 = (0..PHASES)
            .map(|phase| heartbeat_ms * (2 * phase + 1) / (2 * PHASES) + pause.length_ms + slow_ms)
            .map(|silent_ms| self.somebody_stands_within(silent_ms))
            .sum::<f64>()
            / PHASES as f64;
        let is_missed = pause.length_ms + heartbeat_ms > election_ms_min;
        let peers = if is_missed { self.surroundings.ways().len() } else { 0 };
        let others: f64 = (0..peers).map(|peer| self.unanswered(Some(peer))).sum();
        pause.per_day() * (own + others)
    }

    /// The chance that of all who follow one has drawn a time-out that is over after so much
    /// silence.
    fn somebody_stands_within(&self, silent_ms: u64) -> f64 {
        let LogTimers { election_ms_min: min, election_ms_max: max, .. } = self.timers;
        let share = silent_ms.saturating_sub(min) as f64 / (max - min).max(1) as f64;
        self.second_within(share)
    }

    /// The chance that the second smallest of all draws lies within this share of the way from the
    /// smallest election time-out to the largest.
    fn second_within(&self, share: f64) -> f64 {
        let (share, voters) = (share.clamp(0.0, 1.0), self.surroundings.ways().len() as i32 + 1);
        let none = (1.0 - share).powi(voters);
        let one = f64::from(voters) * share * (1.0 - share).powi(voters - 1);
        (1.0 - none - one).clamp(0.0, 1.0)
    }

    /// How long a dead leader is missed, unless it is longer with this chance.
    fn failover_ms(&self, chance: f64, permille: u32) -> u64 {
        let LogTimers { heartbeat_ms, election_ms_min: min, election_ms_max: max } = self.timers;
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if self.second_within(middle) < 1.0 - chance { low = middle } else { high = middle }
        }
        let spread = (max - min) as f64 * high;
        let trip_us = self.surroundings.slowest().at_permille(permille);
        // Whether anybody objects, the vote, and the first entry.
        let trips_ms = (3 * trip_us).div_ceil(1000);
        let shown_ms = if chance < 0.5 { 0 } else { heartbeat_ms / 2 };
        // An election that fails is tried again, after another time by lot.
        let mut again = self.election_fails(trip_us);
        let mut more_ms = 0;
        for _ in 0..3 {
            if again > chance {
                more_ms += min.midpoint(max);
            }
            again *= self.election_fails(trip_us);
        }
        min + spread as u64 + trips_ms + more_ms - shown_ms.min(min)
    }

    /// The chance that an election elects nobody: somebody's word was lost who was needed, or two
    /// stood at once.
    fn election_fails(&self, trip_us: u64) -> f64 {
        let LogTimers { election_ms_min: min, election_ms_max: max, .. } = self.timers;
        let (peers, majority) = (self.surroundings.ways().len(), self.majority());
        let heard = self.surroundings.answered().powi(3);
        // Of the others that are left, so many must agree.
        let others = vec![1.0 - heard; peers - 1];
        let lost = at_least(&others, (peers + 1).saturating_sub(majority).max(1));
        let together = (trip_us as f64 / 1000.0) * (peers - 1) as f64 / (max - min).max(1) as f64;
        (lost + together).min(1.0)
    }
}

/// The chance that at least so many of these happen, each by its own chance.
fn at_least(chances: &[f64], count: usize) -> f64 {
    // How many happened, up to `count`, and with what chance.
    let mut happened = vec![0.0; count + 1];
    happened[0] = 1.0;
    for chance in chances {
        for number in (0..=count).rev() {
            let stays = if number == count { 1.0 } else { 1.0 - chance };
            let comes = if number == 0 { 0.0 } else { happened[number - 1] * chance };
            happened[number] = happened[number] * stays + comes;
        }
    }
    happened[count]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_so_many_of_some_that_happen_by_chance() {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(close(at_least(&[0.5, 0.5], 2), 0.25));
        assert!(close(at_least(&[0.5, 0.5], 1), 0.75));
        assert!(close(at_least(&[0.1, 0.2, 1.0], 2), 1.0 - 0.9 * 0.8));
        assert!(close(at_least(&[0.3], 0), 1.0));
        assert!(close(at_least(&[], 1), 0.0));
    }
}
