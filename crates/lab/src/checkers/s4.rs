//! S4: an acknowledged renewal means no other grant until its lease is over, unless the holder itself
//! gave the office up or it was taken by force.

use std::collections::BTreeMap;

use regent_election::{Group, Revision, SessionId, Term};

use super::{Case, CheckResult, End, Violation};
use crate::chronicle::Tenure;
use crate::history::{Op, Out};

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    if case.history.is_beyond_a1() {
        return Ok(());
    }
    let is_leased = case.history.setup.register.is_some();
    let mut held: BTreeMap<SessionId, Vec<&Tenure>> = BTreeMap::new();
    let mut grants: BTreeMap<&Group, Vec<(u64, Term)>> = BTreeMap::new();
    for tenure in &case.chronicle.tenures {
        if let Some(session) = case.chronicle.session_of(tenure) {
            held.entry(session).or_default().push(tenure);
        }
        grants.entry(&tenure.group).or_default().push((tenure.granted.0, tenure.term));
    }
    for call in case.calls.values() {
        let Op::Heartbeat { session, disowned, .. } = call.op else { continue };
        let End::Ok { at, revision: Some(revision), out: Out::Heartbeat { ttl_ms, .. } } = call.end
        else {
            continue;
        };
        let until = case.valid_until(call.sent, *ttl_ms);
        for tenure in held.get(session).into_iter().flatten() {
            // Revisions of a register have no order between groups; what was so before the question and
            // after the answer was so when it was acknowledged.
            let is_known = |since: (u64, Revision)| {
                if is_leased { since.0 <= call.sent } else { since.1 <= revision }
            };
            let is_later = |since: (u64, Revision)| {
                if is_leased { since.0 > at } else { since.1 > revision }
            };
            let is_led = tenure.accepted.is_some_and(is_known)
                && tenure.ending.is_none_or(is_later)
                && tenure.ended.as_ref().is_none_or(|end| is_later((end.at, end.revision)));
            let is_given_up = disowned.contains(&(tenure.group.clone(), tenure.term));
            let is_exempt = tenure.ended.as_ref().is_some_and(|end| end.by_holder || end.forced);
            if !is_led || is_given_up || is_exempt {
                continue;
            }
            let other = grants.get(&tenure.group).into_iter().flatten().copied();
            let mut other = other.filter(|(_, term)| *term != tenure.term);
            if let Some((granted_at, term)) = other.find(|(g, _)| at < *g && *g < until) {
                let how = format!(
                    "term {term} of {} was granted {} us before the lease acknowledged to \
                     session {:x} for term {} was over",
                    tenure.group,
                    (until - granted_at) / 1000,
                    session.get(),
                    tenure.term
                );
                return Err(Violation::new("S4", granted_at, how));
            }
        }
    }
    Ok(())
}
