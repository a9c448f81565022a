//! S9: a request takes effect at most once, however often it is repeated; and a definite no means
//! that nothing happened.

use std::collections::{BTreeMap, BTreeSet};

use regent_election::{Answer, Command, Effect, RequestId, SessionId, Term};

use regent_replica::replicated::Origin;

use super::{Case, CheckResult, End, Violation};
use crate::chronicle::{AppliedEntry, took_effect};
use crate::history::Op;

type Key = (Option<SessionId>, RequestId);

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    proposed_once(case)?;
    once(case)?;
    no_means_no(case)
}

/// No proposal of a replica is applied twice, whatever the network did with it.
fn proposed_once(case: &Case<'_>) -> CheckResult {
    let mut seen = BTreeSet::new();
    for record in &case.chronicle.records {
        if !seen.insert(record.origin) {
            let Origin { replica, boot, number } = record.origin;
            let how = format!("proposal {number} of replica {replica} in run {boot} ran twice");
            return Err(Violation::new("S9", record.at, how));
        }
    }
    Ok(())
}

fn once(case: &Case<'_>) -> CheckResult {
    let mut effects: BTreeMap<Key, &AppliedEntry> = BTreeMap::new();
    let mut granted: BTreeMap<Key, Term> = BTreeMap::new();
    for record in &case.chronicle.records {
        let Some(request) = &record.request else { continue };
        let key = (record.command.session(), request.clone());
        if is_effect(record)
            && let Some(before) = effects.insert(key.clone(), record)
        {
            let how = format!(
                "request {request} took effect at revision {} and again at {}",
                before.applied.revision, record.applied.revision
            );
            return Err(Violation::new("S9", record.at, how));
        }
        if let (Command::Campaign { .. }, Ok(Answer::Elected { term, .. })) =
            (&record.command, &record.applied.answer)
        {
            let first = *granted.entry(key).or_insert(*term);
            if first != *term {
                let how = format!("request {request} won term {first} and term {term}");
                return Err(Violation::new("S9", record.at, how));
            }
        }
    }
    Ok(())
}

/// Whether an entry changed what others can see.
fn is_effect(record: &AppliedEntry) -> bool {
    let is_visible = !record.applied.events.is_empty()
        || record.applied.effects.iter().any(|effect| match effect {
            Effect::SessionOpened { .. }
            | Effect::SessionEnded { .. }
            | Effect::TtlChanged { .. } => true,
            Effect::Wait { .. } | Effect::WaitDropped { .. } | Effect::Office { .. } => false,
        });
    is_visible && record.applied.answer.as_ref().is_ok_and(took_effect)
}

/// A request all of whose tries were definitely refused is not in the log.
fn no_means_no(case: &Case<'_>) -> CheckResult {
    let mut refused: BTreeMap<Key, u64> = BTreeMap::new();
    let mut open: BTreeSet<Key> = BTreeSet::new();
    for call in case.calls.values() {
        let Op::Submit { command, request: Some(request), .. } = call.op else { continue };
        let key = (command.session(), request.clone());
        match call.end {
            End::Fail { at } => {
                refused.insert(key, at);
            }
            End::Ok { .. } | End::Unknown => {
                open.insert(key);
            }
        }
    }
    for record in &case.chronicle.records {
        let Some(request) = &record.request else { continue };
        let key = (record.command.session(), request.clone());
        if let Some(at) = refused.get(&key)
            && !open.contains(&key)
        {
            let how = format!("request {request} was refused as not done, and was done");
            return Err(Violation::new("S9", (*at).max(record.at), how));
        }
    }
    Ok(())
}
