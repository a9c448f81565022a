//! L3, first part: the living are not expired. A session ends by expiry only after a whole ttl in
//! which the judge, on its own clock, neither heard it, nor began to judge, nor had been away
//! (semantics 5, 6 and 8). A change of Raft leader alone, or a store that slept, hands nothing over.

use regent_election::Command;

use super::judge::{Judges, Since};
use super::{Case, CheckResult, Violation};

/// A loop that was away for longer cannot tell who was silent, whatever the ttls are.
const AWAY_MAX_NS: u64 = regent_election::limits::LOOP_GAP_MS_MAX * 1_000_000;

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    let judges = Judges::of(case);
    for record in &case.chronicle.records {
        let Command::Expire { sessions } = &record.command else { continue };
        let Some((judge, proc, clock)) = judges.appended(record.index) else { continue };
        for no in sessions {
            let Some(session) = case.chronicle.sessions.get(no) else { continue };
            let (since, why) = judge
                .counts_from(session.secret, clock, AWAY_MAX_NS, Since::Arrival)
                .unwrap_or((clock, "somebody else had judged"));
            let waited = clock.saturating_sub(since);
            if waited < session.ttl_ms * 1_000_000 {
                let how = format!(
                    "{proc} expired session {:x} of ttl {} ms only {} us after {why}",
                    session.secret.get(),
                    session.ttl_ms,
                    waited / 1000
                );
                return Err(Violation::new("L3", record.at, how));
            }
        }
    }
    Ok(())
}
