//! L3, third part: no fault, no change. While the core is steady nobody is granted anything, and
//! nobody begins to lead the log after one of the core.
//!
//! One outside of it may have been left to lead, as broken as it is: if its loop lags by a heartbeat
//! each time round, its followers lose patience with reason. Even that ends no tenure.

use super::{Case, CheckResult, Violation};
use crate::history::{Proc, Stage, What};

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    let (Some((_, core)), Some((from, _)), Some((to, _))) =
        (case.stage(Stage::Core), case.stage(Stage::Steady), case.stage(Stage::Rotation))
    else {
        return Ok(());
    };
    let is_within = |at: u64| from < at && at < to;
    let mut tenures = case.chronicle.tenures.iter();
    if let Some(tenure) = tenures.find(|tenure| is_within(tenure.granted.0)) {
        let (group, term) = (&tenure.group, tenure.term);
        let how = format!("term {term} of {group} was granted although nothing had happened");
        return Err(Violation::new("L3", tenure.granted.0, how));
    }
    let is_of_core = |proc: Proc| matches!(proc, Proc::Replica { id, .. } if core.contains(&id));
    let mut leader = None;
    for event in &case.history.events {
        let What::RaftLeader { raft_term } = &event.what else { continue };
        let before = leader.replace(event.proc);
        if is_within(event.at) && before.is_none_or(is_of_core) {
            let how = format!(
                "{} began to lead the log in Raft term {raft_term} although nothing had happened",
                event.proc
            );
            return Err(Violation::new("L3", event.at, how));
        }
    }
    Ok(())
}
