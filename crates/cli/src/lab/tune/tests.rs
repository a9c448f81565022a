//! Words that are read, and which settings are played.

use super::*;

#[test]
fn words_are_read_and_others_refused_with_examples() {
    assert_eq!(parse::trips("2ms..20ms"), Ok(2_000..=20_000));
    assert_eq!(parse::trips("500us"), Ok(500..=500));
    for text in ["", "20ms..2ms", "2..20", "ms", "2ms..", "2h"] {
        assert!(parse::trips(text).is_err(), "{text}");
    }
    assert_eq!(parse::loss("1%"), Ok(10_000));
    assert_eq!(parse::loss("0.25%"), Ok(2_500));
    for text in ["", "1", "%", "-1%", "0.00001%", "91%", "99999999999%"] {
        assert!(parse::loss(text).is_err(), "{text}");
    }
    assert_eq!(parse::rate("1/week"), Ok(Rate::WEEKLY));
    for text in ["", "1", "0/day", "1/fortnight", "x/day"] {
        assert!(parse::rate(text).is_err(), "{text}");
    }
}

#[test]
fn a_gap_between_targets_is_shown_from_end_to_end() {
    let of = |low, high, rungs| places(low, high, rungs).collect::<Vec<_>>();
    assert_eq!(of(10, 10, 27), [7, 8, 9, 10, 11, 12, 13]);
    assert_eq!(of(0, 0, 27), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(of(26, 26, 27), [20, 21, 22, 23, 24, 25, 26]);
    assert_eq!(of(8, 11, 27), [6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(of(2, 20, 27), [2, 5, 8, 11, 14, 17, 20]);
}

#[test]
fn settings_around_the_estimated_one_are_played_and_never_fewer() {
    let place = |loss_ppm| Place { trip_us: 2_000..=20_000, loss_ppm, pause: None, voters: 3 };
    for (loss_ppm, failover_ms) in [(0, 500), (0, 60_000), (500_000, 500), (800_000, 3_600_000)] {
        let target = Target { failover_ms, false_failovers: Rate::WEEKLY };
        for rungs in [lease_rungs(&place(loss_ppm), &target), log_rungs(&place(loss_ppm), &target)]
        {
            assert_eq!(rungs.len(), 2 * BESIDE + 1, "{loss_ppm} {failover_ms}");
            assert!(rungs.is_sorted_by(|a, b| a.setting.size_ms() < b.setting.size_ms()));
        }
    }
}
