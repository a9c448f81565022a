//! Whether a replica's patience suits the network it measures, and what would.
//!
//! The same arithmetic as `regent lab tune` ([`regent_election::tuning`]) on measured round trips
//! and pauses. It is a report for operators, or, if they allow it, applied.
//!
//! **What is applied is patience alone**: the election time-outs and the window of the quorum check
//! are stretched; heartbeats are sent as often as configured. So every replica may decide for
//! itself. A leader shows itself to an impatient follower as often as ever, however patient it is;
//! a patient follower only stands later and refuses its pre-vote longer while it has heard a
//! leader, as one does whose draw was long; and the dead are succeeded when a majority has lost
//! patience, at the latest when the most patient has. The road not taken is to stretch heartbeats
//! with the rest: a leader that had, among followers that had not, would be deposed again and
//! again.
//!
//! **No promise leans on it.** Terms and votes are Raft's, which needs no time; reads and
//! heartbeats of sessions are answered after a round that a majority confirmed, never because a
//! time-out is not over; sessions expire by their ttl on the lease clock, which is not stretched;
//! and the core is turned as often as before, so no turn looks like a gap (semantics 8).

use std::fmt;
use std::time::Duration;

use regent_election::tuning::{
    Choice, Curve, Estimate, LogTimers, Pause, Rate, Surroundings, Target, Trips, estimate_lease,
    estimate_log, explain_log, lease_ladder,
};
use regent_election::{Drift, Moment};

use crate::limits::{
    PATIENCE_CALM_FOR, PATIENCE_CHANGE_EVERY, PATIENCE_PERCENT_MAX, TRIPS_TO_JUDGE_BY,
};
use crate::timing::Timing;

/// What is done about time-outs that do not suit the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tune {
    Off,
    /// Operators are told what would be better.
    #[default]
    Report,
    /// That, and patience is stretched within its bounds.
    Apply,
}

impl Tune {
    /// The word for settings and wires.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Report => "report",
            Self::Apply => "apply",
        }
    }
}

impl fmt::Display for Tune {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Patience that is looked at, in per cent of what is configured.
const PERCENTS: &[u64] =
    &[25, 33, 50, 67, 100, 125, 150, 200, 250, 300, 400, 500, 600, 800, 1000, 1200, 1600];
/// Less patience is recommended only where it would be this much better than wanted.
const MARGIN: f64 = 10.0;
/// How rare false elections are to be.
const WANTED: Rate = Rate::WEEKLY;

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measurements {
    /// Round trips to each other voter: up to how many microseconds, and how many.
    pub ways: Vec<Vec<(u64, u64)>>,
    /// Pauses of this replica: up to how many microseconds, and how many.
    pub pauses: Vec<(u64, u64)>,
    /// For how long pauses were measured.
    pub watched: Duration,
}

/// How the present time-outs suit what was measured, and what would suit it better.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Round trips that were measured.
    pub round_trips: u64,
    /// Half of those on the slowest way took no longer, in microseconds.
    pub round_trip_us_p50: u64,
    /// Ninety-nine of a hundred took no longer.
    pub round_trip_us_p99: u64,
    /// Pauses of this replica that were measured.
    pub pauses: u64,
    /// The longest, in milliseconds, rounded up.
    pub pause_ms_max: u64,
    /// For how long was measured.
    pub watched: Duration,
    /// The patience that holds, in per cent of what is configured.
    pub percent: u64,
    /// The time-outs that hold.
    pub present: LogTimers,
    /// What they cost.
    pub present_costs: Estimate,
    /// Better ones, if there are any: in per cent of what is configured, and as they would be.
    pub better: Option<(u64, LogTimers)>,
    /// The shortest ttl that suits what was measured between replicas.
    pub ttl_ms_min: Option<u64>,
    /// The arithmetic.
    pub why: String,
}

