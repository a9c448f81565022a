//! Hand-worked numbers, and what must hold for any surroundings.

use proptest::prelude::*;

use super::*;
use crate::timing::{Budget, Drift};

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= expected.abs() * 1e-9
}

fn budget(ttl_ms: u64) -> Budget {
    Budget::new(ttl_ms, Drift::DEFAULT).unwrap()
}

fn flat(us: u64, loss_ppm: u32, pauses: Vec<Pause>) -> Surroundings {
    Surroundings::new(vec![Trips::of(us); 2], loss_ppm, pauses)
}

/// ttl 3s: renewed every 1s, time-out 600ms; valid for 2940ms, work stops at 2640ms. Tries at 1000,
/// 1600 and 2200ms. With 1 % loss each way one gets no answer with 1 − 0.99² = 0.0199; 86,400
/// renewals a day.
#[test]
fn a_lease_is_lost_when_every_try_that_fits_is_lost() {
    let estimate = estimate_lease(&budget(3_000), &flat(10_000, 10_000, vec![]));
    assert!(close(estimate.false_by_network, 86_400.0 * 0.0199_f64.powi(3)), "{estimate:?}");
    assert!(close(estimate.false_by_pauses, 0.0));
}

/// An answer counts until the work must stop: a round trip of 500ms begun at 2200ms comes too late.
#[test]
fn a_try_whose_answer_comes_too_late_counts_for_nothing() {
    let estimate = estimate_lease(&budget(3_000), &flat(500_000, 10_000, vec![]));
    assert!(close(estimate.false_by_network, 86_400.0 * 0.0199_f64.powi(2)), "{estimate:?}");
}

/// Without loss a pause of 2s costs the office exactly if it begins after 640ms of a period of
/// 1000ms: waking at 2640ms or later, the work must have stopped. A pause of the store does if it
/// ends too late for an answer, which without a round trip is the same moment.
#[test]
fn a_pause_costs_the_office_if_it_ends_after_the_work_must_stop() {
    let pause = Pause { length_ms: 2_000, every_ms: 24 * 60 * 60 * 1000 };
    let estimate = estimate_lease(&budget(3_000), &flat(0, 0, vec![pause]));
    let lost = (0..64).filter(|phase| 1_000 * (2 * phase + 1) / 128 >= 640).count() as f64 / 64.0;
    assert!((lost - 0.36).abs() < 0.01);
    assert!(close(estimate.false_by_pauses, 2.0 * lost), "{estimate:?}");
    let short = Pause { length_ms: 1_600, ..pause };
    assert!(close(estimate_lease(&budget(3_000), &flat(0, 0, vec![short])).false_by_pauses, 0.0));
}

/// Three voters, heartbeats every 50ms and a window of 150ms: three answers of each follower fall
/// into it, and both must have lost all three. 576,000 windows a day.
#[test]
fn a_log_is_lost_when_a_whole_window_of_both_followers_is_lost() {
    let timers = LogTimers { heartbeat_ms: 50, election_ms_min: 150, election_ms_max: 300 };
    let estimate = estimate_log(&timers, &flat(1_000, 100_000, vec![]));
    let silent = 0.19_f64.powi(3);
    let unheard = 0.1_f64.powi(3);
    let expected = 576_000.0 * silent * silent + 1_728_000.0 * unheard * unheard;
    assert!(close(estimate.false_by_network, expected), "{estimate:?} {expected}");
}

/// A leader that stands still for longer than the largest time-out is deposed every time, one that
/// does for less than the smallest less one heartbeat never.
#[test]
fn a_pause_of_the_log_s_leader_deposes_it_if_somebody_has_less_patience() {
    let timers = LogTimers { heartbeat_ms: 50, election_ms_min: 150, election_ms_max: 300 };
    let daily = |length_ms| {
        let pause = Pause { length_ms, every_ms: 24 * 60 * 60 * 1000 };
        estimate_log(&timers, &flat(0, 0, vec![pause])).false_by_pauses
    };
    assert!(close(daily(300), 1.0));
    assert!(close(daily(100), 0.0));
    assert!(daily(150) > 0.0 && daily(150) < daily(200) && daily(200) < 1.0);
}

#[test]
fn a_single_voter_is_deposed_by_nobody_and_two_by_any_silence() {
    let timers = LogTimers::of_election(150);
    let pause = Pause { length_ms: 400, every_ms: 60_000 };
    let alone = Surroundings::new(vec![], 500_000, vec![pause]);
    assert!(close(estimate_log(&timers, &alone).false_per_day(), 0.0));
    let two = Surroundings::new(vec![Trips::of(1_000)], 0, vec![pause]);
    assert!(
        close(estimate_log(&timers, &two).false_by_pauses, 2.0 * 1440.0),
        "either of them pauses"
    );
}

#[test]
fn the_smallest_setting_that_meets_both_targets_is_chosen_or_what_is_in_the_way_is_named() {
    let surroundings = flat(10_000, 10_000, vec![]);
    let curve =
        Curve::of(&lease_ladder(Drift::DEFAULT), |budget| estimate_lease(budget, &surroundings));
    let target = |failover_ms| Target { failover_ms, false_failovers: Rate::WEEKLY };
    let Choice::Found(at) = curve.choose(&target(60_000)) else { panic!("a minute is enough") };
    assert!(curve.0[..at].iter().all(|point| !point.estimate.is_calm(&target(60_000))));
    let ttl_ms = curve.0[at].setting.ttl_ms();
    let Choice::TargetsConflict { calm, quick } = curve.choose(&target(1_000)) else {
        panic!("a second is too little")
    };
    assert_eq!(calm.map(|at| curve.0[at].setting.ttl_ms()), Some(ttl_ms));
    assert!(quick.is_some_and(|quick| quick < at));
}

