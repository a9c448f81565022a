//! Figures worked by hand, runs that repeat, and the arithmetic against the play.

use regent_election::tuning::{Choice, Pause, Rate, Target, log_ladder};

use super::*;

fn place(loss_ppm: u32, pause: Option<Pause>) -> NetworkConditions {
    NetworkConditions { trip_us: 2_000..=20_000, loss_ppm, pause, voters: 3 }
}

#[test]
fn nothing_seen_in_n_days_is_at_most_three_in_n() {
    let seen = Seen { events: 0, watched_ms: 10 * 86_400_000 };
    assert!((seen.at_most_per_day() - 0.299_57).abs() < 1e-4, "-ln 0.05 = 2.9957");
    assert!(seen.at_least_per_day() == 0.0);
    assert_eq!(seen.against(Rate { count: 3, per_ms: 10 * 86_400_000 }), RateVerdict::Rarer);
    assert_eq!(seen.against(Rate::WEEKLY), RateVerdict::Open);
    // Of a Poisson with 4 events the one-sided bounds are 1.366 and 9.154.
    let four = Seen { events: 4, watched_ms: 86_400_000 };
    assert!((four.at_least_per_day() - 1.366).abs() < 1e-3, "{}", four.at_least_per_day());
    assert!((four.at_most_per_day() - 9.154).abs() < 1e-3, "{}", four.at_most_per_day());
    assert_eq!(four.against(Rate { count: 1, per_ms: 86_400_000 }), RateVerdict::MoreFrequent);
    let many = Seen { events: 1_000, watched_ms: 86_400_000 };
    assert!((940.0..1_000.0).contains(&many.at_least_per_day()), "{}", many.at_least_per_day());
    assert!((1_000.0..1_060.0).contains(&many.at_most_per_day()), "{}", many.at_most_per_day());
}

#[test]
fn every_rung_of_the_log_is_one_that_replicas_take() {
    for timers in log_ladder() {
        assert!(Setting::timing(&timers).is_ok(), "{timers:?}");
    }
}

#[test]
fn one_seed_gives_one_figure() {
    let place = place(50_000, Some(Pause { length_ms: 300, every_ms: 20_000 }));
    let ttl = Setting::ttl(1_000).unwrap();
    let log = Setting::Log(LogTimers::of_election(150));
    for setting in [ttl, log] {
        assert_eq!(calm(&setting, &place, 7), calm(&setting, &place, 7));
        assert_eq!(crash(&setting, &place, 7), crash(&setting, &place, 7));
        assert!(matches!(crash(&setting, &place, 7), Crash::Succeeded(_)), "{setting:?}");
    }
}

#[test]
fn without_loss_and_pauses_no_office_changes_hands() {
    for setting in [Setting::ttl(500).unwrap(), Setting::Log(LogTimers::of_election(150))] {
        assert_eq!(calm(&setting, &place(0, None), 3), 0, "{setting:?}");
    }
}

/// The arithmetic and the play must agree where enough happens for the play to be sure.
#[test]
fn what_is_estimated_is_what_is_played() {
    let log = Setting::Log(LogTimers::of_election(150));
    let pause = |length_ms, every_ms| Some(Pause { length_ms, every_ms });
    let cases = [
        (Setting::ttl(1_000).unwrap(), place(150_000, None), 0.7..1.3),
        (Setting::ttl(1_000).unwrap(), place(0, pause(700, 10_000)), 0.7..1.3),
        (log, place(350_000, None), 0.5..1.5),
        // Whoever is impatient leads after a while, and is not among those who lose patience.
        (log, place(0, pause(180, 5_000)), 0.02..1.3),
    ];
    for (setting, place, expected) in cases {
        let mut seen = Seen::default();
        for seed in 0..12 {
            seen.events += calm(&setting, &place, seed);
            seen.watched_ms += setting.calm_for().as_millis() as u64;
        }
        let ratio = seen.per_day() / setting.estimate(&place).false_per_day();
        assert!(expected.contains(&ratio), "{setting:?} {place:?}: {seen:?}, {ratio} of it");
    }
}

#[test]
fn a_dead_leader_is_succeeded_about_when_the_arithmetic_says() {
    for setting in [Setting::ttl(2_000).unwrap(), Setting::Log(LogTimers::of_election(300))] {
        let place = place(0, None);
        let mut measured = Measured::default();
        for seed in 0..60 {
            measured.note_crash(crash(&setting, &place, seed));
        }
        let estimate = setting.estimate(&place);
        let p50 = measured.failover_ms(500).unwrap() as f64 / estimate.failover_ms_p50 as f64;
        assert!((0.85..1.15).contains(&p50), "{setting:?}: {p50} of {estimate:?}");
        let p99 = measured.failover_ms(990).unwrap() as f64 / estimate.failover_ms_p99 as f64;
        assert!((0.5..1.15).contains(&p99), "{setting:?}: {p99} of {estimate:?}");
        assert_eq!(measured.orphaned, 0);
    }
}

#[test]
fn a_setting_is_judged_by_what_was_seen_and_else_by_the_arithmetic() {
    let setting = Setting::ttl(3_000).unwrap();
    let estimate = setting.estimate(&place(10_000, None));
    let target = Target { failover_ms: 5_000, false_failovers: Rate::WEEKLY };
    let rung = |events, days: u64, false_by_network, failover_ms: u64| Rung {
        setting,
        estimate: Estimate { false_by_network, ..estimate },
        measured: Measured {
            false_failovers: Seen { events, watched_ms: days * 86_400_000 },
            failovers_ns: vec![failover_ms * 1_000_000; 100],
            orphaned: 0,
        },
    };
    assert!(rung(0, 30, 1.0, 1).is_calm(&target), "seen for long enough, whatever was estimated");
    assert!(!rung(9, 7, 0.0, 1).is_calm(&target), "seen too often, whatever was estimated");
    assert!(rung(0, 1, 0.1, 1).is_calm(&target) && !rung(0, 1, 0.2, 1).is_calm(&target));
    let rungs = [
        rung(9, 7, 1.0, 1_000),
        rung(0, 1, 0.2, 2_000),
        rung(0, 1, 0.1, 4_000),
        rung(0, 1, 0.0, 6_000),
    ];
    assert_eq!(Rung::choose(&rungs, &target), Choice::Found(2));
    let hasty = Target { failover_ms: 3_000, ..target };
    let conflict = Choice::TargetsConflict { calm: Some(2), quick: Some(1) };
    assert_eq!(Rung::choose(&rungs, &hasty), conflict);
    let mut orphan = rung(0, 30, 0.0, 1_000);
    orphan.measured.orphaned = 2;
    assert!(!orphan.is_quick(&target), "two of a hundred were never succeeded");
}
