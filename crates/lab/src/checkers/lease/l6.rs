//! L6: nobody starves. While every leader gives its office up in turn, one who stands in line and can be
//! heard wins within as many hand-overs as there are waiting, and one more.

use std::collections::BTreeMap;

use regent_election::SessionNo;

use crate::checkers::{Case, CheckResult, Violation};
use crate::history::Stage;

/// One who waits.
#[derive(Clone, Copy, Debug, Default)]
struct Wait {
    /// Grants to others since it joined the line.
    passed: usize,
    /// The longest line it stood in.
    line: usize,
}

pub(in crate::checkers) fn check(case: &Case<'_>) -> CheckResult {
    let (Some((from, _)), Some((to, _))) = (case.stage(Stage::Rotation), case.stage(Stage::Healed))
    else {
        return Ok(());
    };
    for (group, writes) in &case.chronicle.ledger.groups {
        let mut line: BTreeMap<SessionNo, Wait> = BTreeMap::new();
        for write in writes.iter().filter(|write| from < write.at && write.at < to) {
            let granted = write.changes.iter().filter(|change| change.leader.is_some()).count();
            let standing: Vec<SessionNo> = write.entry.state.standbys(group).collect();
            line.retain(|session, _| standing.contains(session));
            for session in &standing {
                let wait = line.entry(*session).or_default();
                wait.line = wait.line.max(standing.len());
                wait.passed += granted;
                if wait.passed > wait.line + 1 {
                    let how = format!(
                        "{session} stood in a line of {} for {group} through {} hand-overs",
                        wait.line, wait.passed
                    );
                    return Err(Violation::new("L6", write.at, how));
                }
            }
        }
    }
    Ok(())
}