#[test]
fn trips_between_two_bounds_stay_there_and_short_ones_are_more_likely() {
    let trips = Trips::between(2_000, 20_000);
    assert!(trips.within(1_999) == 0.0 && trips.within(20_000) == 1.0);
    assert!(trips.at_permille(500) < 8_000, "{}", trips.at_permille(500));
    assert!(trips.at_permille(990) > 11_000 && trips.longest_us() == 20_000);
    let counted = Trips::counted(&[(500, 90), (1_000, 0), (5_000, 10)]).unwrap();
    assert_eq!((counted.at_permille(500), counted.at_permille(901)), (500, 5_000));
    assert_eq!(Trips::counted(&[(500, 0)]), None);
}

#[test]
fn the_arithmetic_is_told_with_its_numbers() {
    let pause = Pause { length_ms: 300, every_ms: 600_000 };
    let surroundings = flat(10_000, 10_000, vec![pause]);
    let lease = estimate_lease(&budget(3_000), &surroundings);
    let told = explain_lease(&budget(3_000), &surroundings, &lease);
    for part in
        ["3 tries fit", "at 1s, 1.6s, 2.2s", "0.02", "86400 renewals a day", "300ms every 600s"]
    {
        assert!(told.contains(part), "{part} is missing: {told}");
    }
    let timers = LogTimers::of_election(150);
    let told = explain_log(&timers, &surroundings, &estimate_log(&timers, &surroundings));
    assert!(
        told.contains("3 of them before the most impatient of 2 followers stands after 150ms"),
        "{told}"
    );
}

fn somewhere() -> impl Strategy<Value = (u64, u64, u64, u64)> {
    (0..200_000_u64, 0..2_000_000_u64, 0..5_000_u64, 1_000..86_400_000_u64)
}

proptest! {
    #[test]
    fn more_loss_never_recommends_a_smaller_setting(
        (low, more, pause_ms, every_ms) in somewhere(),
        loss in 0..500_000_u32,
        extra in 0..400_000_u32,
        failover_ms in 500..120_000_u64,
    ) {
        let at = |loss_ppm| {
            let pauses = vec![Pause { length_ms: pause_ms, every_ms }];
            Surroundings::new(vec![Trips::between(low, low + more); 2], loss_ppm, pauses)
        };
        let target = Target { failover_ms, false_failovers: Rate::WEEKLY };
        let (less, more) = (at(loss), at(loss + extra));
        let budgets = lease_ladder(Drift::DEFAULT);
        let lease = |s: &Surroundings| Curve::of(&budgets, |b| estimate_lease(b, s)).choose(&target);
        prop_assert!(place(lease(&less)) <= place(lease(&more)));
        let timers = log_ladder();
        let log = |s: &Surroundings| Curve::of(&timers, |t| estimate_log(t, s)).choose(&target);
        prop_assert!(place(log(&less)) <= place(log(&more)));
    }

    #[test]
    fn longer_pauses_never_recommend_a_smaller_setting(
        (low, more, pause_ms, every_ms) in somewhere(),
        longer_ms in 0..5_000_u64,
    ) {
        let at = |length_ms| {
            let pauses = vec![Pause { length_ms, every_ms }];
            Surroundings::new(vec![Trips::between(low, low + more); 4], 0, pauses)
        };
        let target = Target { failover_ms: u64::MAX, false_failovers: Rate::WEEKLY };
        let (short, long) = (at(pause_ms), at(pause_ms + longer_ms));
        let budgets = lease_ladder(Drift::DEFAULT);
        let lease = |s: &Surroundings| Curve::of(&budgets, |b| estimate_lease(b, s)).choose(&target);
        prop_assert!(place(lease(&short)) <= place(lease(&long)));
        let timers = log_ladder();
        let log = |s: &Surroundings| Curve::of(&timers, |t| estimate_log(t, s)).choose(&target);
        prop_assert!(place(log(&short)) <= place(log(&long)));
    }

    #[test]
    fn whatever_is_estimated_is_a_number_within_its_bounds(
        (low, more, pause_ms, every_ms) in somewhere(),
        loss in 0..=1_000_000_u32,
        peers in 0..8_usize,
        percent in 100..1_600_u64,
    ) {
        let pauses = vec![Pause { length_ms: pause_ms, every_ms }];
        let surroundings = Surroundings::new(vec![Trips::between(low, low + more); peers], loss, pauses);
        let mut estimates: Vec<Estimate> =
            lease_ladder(Drift::COARSE).iter().map(|b| estimate_lease(b, &surroundings)).collect();
        for timers in log_ladder() {
            let stretched = timers.stretched(percent);
            prop_assert!(2 * stretched.heartbeat_ms < stretched.election_ms_min);
            prop_assert!(stretched.election_ms_min < stretched.election_ms_max);
            estimates.push(estimate_log(&stretched, &surroundings));
        }
        for estimate in estimates {
            prop_assert!(estimate.false_by_network.is_finite() && estimate.false_by_network >= 0.0);
            prop_assert!(estimate.false_by_pauses.is_finite() && estimate.false_by_pauses >= 0.0);
            prop_assert!(estimate.failover_ms_p50 <= estimate.failover_ms_p99);
        }
    }
}

fn place(choice: Choice) -> usize {
    match choice {
        Choice::Found(at) => at,
        Choice::TargetsConflict { .. } => usize::MAX,
    }
}
