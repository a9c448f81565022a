//! S2: terms strictly increase and are never reused, through crashes, snapshots, deletion and
//! re-creation, and changes of members.

use std::collections::BTreeMap;

use regent_election::{Answer, Group, SessionId, Term};

use super::{Case, CheckResult, End, Violation};
use crate::history::{Op, Out, What};

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    rises(case)?;
    belongs(case)
}

/// Grants in the order of the log have rising terms, whatever was deleted in between.
fn rises(case: &Case<'_>) -> CheckResult {
    let mut last: BTreeMap<&Group, Term> = BTreeMap::new();
    for tenure in &case.chronicle.tenures {
        let before = last.insert(&tenure.group, tenure.term).unwrap_or_default();
        if tenure.term <= before {
            let (group, term) = (&tenure.group, tenure.term);
            let how = format!("term {term} of {group} was granted after term {before}");
            return Err(Violation::new("S2", tenure.granted.0, how));
        }
    }
    Ok(())
}

/// Every term that anybody was told or acted under belongs to one session.
fn belongs(case: &Case<'_>) -> CheckResult {
    let mut owners: BTreeMap<(Group, Term), SessionId> = BTreeMap::new();
    let mut claim = |at: u64, group: &Group, term: Term, session: SessionId| {
        let owner = *owners.entry((group.clone(), term)).or_insert(session);
        if owner == session {
            return Ok(());
        }
        let how = format!(
            "term {term} of {group} was told to session {:x} and to session {:x}",
            owner.get(),
            session.get()
        );
        Err(Violation::new("S2", at, how))
    };
    for call in case.calls.values() {
        let End::Ok { at, out, .. } = call.end else { continue };
        let Op::Submit { command, .. } = call.op else { continue };
        let Out::Applied { answer: Ok(Answer::Elected { term, .. }), .. } = out else { continue };
        if let (Some(session), Some(group)) = (command.session(), command.group().cloned()) {
            claim(at, &group, *term, session)?;
        }
    }
    for event in &case.history.events {
        if let What::Lead { group, session, held: Some(term), .. } = &event.what {
            claim(event.at, group, *term, *session)?;
        }
    }
    Ok(())
}