/// Judges the present patience, in per cent of what is configured. None while too little was
/// measured.
#[must_use]
pub fn advise(timing: Timing, percent: u64, measured: &Measurements) -> Option<Advice> {
    let ways: Vec<Trips> = measured
        .ways
        .iter()
        .filter(|way| way.iter().map(|(_, count)| count).sum::<u64>() >= TRIPS_TO_JUDGE_BY)
        .filter_map(|way| Trips::counted(way))
        .collect();
    if ways.is_empty() || ways.len() < measured.ways.len() {
        return None;
    }
    let surroundings = Surroundings::new(ways, 0, pauses(measured));
    let base = timers(timing);
    let present = base.stretched(percent);
    let present_costs = estimate_log(&present, &surroundings);
    let better = if suits(&present, &surroundings, 1.0) {
        less_patience(timing, percent, measured, &surroundings)
    } else {
        // Where even the most patience is not enough, it is still better than less.
        let more = || percents(timing).filter(|more| *more > percent);
        more()
            .find(|more| suits(&base.stretched(*more), &surroundings, 1.0))
            .or_else(|| more().last())
    };
    let shown = better.map_or(present, |better| base.stretched(better));
    let costs = estimate_log(&shown, &surroundings);
    let ladder = lease_ladder(Drift::DEFAULT);
    let lease = Curve::of(&ladder, |budget| estimate_lease(budget, &surroundings));
    let target = Target { failover_ms: u64::MAX, false_failovers: WANTED };
    let slowest = surroundings.slowest();
    Some(Advice {
        round_trips: measured.ways.iter().flatten().map(|(_, count)| count).sum(),
        round_trip_us_p50: slowest.at_permille(500),
        round_trip_us_p99: slowest.at_permille(990),
        pauses: measured.pauses.iter().map(|(_, count)| count).sum(),
        pause_ms_max: surroundings.pauses().iter().map(|pause| pause.length_ms).max().unwrap_or(0),
        watched: measured.watched,
        percent,
        present,
        present_costs,
        better: better.map(|better| (better, base.stretched(better))),
        ttl_ms_min: match lease.choose(&target) {
            Choice::Found(at) => Some(lease.0[at].setting.ttl_ms()),
            Choice::TargetsConflict { .. } => None,
        },
        why: explain_log(&shown, &surroundings, &costs),
    })
}

/// Whether these time-outs leave a living leader alone, by this margin, and an election the time to
/// end: whoever stands needs two round trips, and with less than three nobody may win before the
/// next one stands.
fn suits(timers: &LogTimers, surroundings: &Surroundings, margin: f64) -> bool {
    let calm = estimate_log(timers, surroundings).false_per_day() * margin <= WANTED.per_day();
    calm && 3 * surroundings.slowest().at_permille(990) <= timers.election_ms_min * 1000
}

/// Less patience, if what is wanted would be met by far and this was watched for long enough to
/// know.
fn less_patience(
    timing: Timing,
    percent: u64,
    measured: &Measurements,
    surroundings: &Surroundings,
) -> Option<u64> {
    if measured.watched < PATIENCE_CALM_FOR {
        return None;
    }
    let is_enough = |less: &u64| suits(&timers(timing).stretched(*less), surroundings, MARGIN);
    percents(timing).filter(|less| *less < percent).find(is_enough)
}

/// The patience that this cluster's timers allow.
fn percents(timing: Timing) -> impl Iterator<Item = u64> {
    PERCENTS.iter().copied().filter(move |percent| timing.stretched(*percent).is_some())
}

const fn timers(timing: Timing) -> LogTimers {
    LogTimers {
        heartbeat_ms: timing.heartbeat_ms(),
        election_ms_min: timing.election_ms_min(),
        election_ms_max: timing.election_ms_max(),
    }
}

/// Every length of pause as often as it was measured.
fn pauses(measured: &Measurements) -> Vec<Pause> {
    let watched_ms = u64::try_from(measured.watched.as_millis()).unwrap_or(u64::MAX);
    let seen = measured.pauses.iter().filter(|(_, count)| *count > 0);
    seen.map(|(us, count)| Pause { length_ms: us.div_ceil(1000), every_ms: watched_ms / count })
        .collect()
}

/// Applies advice slowly: at most twice as much or half as much, once a minute, and less only after
/// a quiet time.
#[derive(Clone, Copy, Debug)]
pub struct Tuner {
    percent: u64,
    changed_at: Option<Moment>,
    /// Since when less would do.
    less_since: Option<Moment>,
}

impl Default for Tuner {
    fn default() -> Self {
        Self { percent: 100, changed_at: None, less_since: None }
    }
}

impl Tuner {
    /// The patience that holds, in per cent of what is configured.
    #[must_use]
    pub const fn percent(&self) -> u64 {
        self.percent
    }

