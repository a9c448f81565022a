//! S13: no check passes after its lease, however long the process was paused, and a process that wakes
//! up without a lease says so at once.
//!
//! Independent of what the participant says of itself: the end of validity is computed from when each
//! acknowledged request left.

use std::collections::BTreeMap;

use regent_election::participant::Phase;
use regent_election::{Answer, Command, Group, SessionId};

use super::{Case, CheckResult, End, Violation};
use crate::history::{Op, Out, Proc, What};

/// How long a process that wakes up may take to say that it has lost.
const SAYS_SO_WITHIN_NS: u64 = 100_000_000;

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    if !case.history.is_beyond_a1() {
        guards(case)?;
    }
    wakes(case)
}

/// Every check that passed is covered by an acknowledged heartbeat or opening of its session.
fn guards(case: &Case<'_>) -> CheckResult {
    let mut opened: BTreeMap<SessionId, u64> = BTreeMap::new();
    let mut earned: BTreeMap<SessionId, Vec<(u64, u64)>> = BTreeMap::new();
    for call in case.calls.values() {
        let (session, sent) = match call.op {
            Op::Heartbeat { session, .. } => (*session, call.sent),
            Op::Submit { command: Command::Open { session, .. }, .. } => {
                // The store may have opened it on the first try.
                (*session, *opened.entry(*session).or_insert(call.sent))
            }
            Op::Submit { .. } | Op::Read { .. } | Op::Members(_) | Op::RaftTransfer { .. } => {
                continue;
            }
        };
        let End::Ok { at, out, .. } = call.end else { continue };
        let ttl_ms = match out {
            Out::Heartbeat { ttl_ms, .. }
            | Out::Applied { answer: Ok(Answer::Session { ttl_ms, .. }), .. } => *ttl_ms,
            Out::Applied { .. } | Out::Seen(_) | Out::Done => continue,
        };
        earned.entry(session).or_default().push((at, case.valid_until(sent, ttl_ms)));
    }
    for event in &case.history.events {
        let What::Guard { group, session: Some(session), passed: Some(term) } = &event.what else {
            continue;
        };
        let mut earned = earned.get(session).into_iter().flatten();
        if !earned.any(|(since, until)| *since <= event.at && event.at < *until) {
            let how = format!(
                "a check of {} passed for term {term} of {group} after its lease",
                event.proc
            );
            return Err(Violation::new("S13", event.at, how));
        }
    }
    Ok(())
}

/// A process that goes on after its lease has ended loses it at once.
fn wakes(case: &Case<'_>) -> CheckResult {
    let mut held: BTreeMap<(Proc, &Group), u64> = BTreeMap::new();
    let mut owed: BTreeMap<(Proc, &Group), u64> = BTreeMap::new();
    for event in &case.history.events {
        let late = owed.iter().find(|(_, by)| **by < event.at);
        if let Some(((proc, group), by)) = late {
            let how = format!("{proc} woke without a lease in {group} and did not say so");
            return Err(Violation::new("S13", *by, how));
        }
        match &event.what {
            What::Lead { group, held: Some(_), until, .. } => {
                held.insert((event.proc, group), *until);
            }
            What::Lead { group, held: None, .. } => {
                held.remove(&(event.proc, group));
                owed.remove(&(event.proc, group));
            }
            What::Phase { group, phase: Phase::Lost | Phase::Stopped, .. } => {
                owed.remove(&(event.proc, group));
            }
            What::Resumed => {
                let over = held
                    .iter()
                    .filter(|((proc, _), until)| *proc == event.proc && **until <= event.at);
                let over: Vec<_> = over.map(|(key, _)| *key).collect();
                owed.extend(over.into_iter().map(|key| (key, event.at + SAYS_SO_WITHIN_NS)));
            }
            What::Down => {
                held.retain(|(proc, _), _| *proc != event.proc);
                owed.retain(|(proc, _), _| *proc != event.proc);
            }
            _ => {}
        }
    }
    Ok(())
}
