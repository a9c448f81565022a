//! L1: with a healthy core and a live candidate, a group has a leader that acts, in time.
//!
//! Not an office that is taken by the store's word: somebody whose check passes. An office kept by a
//! session that does not act is no leader.

use std::collections::{BTreeMap, BTreeSet};

use regent_election::Group;

use super::{Case, CheckResult, Violation};
use crate::history::{Proc, Stage, What};

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    let Some((steady, _)) = case.stage(Stage::Steady) else { return Ok(()) };
    let mut stands: BTreeSet<(Proc, &Group)> = BTreeSet::new();
    let mut acts: BTreeMap<(Proc, &Group), u64> = BTreeMap::new();
    for event in case.history.events.iter().filter(|event| event.at <= steady) {
        match &event.what {
            What::Stand { group, wants: true } => {
                stands.insert((event.proc, group));
            }
            What::Stand { group, wants: false } => {
                stands.remove(&(event.proc, group));
            }
            What::Lead { group, held: Some(_), until, .. } => {
                acts.insert((event.proc, group), *until);
            }
            What::Lead { group, held: None, .. } => {
                acts.remove(&(event.proc, group));
            }
            What::Down => {
                stands.retain(|(proc, _)| *proc != event.proc);
                acts.retain(|(proc, _), _| *proc != event.proc);
            }
            _ => {}
        }
    }
    let led: BTreeSet<&Group> =
        acts.iter().filter(|(_, until)| **until > steady).map(|((_, group), _)| *group).collect();
    match stands.iter().find(|(_, group)| !led.contains(group)) {
        None => Ok(()),
        Some((proc, group)) => {
            let how = format!("{proc} wants to lead {group}, the core had its time, nobody acts");
            Err(Violation::new("L1", steady, how))
        }
    }
}
