//! L3, third part: no fault, no change. While the core is steady nobody is granted anything, and
//! nobody else begins to lead the log.

use super::{Case, Verdict, Violation};
use crate::history::{Stage, What};

pub(super) fn check(case: &Case<'_>) -> Verdict {
    let (Some((from, _)), Some((to, _))) = (case.stage(Stage::Steady), case.stage(Stage::Rotation))
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
    for event in case.history.events.iter().filter(|event| is_within(event.at)) {
        if let What::RaftLeader { raft_term } = &event.what {
            let how = format!(
                "{} began to lead the log in Raft term {raft_term} although nothing had happened",
                event.proc
            );
            return Err(Violation::new("L3", event.at, how));
        }
    }
    Ok(())
}
