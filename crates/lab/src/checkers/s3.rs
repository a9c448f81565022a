//! S3: a fenced store never admits a lower token after a higher one. No assumption on clocks.

use std::collections::BTreeMap;

use regent_election::{Group, Term};

use super::{Case, CheckResult, Violation};
use crate::history::What;

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    let mut highest: BTreeMap<&Group, Term> = BTreeMap::new();
    for event in &case.history.events {
        let What::Write { group, fenced: true, term, admitted: true } = &event.what else {
            continue;
        };
        let mark = highest.entry(group).or_default();
        if term < mark {
            let how = format!("a write of term {term} was admitted to {group} after term {mark}");
            return Err(Violation::new("S3", event.at, how));
        }
        *mark = *term;
    }
    Ok(())
}
