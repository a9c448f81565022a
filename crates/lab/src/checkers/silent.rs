//! L3, second part: an office is not given to one who may be dead. A standby that the Raft leader has
//! not heard for half its ttl is passed over (semantics 12).

use super::judge::Judges;
use super::{Case, Verdict, Violation};

/// A session is looked at once a turn, and turns of a busy loop are this far apart at most.
const SLACK_NS: u64 = 15_000_000;

pub(super) fn check(case: &Case<'_>) -> Verdict {
    let judges = Judges::of(case);
    for tenure in case.chronicle.tenures.iter().filter(|tenure| tenure.is_promotion) {
        let Some((judge, proc, clock)) = judges.appended(tenure.granted_index) else { continue };
        let Some(session) = case.chronicle.sessions.get(&tenure.session) else { continue };
        let half_ns = session.ttl_ms * 500_000;
        let age = tenure.granted.0.saturating_sub(session.opened);
        let Some((since, _)) = judge.counts_from(session.secret, clock, 0) else { continue };
        let since = since.max(judge.last_sign(session.secret, clock));
        let silent_for = clock.saturating_sub(since);
        // What opened it was a sign of life, too; its age is true time, so it is given some more.
        if age > half_ns + half_ns / 10 + SLACK_NS && silent_for > half_ns + SLACK_NS {
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
