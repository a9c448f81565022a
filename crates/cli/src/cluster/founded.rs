//! What was founded, for people.

use regent_service::Founded;
use regent_service::members::failures;

use crate::output::facts;

/// The cluster as facts, one per line.
pub(super) fn shown(founded: &Founded) -> String {
    let mut told = vec![
        ("cluster", founded.cluster_id.clone()),
        ("replica", founded.replica.to_string()),
        ("data", founded.data_dir.clone()),
        ("quorum", format!("{} of {}", founded.quorum, founded.voters)),
        ("survives", failures(founded.failures_survived as u64)),
    ];
    if !founded.witnesses.is_empty() {
        let witnesses: Vec<String> = founded.witnesses.iter().map(ToString::to_string).collect();
        told.push(("witness", witnesses.join(", ")));
    }
    facts(told)
}
