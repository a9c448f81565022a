//! A user's own application writes only under a term that a check of the same instant covers.
//!
//! No promise of Regent's but its condition: whoever checks, is paused and writes is protected by a
//! fence alone. Where there is none, such a write lands after the next leader's.

use super::{Case, CheckResult, Violation};
use crate::history::What;

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    for event in &case.history.events {
        let What::Attempt { node, group, term, is_covered: false } = &event.what else { continue };
        let how = format!(
            "{node} writes to {group} under term {term}, and no check of that instant would have \
             passed; check right before every write"
        );
        return Err(Violation::new("guard", event.at, how));
    }
    Ok(())
}
