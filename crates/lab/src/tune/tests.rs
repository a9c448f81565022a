//! Figures worked by hand, runs that repeat, and the arithmetic against the play.

use regent_election::tuning::{Pause, Rate, log_ladder};

use super::*;

fn place(loss_ppm: u32, pause: Option<Pause>) -> Place {
    Place { trip_us: 2_000..=20_000, loss_ppm, pause, voters: 3 }
}

#[test]
fn nothing_seen_in_n_days_is_at_most_three_in_n() {
    let seen = Seen { events: 0, watched_ms: 10 * 86_400_000 };
    assert!((seen.at_most_per_day() - 0.299_57).abs() < 1e-4, "-ln 0.05 = 2.9957");
    assert!(seen.at_least_per_day() == 0.0);
    assert_eq!(seen.against(Rate { count: 3, per_ms: 10 * 86_400_000 }), Verdict::Rarer);
    assert_eq!(seen.against(Rate::WEEKLY), Verdict::Open);
    // Of a Poisson with 4 events the one-sided bounds are 1.366 and 9.154.
    let four = Seen { events: 4, watched_ms: 86_400_000 };
    assert!((four.at_least_per_day() - 1.366).abs() < 1e-3, "{}", four.at_least_per_day());
    assert!((four.at_most_per_day() - 9.154).abs() < 1e-3, "{}", four.at_most_per_day());
    assert_eq!(four.against(Rate { count: 1, per_ms: 86_400_000 }), Verdict::MoreFrequent);
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
    let cases = [
        (Setting::ttl(1_000).unwrap(), place(150_000, None)),
        (Setting::ttl(1_000).unwrap(), place(0, Some(Pause { length_ms: 700, every_ms: 10_000 }))),
        (Setting::Log(LogTimers::of_election(150)), place(350_000, None)),
        (
            Setting::Log(LogTimers::of_election(150)),
            place(0, Some(Pause { length_ms: 180, every_ms: 5_000 })),
        ),
    ];
    for (setting, place) in cases {
        let mut seen = Seen::default();
        for seed in 0..12 {
            seen.events += calm(&setting, &place, seed);
            seen.watched_ms += setting.calm_for().as_millis() as u64;
        }
        let estimated = setting.estimate(&place).false_per_day();
        println!(
            "{setting:?} {place:?}: {} events, {} vs {estimated}",
            seen.events,
            seen.per_day()
        );
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
        println!(
            "{setting:?} {:?} {:?} {estimate:?}",
            measured.failover_ms(500),
            measured.failover_ms(990)
        );
    }
}
