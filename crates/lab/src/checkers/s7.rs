//! S7: the store is linearizable, shown by two methods that know nothing of each other.
//!
//! The witness: every answer names its revision. The committed log is replayed and each answer must
//! be exactly what the state machine says at that revision; and revisions respect real time: what was
//! answered before a question was asked is visible to it. No search, and time-outs are no riddle.
//! The black box ([`super::wgl`]) trusts no revision and looks for any order that explains the answers.

use std::collections::BTreeMap;

use regent_election::state::Lens;
use regent_election::{Incarnation, Revision};
use regent_replica::ReplicatedState;

use super::{Call, Case, CheckResult, End, Violation, wgl};
use crate::chronicle::{AppliedEntry, Step, replay};
use crate::history::{Op, Out, What, plain};

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    answers(case)?;
    real_time(case)?;
    refusals(case)?;
    wgl::check(case)
}

/// Every answer is what the state machine says at its revision.
fn answers(case: &Case<'_>) -> CheckResult {
    let mut wanted: BTreeMap<Revision, Vec<(u64, &Call<'_>)>> = BTreeMap::new();
    for (number, call) in &case.calls {
        if let End::Ok { revision: Some(revision), .. } = call.end {
            wanted.entry(revision).or_default().push((*number, call));
        }
    }
    let setup = &case.history.setup;
    let mut verdict = Ok(());
    let mut judge =
        |replicated: &ReplicatedState, revision: Revision, record: Option<&AppliedEntry>| {
            for (number, call) in wanted.remove(&revision).unwrap_or_default() {
                if verdict.is_ok()
                    && let Err(how) = explain(replicated, record, call)
                {
                    let End::Ok { at, .. } = call.end else { continue };
                    let how = format!("call {number} ({}) at revision {revision}: {how}", call.op);
                    verdict = Err(Violation::new("S7", at, how));
                }
            }
        };
    let founded = setup.founding();
    judge(&founded, founded.state.revision(), None);
    replay(case.history, |replicated, step| {
        if let Step::Applied(record) = step {
            judge(replicated, record.applied.revision, Some(&record));
        }
    })?;
    verdict?;
    match wanted.first_key_value() {
        None => Ok(()),
        Some((revision, calls)) => {
            let how = format!("call {} was answered at {revision}, which never was", calls[0].0);
            Err(Violation::new("S7", case.history.end(), how))
        }
    }
}

/// Whether a call's answer is the state machine's; the error says what that would have been.
fn explain(
    replicated: &ReplicatedState,
    record: Option<&AppliedEntry>,
    call: &Call<'_>,
) -> Result<(), String> {
    let End::Ok { out, .. } = call.end else { return Ok(()) };
    let state = &replicated.state;
    let lens = Lens { incarnation: Incarnation(1), remaining: &|_| None, is_silent: &|_| false };
    match (call.op, out) {
        (Op::Submit { command, request, query }, Out::Applied { answer, view }) => {
            let record = record.ok_or("no entry has this revision")?;
            if record.command != *command || record.request != *request {
                return Err(format!("the entry was another one: {:?}", record.command));
            }
            if record.applied.answer != *answer {
                return Err(format!("the rules said {:?}", record.applied.answer));
            }
            let expected = query.as_ref().map(|query| state.query(query, lens).map(plain));
            if expected == *view { Ok(()) } else { Err(format!("the view was {expected:?}")) }
        }
        (Op::Heartbeat { session, .. }, Out::Heartbeat { ttl_ms, epoch }) => {
            let no = state.find_session(*session).ok_or("there was no such session")?;
            let expected = (state.ttl_ms(no), state.epoch(no));
            if expected == (Some(*ttl_ms), Some(*epoch)) {
                return Ok(());
            }
            Err(format!("ttl and epoch were {expected:?}"))
        }
        (Op::Read { query, .. }, Out::Seen(view)) => {
            let expected = state.query(query, lens).map(plain);
            if expected.as_ref() == Ok(view) {
                return Ok(());
            }
            Err(format!("it was {expected:?} and not {view:?}"))
        }
        (op, out) => Err(format!("{op:?} was answered {out:?}")),
    }
}

/// What was answered before a question was asked is visible to it, and nothing is known before it is
/// committed.
fn real_time(case: &Case<'_>) -> CheckResult {
    let mut floors: BTreeMap<u64, Revision> = BTreeMap::new();
    let mut highest = Revision(0);
    for event in &case.history.events {
        if let What::Invoke { call, .. } = &event.what {
            floors.insert(*call, highest);
        }
        let What::Ok { call, revision: Some(revision), .. } = &event.what else { continue };
        let broken = |how: String| Err(Violation::new("S7", event.at, how));
        let committed_at = case.chronicle.record(*revision).map_or(0, |record| record.at);
        if committed_at > event.at {
            return broken(format!("call {call} knew revision {revision} before its commit"));
        }
        let Some(Call { op, .. }) = case.calls.get(call) else { continue };
        let floor = floors.get(call).copied().unwrap_or_default();
        let is_late = match op {
            Op::Read { linearizable: false, .. } => continue,
            Op::Read { .. } | Op::Heartbeat { .. } => *revision < floor,
            Op::Submit { .. } => *revision <= floor && floor > Revision(0),
            Op::Members(_) | Op::RaftTransfer { .. } => continue,
        };
        if is_late {
            return broken(format!(
                "call {call} ({op}) was answered at revision {revision}, although {floor} had been \
                 answered before it was asked"
            ));
        }
        highest = highest.max(*revision);
    }
    Ok(())
}

/// Nobody is told that a session is not open while it is, from the question to the answer.
pub(super) fn refusals(case: &Case<'_>) -> CheckResult {
    use regent_election::Refusal;
    use regent_election::store::StoreError;
    for event in &case.history.events {
        let What::Fail { call, error } = &event.what else { continue };
        if *error != StoreError::Refused(Refusal::SessionUnknown) {
            continue;
        }
        let Some(Call { op: Op::Heartbeat { session, .. }, sent, .. }) = case.calls.get(call)
        else {
            continue;
        };
        let is_open = case.chronicle.sessions.values().any(|known| {
            known.secret == *session
                && known.opened < *sent
                && known.ended.is_none_or(|ended| ended > event.at)
        });
        if is_open {
            let how = format!("call {call}: session {:x} was open all the time", session.get());
            return Err(Violation::new("S7", event.at, how));
        }
    }
    Ok(())
}
