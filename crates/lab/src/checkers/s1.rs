//! S1: at most one unexpired leadership per group at any real instant, given that clocks keep their
//! bound.
//!
//! `V(g,t)` is where a check may pass for term t: from the history's record of validity in hand, cut
//! where the process ended. Two terms never overlap, and stronger: the holder stops first, so no V
//! reaches beyond the commit of a later grant. Only a forced end is exempt.
//! Whatever the clocks do, nobody acts under a term before the store has accepted that it does.

use std::collections::BTreeMap;

use regent_election::{Group, SessionId, Term};

use super::{Case, CheckResult, Violation};
use crate::history::{Proc, What};

/// A stretch of true time in which a check could pass.
struct Validity {
    group: Group,
    term: Term,
    session: SessionId,
    proc: Proc,
    from: u64,
    to: u64,
}

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    let validities = validities(case)?;
    for validity in &validities {
        was_accepted(case, validity)?;
    }
    if case.history.is_beyond_a1() {
        return Ok(());
    }
    stops_first(case, &validities)?;
    never_two(case, validities)
}

/// Where checks could pass; every check that did pass must have been there.
fn validities(case: &Case<'_>) -> Result<Vec<Validity>, Violation> {
    let mut open: BTreeMap<(Proc, &Group), Validity> = BTreeMap::new();
    let mut all = Vec::new();
    for event in &case.history.events {
        match &event.what {
            What::Lead { group, session, held, until } => {
                if let Some(mut before) = open.remove(&(event.proc, group)) {
                    before.to = before.to.min(event.at);
                    all.push(before);
                }
                if let Some(term) = held {
                    let (group, session) = (group, *session);
                    let fresh = Validity {
                        group: group.clone(),
                        term: *term,
                        session,
                        proc: event.proc,
                        from: event.at,
                        to: *until,
                    };
                    open.insert((event.proc, group), fresh);
                }
            }
            What::Guard { group, passed: Some(term), .. } => {
                let open = open.get(&(event.proc, group));
                if !open.is_some_and(|v| v.term == *term && event.at < v.to) {
                    let proc = event.proc;
                    let how = format!("{proc} passed a check for term {term} of {group} unseen");
                    return Err(Violation::new("S1", event.at, how));
                }
            }
            What::Down => {
                let gone: Vec<(Proc, &Group)> =
                    open.keys().filter(|(proc, _)| *proc == event.proc).copied().collect();
                for key in gone {
                    if let Some(mut before) = open.remove(&key) {
                        before.to = before.to.min(event.at);
                        all.push(before);
                    }
                }
            }
            _ => {}
        }
    }
    all.extend(open.into_values());
    all.retain(|validity| validity.from < validity.to);
    Ok(all)
}

/// Nobody acts under a term that was not granted to its session and accepted by it before.
fn was_accepted(case: &Case<'_>, validity: &Validity) -> CheckResult {
    let Validity { group, term, session, proc, from, .. } = validity;
    let tenure = case.chronicle.tenure(group, *term);
    let is_own = tenure.is_some_and(|tenure| {
        case.chronicle.session_of(tenure) == Some(*session)
            && tenure.accepted.is_some_and(|(at, _)| at <= *from)
    });
    if is_own {
        return Ok(());
    }
    let how = format!(
        "{proc} acts in {group} under term {term}, which its session {:x} had not accepted",
        session.get()
    );
    Err(Violation::new("S1", *from, how))
}

fn is_exempt(case: &Case<'_>, group: &Group, term: Term) -> bool {
    let tenure = case.chronicle.tenure(group, term);
    tenure.and_then(|tenure| tenure.ended.as_ref()).is_some_and(|end| end.forced)
}

/// The store grants nothing while a check could still pass for an earlier term.
fn stops_first(case: &Case<'_>, validities: &[Validity]) -> CheckResult {
    let mut grants: BTreeMap<&Group, Vec<(u64, Term)>> = BTreeMap::new();
    for tenure in &case.chronicle.tenures {
        grants.entry(&tenure.group).or_default().push((tenure.granted.0, tenure.term));
    }
    for validity in validities {
        let later = grants.get(&validity.group).into_iter().flatten();
        let early = later.copied().find(|(at, term)| *term > validity.term && *at < validity.to);
        if let Some((at, term)) = early
            && !is_exempt(case, &validity.group, validity.term)
        {
            let Validity { group, proc, to, .. } = validity;
            let how = format!(
                "term {term} of {group} was granted while {proc} could act under term {} for \
                 another {} us",
                validity.term,
                to.saturating_sub(at) / 1000
            );
            return Err(Violation::new("S1", at, how));
        }
    }
    Ok(())
}

fn never_two(case: &Case<'_>, mut validities: Vec<Validity>) -> CheckResult {
    validities.sort_by(|one, other| (&one.group, one.from).cmp(&(&other.group, other.from)));
    let mut furthest: Option<&Validity> = None;
    for validity in &validities {
        if let Some(before) = furthest
            && before.group == validity.group
        {
            let lower = before.term.min(validity.term);
            if before.term != validity.term
                && validity.from < before.to
                && !is_exempt(case, &validity.group, lower)
            {
                let how = format!(
                    "{} under term {} and {} under term {} could both act in {}",
                    before.proc, before.term, validity.proc, validity.term, validity.group
                );
                return Err(Violation::new("S1", validity.from, how));
            }
            if validity.to > before.to {
                furthest = Some(validity);
            }
        } else {
            furthest = Some(validity);
        }
    }
    Ok(())
}