    /// Takes advice on what would be better, if anything would; returns the patience to hold from
    /// here on, if it is another. Never less than is configured, nor more than its bound.
    pub fn on(&mut self, now: Moment, better: Option<u64>) -> Option<u64> {
        let wanted = better.unwrap_or(self.percent).clamp(100, PATIENCE_PERCENT_MAX);
        let less_since = (wanted < self.percent).then(|| self.less_since.unwrap_or(now));
        self.less_since = less_since;
        let is_early = self.changed_at.is_some_and(|at| now.since(at) < PATIENCE_CHANGE_EVERY);
        let is_unsure = less_since.is_some_and(|since| now.since(since) < PATIENCE_CALM_FOR);
        if wanted == self.percent || is_early || is_unsure {
            return None;
        }
        self.percent = wanted.clamp(self.percent.div_ceil(2).max(100), self.percent * 2);
        self.changed_at = Some(now);
        Some(self.percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(trip_us: u64, pauses: &[(u64, u64)]) -> Measurements {
        Measurements {
            ways: vec![vec![(trip_us, 1_000)]; 2],
            pauses: pauses.to_vec(),
            watched: Duration::from_secs(600),
        }
    }

    #[test]
    fn a_network_that_suits_the_timers_needs_no_others() {
        let advice = advise(Timing::LAN, 100, &measured(500, &[])).unwrap();
        assert_eq!(advice.better, None, "{}", advice.why);
        assert!(advice.present_costs.false_per_day() < 1e-9);
        assert_eq!((advice.round_trips, advice.round_trip_us_p99), (2_000, 500));
        assert_eq!(advice.ttl_ms_min, Some(500));
    }

    #[test]
    fn pauses_longer_than_patience_ask_for_more_of_it() {
        // Twice in ten minutes for up to 400 ms: 450 ms of silence must depose nobody.
        let advice = advise(Timing::LAN, 100, &measured(500, &[(400_000, 2)])).unwrap();
        let (percent, better) = advice.better.unwrap();
        assert_eq!((percent, better.election_ms_min), (300, 450), "{}", advice.why);
        assert_eq!(better.heartbeat_ms, 50, "heartbeats are as often as before");
        assert!(advice.why.contains("400ms every 300s"), "{}", advice.why);
        let then = advise(Timing::LAN, percent, &measured(500, &[(400_000, 2)])).unwrap();
        assert_eq!(then.better, None, "{then:?}");
    }

    #[test]
    fn an_election_has_the_time_of_three_round_trips() {
        let advice = advise(Timing::LAN, 100, &measured(120_000, &[])).unwrap();
        assert!(advice.present_costs.false_per_day() < 1e-9, "answers come late, but they come");
        assert_eq!(advice.better.map(|(percent, _)| percent), Some(250), "375 ms for 3 × 120 ms");
    }

    #[test]
    fn where_nothing_suits_the_most_patience_is_the_best_there_is() {
        let hopeless = measured(500, &[(16_000_000, 9)]);
        let advice = advise(Timing::LAN, 100, &hopeless).unwrap();
        assert_eq!(advice.better.map(|(percent, _)| percent), Some(PATIENCE_PERCENT_MAX));
        assert_eq!(advise(Timing::LAN, PATIENCE_PERCENT_MAX, &hopeless).unwrap().better, None);
    }

    #[test]
    fn timers_of_several_regions_are_too_patient_within_one_room() {
        let advice = advise(Timing::WAN, 100, &measured(500, &[])).unwrap();
        let (percent, better) = advice.better.unwrap();
        assert_eq!((percent, better.election_ms_min), (67, 670), "twice a heartbeat must fit");
        let shortly = Measurements { watched: Duration::from_secs(30), ..measured(500, &[]) };
        assert_eq!(advise(Timing::WAN, 100, &shortly).unwrap().better, None, "too early to say");
    }

    #[test]
    fn nothing_is_said_before_every_way_was_measured() {
        let mut few = measured(500, &[]);
        few.ways[1] = vec![(500, TRIPS_TO_JUDGE_BY - 1)];
        assert_eq!(advise(Timing::LAN, 100, &few), None);
        assert_eq!(advise(Timing::LAN, 100, &Measurements { ways: vec![], ..few }), None);
    }

    #[test]
    fn patience_changes_by_a_factor_of_two_a_minute_at_most_and_shrinks_only_after_calm() {
        let at = |s: u64| Moment::from_millis(s * 1000);
        let mut tuner = Tuner::default();
        assert_eq!(tuner.on(at(0), Some(800)), Some(200));
        assert_eq!(tuner.on(at(59), Some(800)), None, "not within a minute");
        assert_eq!(tuner.on(at(60), Some(800)), Some(400));
        assert_eq!(tuner.on(at(120), Some(800)), Some(800));
        assert_eq!(tuner.on(at(180), Some(10_000)), Some(PATIENCE_PERCENT_MAX));
        let calm_s = PATIENCE_CALM_FOR.as_secs();
        assert_eq!(tuner.on(at(1_000), Some(25)), None);
        assert_eq!(tuner.on(at(1_000 + calm_s - 1), None), None, "it was needed after all");
        assert_eq!(tuner.on(at(2_000), Some(25)), None);
        let mut now_s = 2_000 + calm_s;
        let mut seen = Vec::new();
        while tuner.percent() > 100 {
            seen.extend(tuner.on(at(now_s), Some(25)));
            now_s += 60;
        }
        assert_eq!(seen, [800, 400, 200, 100], "never below what is configured");
        assert_eq!(tuner.on(at(now_s + 9_999), Some(25)), None);
    }
}
