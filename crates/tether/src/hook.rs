//! A command of the user that runs after every change, one at a time.
//!
//! A change does not wait for the command. While one runs, only the last change is remembered: what was
//! true in between is of no use to the command any more.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::shell::{self, ShellEnvironment};

/// The command, if there is one, and the change that it runs for next.
#[derive(Debug)]
pub struct ChangeHook {
    line: Option<String>,
    limit: Duration,
    failed: fn(&str),
    running: JoinSet<()>,
    waiting: Option<ShellEnvironment>,
}

impl ChangeHook {
    /// A hook with nothing running. Each run may take `limit`; `failed` gets a clause that says why one
    /// did not succeed.
    #[must_use]
    pub fn new(line: Option<String>, limit: Duration, failed: fn(&str)) -> Self {
        Self { line, limit, failed, running: JoinSet::new(), waiting: None }
    }

    /// Runs the command with this environment: at once, or when the one that runs has ended. It replaces
    /// a change that still waits.
    pub fn run(&mut self, change: ShellEnvironment) {
        if self.line.is_some() {
            self.waiting = Some(change);
            self.go_on();
        }
    }

    /// Waits until the command that runs has ended, and starts it for the change that waits; for ever if
    /// none runs. Nothing is lost if the wait is given up.
    pub async fn ended(&mut self) {
        match self.running.join_next().await {
            Some(_) => self.go_on(),
            None => std::future::pending().await,
        }
    }

    /// Waits until the command has run for the last change. The limit of each run bounds it.
    pub async fn finish(&mut self) {
        while !self.running.is_empty() {
            self.ended().await;
        }
    }

    fn go_on(&mut self) {
        if !self.running.is_empty() {
            return;
        }
        let (Some(line), Some(change)) = (self.line.clone(), self.waiting.take()) else { return };
        let (limit, failed) = (self.limit, self.failed);
        self.running.spawn(async move {
            if let Err(why) = shell::run(&line, &change, limit).await {
                failed(&why);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn change(leader: &str) -> ShellEnvironment {
        vec![("REGENT_LEADER", leader.into())]
    }

    fn never(why: &str) {
        panic!("the command failed: {why}");
    }

    #[tokio::test]
    async fn of_many_changes_the_first_and_the_last_run() {
        let directory = tempfile::tempdir().unwrap();
        let (seen, gate) = (directory.path().join("seen"), directory.path().join("gate"));
        let line = format!(
            "echo $REGENT_LEADER >> {}; while [ ! -e {} ]; do sleep 0.01; done",
            seen.display(),
            gate.display()
        );
        let mut hook = ChangeHook::new(Some(line), LIMIT, never);
        for leader in ["d", "b", "c", "a"] {
            hook.run(change(leader));
        }
        while !seen.exists() {
            tokio::task::yield_now().await;
        }
        std::fs::write(&gate, "").unwrap();
        hook.finish().await;
        assert_eq!(std::fs::read_to_string(&seen).unwrap(), "d\na\n");
    }

    #[tokio::test]
    async fn without_a_command_nothing_is_run() {
        let mut hook = ChangeHook::new(None, LIMIT, never);
        hook.run(change("b"));
        hook.finish().await;
        assert!(hook.waiting.is_none());
    }
}
