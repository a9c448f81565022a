//! S8: replicas agree: equal logs and equal states at equal indexes, after crashes and snapshots, and
//! equal to what the committed log gives when it is replayed.

use std::collections::BTreeMap;

use super::{Case, CheckResult, Violation};
use crate::chronicle::{Step, replay};
use crate::fnv::print;
use crate::history::{Proc, What};

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    let mut chains: BTreeMap<u64, (u64, Proc)> = BTreeMap::new();
    let mut states: BTreeMap<u64, (u64, Proc)> = BTreeMap::new();
    for event in &case.history.events {
        let (index, found, known, what) = match &event.what {
            What::Apply { index, chain, .. } => (*index, *chain, &mut chains, "logs"),
            What::StateHash { index, hash, .. } => (*index, *hash, &mut states, "states"),
            _ => continue,
        };
        let (expected, other) = *known.entry(index).or_insert((found, event.proc));
        if expected != found {
            let how = format!("the {what} of {other} and {} differ at entry {index}", event.proc);
            return Err(Violation::new("S8", event.at, how));
        }
    }
    replayed(case, &states)
}

/// What the log gives when it is replayed as a whole is what the replicas have.
fn replayed(case: &Case<'_>, states: &BTreeMap<u64, (u64, Proc)>) -> CheckResult {
    let mut index = case.history.setup.founded_at;
    let mut verdict = Ok(());
    replay(case.history, |replicated, step| {
        index += 1;
        let at = match &step {
            Step::Applied(record) => record.at,
            Step::Members(at, _) => *at,
            Step::Nothing => 0,
        };
        if let Some((hash, proc)) = states.get(&index)
            && verdict.is_ok()
            && print(replicated.encode()) != *hash
        {
            let how = format!("the state of {proc} at entry {index} is not what the log gives");
            verdict = Err(Violation::new("S8", at, how));
        }
    })?;
    verdict
}
