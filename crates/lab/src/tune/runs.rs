//! One run of one setting: a calm one, or one in which the leader dies.

use std::time::Duration;

use regent_election::tuning::LogTimers;

use super::{NetworkConditions, Setting};
use crate::dice::Dice;
use crate::protocols::raft::Unasked;
use crate::protocols::session::Session;
use crate::protocols::{NodeId, Pace};
use crate::stage::{Blow, Links, Scenario, StageRecord, Strike, What, Who, play_quietly};

/// Renewals in one calm run of a ttl.
pub(super) const RENEWALS_PER_RUN: u32 = 2_000;
/// Heartbeats in one calm run of the log.
pub(super) const HEARTBEATS_PER_RUN: u32 = 2_000;
/// Candidates for the office of a ttl: one that leads and one that stands by.
const CANDIDATES: u16 = 2;
/// Things that may happen in one run. A calm one has some hundred thousand.
const HAPPENINGS_MAX: u64 = 20_000_000;
/// Pauses of one run at most.
const STRIKES_MAX: usize = 100_000;

/// Plays a run in which nobody dies, and says how often the office changed hands all the same.
///
/// # Panics
/// If the setting was not checked: see [`Setting::timing`].
#[must_use]
pub fn calm(setting: &Setting, place: &NetworkConditions, seed: u64) -> u64 {
    let scenario = scenario(setting, place, setting.calm_for(), seed, None);
    let record = play(setting, &scenario, seed);
    let began = record.entries.iter().filter(|entry| is_beginning(&entry.what));
    let tenures = began.count() as u64;
    // Somebody must be the first.
    tenures.saturating_sub(1)
}

/// What came of a leader's death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Nobody led at that moment: there was nobody to die.
    Void,
    /// The next one acted after so many nanoseconds.
    Succeeded(u64),
    /// Nobody did, as long as was watched.
    Orphaned,
}

/// Plays a run in which the leader dies.
///
/// # Panics
/// If the setting was not checked: see [`Setting::timing`].
#[must_use]
pub fn crash(setting: &Setting, place: &NetworkConditions, seed: u64) -> Crash {
    let (settled, shown, waited) = match setting {
        Setting::Lease(budget) => (budget.ttl() * 2, budget.renew_every(), budget.ttl() * 5),
        Setting::Log(timers) => {
            let ms = Duration::from_millis;
            let longest = ms(timers.election_ms_max);
            (longest * 6, ms(timers.heartbeat_ms), longest * 40)
        }
    };
    // At any moment between two signs of life.
    let lot = Dice::new(seed).fork("crash").below(nanos(shown).max(1));
    let crash_at = Duration::from_secs(1) + settled + Duration::from_nanos(lot);
    let scenario = scenario(setting, place, crash_at + waited, seed, Some(crash_at));
    let record = play(setting, &scenario, seed);
    let mut entries = record.entries.iter();
    let is_death = |what: &What| matches!(what, What::Crashes { .. });
    let Some(died) = entries.by_ref().find(|entry| is_death(&entry.what)) else {
        return Crash::Void;
    };
    let next = entries.find(|entry| is_beginning(&entry.what));
    next.map_or(Crash::Orphaned, |next| Crash::Succeeded(next.at - died.at))
}

const fn is_beginning(what: &What) -> bool {
    matches!(what, What::Leads { is_again: false, .. })
}

fn play(setting: &Setting, scenario: &Scenario, seed: u64) -> StageRecord {
    let run = match setting {
        Setting::Lease(_) => play_quietly::<Session>(scenario, seed, HAPPENINGS_MAX),
        Setting::Log(_) => play_quietly::<Unasked>(scenario, seed, HAPPENINGS_MAX),
    };
    run.expect("it names nobody who is not there").record
}

fn scenario(
    setting: &Setting,
    place: &NetworkConditions,
    lasts: Duration,
    seed: u64,
    crash_at: Option<Duration>,
) -> Scenario {
    let (nodes, servers) = match setting {
        Setting::Lease(_) => (CANDIDATES, 1),
        Setting::Log(_) => (place.voters, 0),
    };
    let mut strikes = pauses(place, nodes, servers, lasts, seed);
    strikes.extend(crash_at.map(|at| Strike { at, blow: Blow::Crash(Who::Leader, None) }));
    Scenario {
        name: "tune".into(),
        about: "time-outs under given surroundings".into(),
        nodes,
        lasts,
        pace: pace(setting),
        links: Links {
            latency_us: place.trip_us.start() / 2..=place.trip_us.end() / 2,
            loss_ppm: place.loss_ppm,
            double_ppm: 0,
        },
        disk_us: 0..=0,
        work: lasts,
        strikes,
    }
}

fn pace(setting: &Setting) -> Pace {
    let ms = Duration::from_millis;
    match setting {
        Setting::Lease(budget) => Pace {
            heartbeat_every: budget.renew_every(),
            patience_min: budget.ttl(),
            patience_max: budget.ttl() * 2,
            answer_within: budget.request_timeout(),
            ttl: budget.ttl(),
        },
        Setting::Log(LogTimers { heartbeat_ms, election_ms_min, election_ms_max }) => Pace {
            heartbeat_every: ms(*heartbeat_ms),
            patience_min: ms(*election_ms_min),
            patience_max: ms(*election_ms_max),
            answer_within: ms(*heartbeat_ms),
            ttl: ms(*election_ms_max),
        },
    }
}

/// Every process stands still now and then, at moments of its own.
fn pauses(
    place: &NetworkConditions,
    nodes: u16,
    servers: u16,
    lasts: Duration,
    seed: u64,
) -> Vec<Strike> {
    let Some(pause) = place.pause else { return Vec::new() };
    let (length, every) = (Duration::from_millis(pause.length_ms), pause.every_ms.max(1));
    let mut strikes = Vec::new();
    for number in 0..nodes + servers {
        let who = if number < nodes { Who::Node(NodeId(number)) } else { Who::Store };
        let mut dice = Dice::new(seed).fork(&format!("pauses of {number}"));
        let mut at = Duration::ZERO;
        while strikes.len() < STRIKES_MAX {
            // Between nothing and twice the mean: as often as was said, and never in step.
            at += length + Duration::from_micros(dice.below(2_000 * every + 1));
            if at >= lasts {
                break;
            }
            strikes.push(Strike { at, blow: Blow::Pause(who, length) });
        }
    }
    strikes.sort_by_key(|strike| strike.at);
    strikes
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
