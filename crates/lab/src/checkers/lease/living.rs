//! L3, first part: the living are not expired. A session is ended by others only after its whole ttl in
//! true time has passed since its last sign of life took effect.

use std::collections::BTreeSet;

use regent_election::Command;

use crate::checkers::{Case, CheckResult, Violation};
use crate::history::{Op, What};
use crate::ledger::SessionWrite;

pub(in crate::checkers) fn check(case: &Case<'_>) -> CheckResult {
    if case.history.is_beyond_a1() {
        return Ok(());
    }
    let is_servers = case.history.setup.register.is_some_and(|plan| plan.times_sessions);
    let closed = closed(case);
    let ledger = &case.chronicle.ledger;
    for (digest, writes) in &ledger.sessions {
        let Some(at) = writes.iter().position(|write| write.entry.open.is_none()) else { continue };
        let (before, ended) = (&writes[..at], &writes[at]);
        let Some(last) = before.last() else { continue };
        let Some(open) = &last.entry.open else { continue };
        // Passing ones end by themselves, and an owner may end its own at any time.
        if open.is_passing || closed.contains(digest) {
            continue;
        }
        let heartbeats = ledger.heartbeats.get(digest).map(Vec::as_slice).unwrap_or_default();
        let heard = heartbeats.iter().copied().filter(|at| *at <= ended.at).max();
        let sign = if is_servers { heard } else { last_heartbeat(before) };
        let Some(sign) = sign else { continue };
        // Whoever watches lengthens the ttl by its own drift; an engine that counts itself does not.
        let owed =
            if is_servers { case.valid_until(0, open.hold_ms) } else { open.hold_ms * 1_000_000 };
        let waited = ended.at.saturating_sub(sign);
        if waited < owed {
            let how = format!(
                "session {digest:032x} of ttl {} ms was ended {} us after its last sign of life",
                open.hold_ms,
                waited / 1000
            );
            return Err(Violation::new("L3", ended.at, how));
        }
    }
    Ok(())
}

/// When the last sign of life was written; others write the entry, too.
fn last_heartbeat(writes: &[SessionWrite]) -> Option<u64> {
    let last = writes.last()?.entry.heartbeat;
    writes.iter().find(|write| write.entry.heartbeat == last).map(|write| write.at)
}

/// Sessions whose owner wanted them to end.
fn closed(case: &Case<'_>) -> BTreeSet<u128> {
    let mut closed = BTreeSet::new();
    for event in &case.history.events {
        if let What::Invoke { op: Op::Submit { command: Command::Close { session }, .. }, .. } =
            &event.what
        {
            closed.insert(regent_stores::lease::reading::digest(*session));
        }
    }
    closed
}
