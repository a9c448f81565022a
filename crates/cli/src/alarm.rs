//! `on_split_brain`: a command of the operator's that is run when somebody acts who must not.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use regent_election::belief::Accusation;
use regent_server::Alarm;
use tokio::sync::Semaphore;

use crate::shell::{self, ShellEnvironment};

/// How long the command may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Commands that run at once; of more only the log tells.
const AT_ONCE: usize = 4;

/// An alarm that runs this line by the shell.
pub(crate) fn command(line: String) -> Alarm {
    let (line, places) = (Arc::new(line), Arc::new(Semaphore::new(AT_ONCE)));
    Alarm::new(move |accusation| {
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!("too many commands of on_split_brain run already; this one is not run");
            return;
        };
        let (line, told) = (Arc::clone(&line), told(accusation));
        tokio::spawn(async move {
            if let Err(why) = shell::run(&line, &told, LIMIT).await {
                tracing::warn!(%why, "the command of on_split_brain failed");
            }
            drop(place);
        });
    })
}

/// What the command is told.
fn told(accusation: &Accusation) -> ShellEnvironment {
    let text = |value: &dyn ToString| OsString::from(value.to_string());
    let or_none = |value: Option<&dyn ToString>| value.map_or_else(OsString::new, text);
    let Accusation { group, fault, believer, term, leader, leader_digest } = accusation;
    vec![
        ("REGENT_GROUP", text(group)),
        ("REGENT_FAULT", text(&fault.word())),
        ("REGENT_CLAIMANT", text(&believer.node)),
        ("REGENT_CLAIMANT_TERM", text(&believer.term)),
        ("REGENT_CLAIMANT_DIGEST", or_none(believer.digest.as_ref().map(|it| it as _))),
        ("REGENT_LEADER", or_none(leader.as_ref().map(|it| it as _))),
        ("REGENT_TERM", text(term)),
        ("REGENT_LEADER_DIGEST", or_none(leader_digest.as_ref().map(|it| it as _))),
        ("REGENT_DIVERGED", text(&accusation.has_diverged())),
    ]
}
