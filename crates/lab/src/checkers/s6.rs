//! S6: nothing acknowledged is lost, not even when all replicas lose power at once.
//!
//! What is acknowledged has its revision; S7 holds every answer to the log. Here the log itself is held
//! to those who were born again from their disks: they must have come at least as far as anything
//! that was ever acknowledged.

use std::collections::BTreeMap;

use regent_election::Revision;

use super::{Case, CheckResult, End, Violation};
use crate::history::{Op, Out, Stage, What};

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    members(case)?;
    let Some((reborn, _)) = case.stage(Stage::Reborn) else { return Ok(()) };
    let acknowledged = case.calls.values().filter_map(|call| match call.end {
        End::Ok { at, revision, .. } if at <= reborn => revision,
        End::Ok { .. } | End::Fail { .. } | End::Unknown => None,
    });
    let highest = acknowledged.max().unwrap_or(Revision(0));
    let mut reached = BTreeMap::new();
    for event in case.history.events.iter().filter(|event| event.at > reborn) {
        if let What::StateHash { revision, .. } = &event.what {
            reached.insert(event.proc, (event.at, *revision));
        }
    }
    for (proc, (at, revision)) in reached {
        if revision < highest {
            let how = format!(
                "{proc} knows everything up to revision {revision}, and {highest} was acknowledged"
            );
            return Err(Violation::new("S6", at, how));
        }
    }
    Ok(())
}

/// A change of members that was acknowledged is in the log.
fn members(case: &Case<'_>) -> CheckResult {
    for call in case.calls.values() {
        let Op::Members(change) = call.op else { continue };
        let End::Ok { at, out: Out::Done, .. } = call.end else { continue };
        let is_there =
            case.chronicle.members.iter().any(|(since, known)| *since <= at && known == change);
        if !is_there {
            let how = format!("the change of members {change:?} was acknowledged and is not there");
            return Err(Violation::new("S6", at, how));
        }
    }
    Ok(())
}
