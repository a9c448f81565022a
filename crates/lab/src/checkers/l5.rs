//! L5: healed replicas agree in time, and again after they were all born again.

use std::collections::BTreeSet;

use super::{Case, CheckResult, Violation};
use crate::history::{Stage, What};
use crate::world::AGREE_MS_MAX;

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    for (from, to) in [(Stage::Healed, Stage::Reborn), (Stage::Reborn, Stage::End)] {
        let (Some((from, _)), Some((to, _))) = (case.stage(from), case.stage(to)) else {
            continue;
        };
        let states: BTreeSet<(u64, u64)> = case
            .history
            .events
            .iter()
            .filter(|event| from < event.at && event.at <= to)
            .filter_map(|event| match &event.what {
                What::StateHash { index, hash, .. } => Some((*index, *hash)),
                _ => None,
            })
            .collect();
        // Those of the way there are of lower indexes; the last ones must be equal.
        let last = states.iter().map(|(index, _)| *index).max();
        let is_late = to - from > (AGREE_MS_MAX + 1_000) * 1_000_000;
        let behind = final_indexes(case, from, to).into_iter().find(|index| Some(*index) != last);
        if is_late || behind.is_some() {
            let how = format!("healed replicas stand at {behind:?} and {last:?}");
            return Err(Violation::new("L5", to, how));
        }
    }
    Ok(())
}

/// The index of the last state that each replica showed between the two.
fn final_indexes(case: &Case<'_>, from: u64, to: u64) -> Vec<u64> {
    let mut last = std::collections::BTreeMap::new();
    for event in case.history.events.iter().filter(|event| from < event.at && event.at <= to) {
        if let What::StateHash { index, .. } = &event.what {
            last.insert(event.proc, *index);
        }
    }
    last.into_values().collect()
}
