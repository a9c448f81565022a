//! Makes sure that whoever led before does nothing any more (STONITH).
//!
//! The command is told who that was. If nobody led before, there is nobody to fence and it is not run;
//! if it cannot be found out, nothing may start.

use std::ffi::OsString;
use std::time::Duration;

use regent_election::{Group, Term};
use regent_tether::shell::{self, ShellEnvironment};

use crate::election::Predecessor;
use crate::plan::FencePrevious;

/// Power switches are slow; the lease is renewed meanwhile, and ends this if it is not.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs the command, if there is anybody to fence.
pub(crate) async fn run(
    fence: &FencePrevious,
    group: &Group,
    term: Term,
    known: Option<Predecessor>,
    told: &mut ShellEnvironment,
) -> Result<(), String> {
    let history = fence
        .server
        .history(group)
        .await
        .map_err(|error| format!("who led before cannot be found out: {error}"))?;
    let mut before = history.changes.iter().rev().filter(|change| change.term < term);
    let last = before.find_map(|change| Some((change.leader.clone()?, change.term)));
    let known = known.filter(|known| last.as_ref().is_none_or(|(_, at)| *at <= known.term));
    let Some((node, at)) = known.as_ref().map(|known| (known.node.clone(), known.term)).or(last)
    else {
        return Ok(());
    };
    let metadata = known.map_or_else(
        || "{}".to_owned(),
        |known| serde_json::to_string(&pairs(&known)).unwrap_or_else(|_| "{}".to_owned()),
    );
    told.push(("REGENT_PREVIOUS_NODE", node.as_str().into()));
    told.push(("REGENT_PREVIOUS_TERM", at.to_string().into()));
    told.push(("REGENT_PREVIOUS_METADATA", OsString::from(metadata)));
    shell::run(&fence.command, told, LIMIT).await
}

fn pairs(known: &Predecessor) -> std::collections::BTreeMap<String, String> {
    known.metadata.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}
