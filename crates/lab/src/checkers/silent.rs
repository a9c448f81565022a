//! L3, second part: an office is not given to one who may be dead. A standby that the Raft leader has
//! not heard for half its ttl is passed over (semantics 12).
//!
//! The leader knows what its loop has taken and what it has applied, not what waits in its inbox or
//! was applied elsewhere first. So a sign of life counts from when it was taken, and an opening from
//! when this very leader applied it; one that it had not applied it could not call silent.

use super::judge::{Judges, Since};
use super::{Case, CheckResult, Violation};

/// Sessions are looked at in every turn before anything is appended, to the millisecond.
const SLACK_NS: u64 = 2_000_000;

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    let judges = Judges::of(case);
    for tenure in case.chronicle.tenures.iter().filter(|tenure| tenure.is_promotion) {
        let Some((judge, proc, clock)) = judges.appended(tenure.granted_index) else { continue };
        let Some(session) = case.chronicle.sessions.get(&tenure.session) else { continue };
        let since = judge.counts_from(session.secret, clock, 0, Since::Taking);
        let Some((since, _)) = since else { continue };
        // It judged then, so whatever it applied before was of this run.
        let Some(opened) = judge.applied(session.opened_index) else { continue };
        let silent_for = clock.saturating_sub(since.max(opened));
        if silent_for > session.ttl_ms * 500_000 + SLACK_NS {
            let how = format!(
                "{proc} gave {} to session {:x}, unheard for {} ms of its {} ms",
                tenure.group,
                session.secret.get(),
                silent_for / 1_000_000,
                session.ttl_ms
            );
            return Err(Violation::new("L3", tenure.granted.0, how));
        }
    }
    Ok(())
}
