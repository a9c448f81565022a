//! `on_split_brain`: a command of the operator's that is run when somebody acts who must not.

use std::sync::Arc;
use std::time::Duration;

use regent_server::Alarm;
use tokio::sync::Semaphore;

use crate::shell;

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
        let (line, told) = (Arc::clone(&line), accusation.environment());
        tokio::spawn(async move {
            if let Err(why) = shell::run(&line, &told, LIMIT).await {
                tracing::warn!(%why, "the command of on_split_brain failed");
            }
            drop(place);
        });
    })
}
