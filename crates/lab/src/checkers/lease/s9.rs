//! S9: a request takes effect at most once, and a definite no means that nothing happened.
//!
//! Commands are not written to a register, only what comes of them. So a repeated campaign is held to its
//! answers, and a no to what it would have done: nobody leads by campaigns that were all refused.

use std::collections::{BTreeMap, BTreeSet};

use regent_election::{Answer, Command, Group, RequestId, SessionId, Term};

use crate::checkers::{Case, CheckResult, End, Violation};
use crate::history::{Op, Out};

pub(in crate::checkers) fn check(case: &Case<'_>) -> CheckResult {
    once(case)?;
    no_means_no(case)
}

fn once(case: &Case<'_>) -> CheckResult {
    let mut won: BTreeMap<(SessionId, &RequestId), Term> = BTreeMap::new();
    for call in case.calls.values() {
        let Op::Submit {
            command: Command::Campaign { session, .. }, request: Some(request), ..
        } = call.op
        else {
            continue;
        };
        let End::Ok { at, out, .. } = call.end else { continue };
        let Out::Applied { answer: Ok(Answer::Elected { term, .. }), .. } = out else { continue };
        // Ids live in the session's record and are gone with it (semantics 19). Its end may meet a campaign
        // half way; what that wins then is nobody's.
        let known = case.chronicle.sessions.values().find(|known| known.secret == *session);
        if known.and_then(|known| known.ended).is_some_and(|ended| ended <= at) {
            continue;
        }
        let first = *won.entry((*session, request)).or_insert(*term);
        if first != *term {
            let how = format!("request {request} won term {first} and term {term}");
            return Err(Violation::new("S9", at, how));
        }
    }
    Ok(())
}

fn no_means_no(case: &Case<'_>) -> CheckResult {
    let mut asked: BTreeSet<(SessionId, &Group)> = BTreeSet::new();
    for call in case.calls.values() {
        let Op::Submit { command: Command::Campaign { group, session, .. }, .. } = call.op else {
            continue;
        };
        if !matches!(call.end, End::Fail { .. }) {
            asked.insert((*session, group));
        }
    }
    for tenure in &case.chronicle.tenures {
        let session = case.chronicle.session_of(tenure);
        if session.is_none_or(|session| !asked.contains(&(session, &tenure.group))) {
            let (group, term) = (&tenure.group, tenure.term);
            let how = format!(
                "term {term} of {group} was granted to one whose every campaign there was refused \
                 as not done"
            );
            return Err(Violation::new("S9", tenure.granted.0, how));
        }
    }
    Ok(())
}
