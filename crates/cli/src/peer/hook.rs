//! `--on-change`: a command of the user's, told who leads.
//!
//! One runs at a time and none is waited for; while one runs, only the last change is remembered, because
//! who led in between is of no use to anybody. The command is told what the process believes, which is all
//! there is here: no term, and no promise that nobody else is told the same of itself.

use std::ffi::OsString;
use std::time::Duration;

use regent_peer::Standing;
use tokio::task::JoinSet;

use crate::output::remark;
use regent_tether::shell;

/// How long a command may take.
const HOOK_MAX: Duration = Duration::from_secs(30);

/// The command, if there is one, and what it is to be told next.
#[derive(Debug)]
pub(crate) struct Hook {
    line: Option<String>,
    running: JoinSet<()>,
    waiting: Option<Standing>,
}

impl Hook {
    /// Nothing runs yet.
    pub(crate) fn new(line: Option<String>) -> Self {
        Self { line, running: JoinSet::new(), waiting: None }
    }

    /// Runs the command for this, at once or when the one that runs has ended, in place of whatever waited.
    pub(crate) fn tell(&mut self, standing: Standing) {
        if self.line.is_some() {
            self.waiting = Some(standing);
            self.go_on();
        }
    }

    /// Waits until the command that runs has ended, and runs it for what waits; for ever if none runs.
    /// Nothing is lost if the wait is given up.
    pub(crate) async fn ended(&mut self) {
        match self.running.join_next().await {
            Some(_) => self.go_on(),
            None => std::future::pending().await,
        }
    }

    /// Waits until everything was told. The limit of each command bounds it.
    pub(crate) async fn finish(&mut self) {
        while !self.running.is_empty() {
            self.ended().await;
        }
    }

    fn go_on(&mut self) {
        if !self.running.is_empty() {
            return;
        }
        let (Some(line), Some(standing)) = (self.line.clone(), self.waiting.take()) else { return };
        self.running.spawn(async move {
            if let Err(why) = shell::run(&line, &told(&standing), HOOK_MAX).await {
                remark(&format!("--on-change: {why}"));
            }
        });
    }
}

fn told(standing: &Standing) -> shell::ShellEnvironment {
    let leader = standing.leader.as_ref().map_or("", |leader| leader.as_str());
    vec![
        ("REGENT_NODE", standing.node.as_str().into()),
        ("REGENT_LEADER", leader.into()),
        ("REGENT_IS_LEADER", OsString::from(standing.is_leader().to_string())),
    ]
}

#[cfg(test)]
mod tests {
    use regent_election::Node;

    use super::*;

    fn standing(leader: &str) -> Standing {
        let node = Node::new("a").unwrap();
        Standing { node, leader: Node::new(leader).ok() }
    }

    #[tokio::test]
    async fn of_many_changes_the_first_and_the_last_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let (seen, gate) = (directory.path().join("seen"), directory.path().join("gate"));
        let line = format!(
            "echo $REGENT_NODE:$REGENT_LEADER:$REGENT_IS_LEADER >> {}; \
             while [ ! -e {} ]; do sleep 0.01; done",
            seen.display(),
            gate.display()
        );
        let mut hook = Hook::new(Some(line));
        for leader in ["", "b", "c", "a"] {
            hook.tell(standing(leader));
        }
        while !seen.exists() {
            tokio::task::yield_now().await;
        }
        std::fs::write(&gate, "").unwrap();
        hook.finish().await;
        assert_eq!(std::fs::read_to_string(&seen).unwrap(), "a::false\na:a:true\n");
    }

    #[tokio::test]
    async fn without_a_command_nothing_is_run() {
        let mut hook = Hook::new(None);
        hook.tell(standing("b"));
        hook.finish().await;
        assert!(hook.waiting.is_none());
    }
}
