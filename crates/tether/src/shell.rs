//! Shell commands of the user: hooks, fences and probes.
//!
//! Each is a process group of its own, and a caller that drops one kills the whole group. They
//! are not part of the program's tree: the promise about the end of the lease is about the program,
//! but nothing of these outlives its purpose either.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

/// What a command is told in its environment, beside what this process was told.
pub type ShellEnvironment = Vec<(&'static str, OsString)>;

/// A command that runs; dropped, its whole process group is killed.
struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = self.child.id() {
            crate::kill_group(pid);
        }
    }
}

/// Runs a command to its end; a clause says why it did not succeed.
pub async fn run(line: &str, told: &ShellEnvironment, limit: Duration) -> Result<(), String> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(line).stdin(Stdio::null()).process_group(0);
    command.envs(told.iter().map(|(name, value)| (name, value)));
    // What it prints must never be taken for the program's own output.
    command.stdout(Stdio::null());
    let child = command.spawn().map_err(|error| format!("the shell cannot be run: {error}"))?;
    let mut running = Running { child };
    match tokio::time::timeout(limit, running.child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("it ended with {status}")),
        Ok(Err(error)) => Err(format!("it cannot be waited for: {error}")),
        Err(_) => Err(format!("it took longer than {limit:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn try_run(line: &str) -> Result<(), String> {
        let told = vec![("REGENT_GROUP", OsString::from("billing"))];
        run(line, &told, Duration::from_secs(30)).await
    }

    #[tokio::test]
    async fn a_command_succeeds_or_says_why_not() {
        assert_eq!(try_run("test $REGENT_GROUP = billing").await, Ok(()));
        let refused = try_run("exit 3").await.unwrap_err();
        assert!(refused.contains('3'), "{refused}");
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_is_ended_with_all_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let pid = directory.path().join("pid");
        let line = format!("sleep 1000 & echo $! > {}; wait", pid.display());
        let limit = Duration::from_millis(500);
        let ended = run(&line, &Vec::new(), limit).await;
        assert!(ended.unwrap_err().contains("longer than"));
        if let Ok(pid) = std::fs::read_to_string(pid) {
            let stat = format!("/proc/{}/stat", pid.trim());
            while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
                tokio::task::yield_now().await;
            }
        }
    }
}
