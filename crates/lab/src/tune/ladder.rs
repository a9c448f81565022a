//! Which settings are played: those around the one that the arithmetic would choose.

use regent_election::Drift;
use regent_election::tuning::{Choice, Curve, Target, lease_ladder, log_ladder};

use super::{Measured, NetworkConditions, Rung, Setting};

/// Settings that are played on either side of the one that the arithmetic would choose.
const BESIDE: usize = 3;

/// Ttls around the one that the arithmetic would choose.
#[must_use]
pub fn lease_rungs(place: &NetworkConditions, target: &Target) -> Vec<Rung> {
    let settings: Vec<Setting> =
        lease_ladder(Drift::DEFAULT).into_iter().map(Setting::Lease).collect();
    around(&settings, place, target)
}

/// Time-outs of the log around the one that the arithmetic would choose.
#[must_use]
pub fn log_rungs(place: &NetworkConditions, target: &Target) -> Vec<Rung> {
    let is_taken = |setting: &Setting| match setting {
        Setting::Log(timers) => Setting::timing(timers).is_ok(),
        Setting::Lease(_) => true,
    };
    let settings: Vec<Setting> =
        log_ladder().into_iter().map(Setting::Log).filter(is_taken).collect();
    around(&settings, place, target)
}

fn around(settings: &[Setting], place: &NetworkConditions, target: &Target) -> Vec<Rung> {
    let curve = Curve::of(settings, |setting| setting.estimate(place));
    let (low, high) = match curve.choose(target) {
        Choice::Found(at) => (at, at),
        // Whatever lies between is in the way, and both ends are worth a look.
        Choice::TargetsConflict { calm: Some(calm), quick: Some(quick) } => {
            (calm.min(quick), calm.max(quick))
        }
        Choice::TargetsConflict { calm, quick } => {
            let end = calm.or(quick).unwrap_or(settings.len() - 1);
            (end, end)
        }
    };
    places(low, high, settings.len())
        .filter_map(|at| curve.0.get(at).copied())
        .map(|point| Rung {
            setting: point.setting,
            estimate: point.estimate,
            measured: Measured::default(),
        })
        .collect()
}

/// Places of a ladder with so many rungs: both of these and those around them, and of a wide gap
/// some, evenly.
fn places(low: usize, high: usize, rungs: usize) -> impl Iterator<Item = usize> {
    const COUNT: usize = 2 * BESIDE + 1;
    let spare = COUNT.saturating_sub(high - low + 1);
    let from = low.saturating_sub(spare.div_ceil(2)).min(rungs.saturating_sub(COUNT));
    let to = (from + COUNT - 1).max(high).min(rungs.saturating_sub(1));
    let steps = (COUNT - 1).min(to - from);
    (0..=steps).map(move |step| from + (to - from) * step / steps.max(1))
}

#[cfg(test)]
mod tests {
    use regent_election::tuning::Rate;

    use super::*;

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
        let place = |loss_ppm| NetworkConditions {
            trip_us: 2_000..=20_000,
            loss_ppm,
            pause: None,
            voters: 3,
        };
        for (loss_ppm, failover_ms) in [(0, 500), (0, 60_000), (500_000, 500), (800_000, 3_600_000)]
        {
            let target = Target { failover_ms, false_failovers: Rate::WEEKLY };
            for rungs in
                [lease_rungs(&place(loss_ppm), &target), log_rungs(&place(loss_ppm), &target)]
            {
                assert_eq!(rungs.len(), 2 * BESIDE + 1, "{loss_ppm} {failover_ms}");
                assert!(rungs.is_sorted_by(|a, b| a.setting.size_ms() < b.setting.size_ms()));
            }
        }
    }
}
