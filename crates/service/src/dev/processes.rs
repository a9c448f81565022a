//! The replicas as processes: started, watched, started again, ended.
//!
//! All of them end with this process, even if it is killed itself: each reads a pipe that only this
//! process holds open.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use regent_election::Moment;
use regent_election::error_text::plain;
use regent_replica::ReplicaId;
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::DevError;
use super::site::DevReplica;

/// How long a replica that ended is left alone, so that one can see the others without it.
pub const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// How long replicas may take to end in order.
const END_WITHIN: Duration = Duration::from_secs(10);

/// A replica's process that ended by itself.
#[derive(Debug)]
pub struct EndedReplica {
    pub id: ReplicaId,
    /// By which signal or exit code.
    pub how: String,
}

/// A replica's process.
#[derive(Debug)]
enum State {
    Running {
        pid: u32,
        /// Dropped, the process is told to end; told, it is killed.
        leash: oneshot::Sender<()>,
    },
    Ended {
        again_at: Moment,
    },
}

/// All of them. Dropped, they are killed.
#[derive(Debug)]
pub struct Processes {
    /// The command `regent`.
    program: PathBuf,
    states: BTreeMap<ReplicaId, State>,
    ended: UnboundedReceiver<EndedReplica>,
    to_ended: UnboundedSender<EndedReplica>,
}

impl Processes {
    /// None yet; each will run this command, `regent`.
    #[must_use]
    pub fn of(program: PathBuf) -> Self {
        let (to_ended, ended) = unbounded_channel();
        Self { program, states: BTreeMap::new(), ended, to_ended }
    }

    /// Starts a replica.
    pub fn start(&mut self, seat: &DevReplica) -> Result<(), DevError> {
        let mut child = spawn(&self.program, seat)?;
        let pid = child.id().unwrap_or_default();
        let (leash, pulled) = oneshot::channel();
        let (id, to_ended) = (seat.id, self.to_ended.clone());
        tokio::spawn(async move {
            let status = follow(&mut child, pulled).await;
            let how = status.map_or_else(|error| plain(&error), how);
            // Whoever asked for the end may have left.
            let _ = to_ended.send(EndedReplica { id, how });
        });
        self.states.insert(id, State::Running { pid, leash });
        Ok(())
    }

    /// Waits for the next one that ends.
    pub async fn next_ended(&mut self) -> EndedReplica {
        self.ended.recv().await.expect("this end holds a sender of its own")
    }

    /// Takes note of an end: the replica is due again after [`AGAIN_AFTER`].
    pub fn note_end(&mut self, ended: &EndedReplica) {
        let again_at = regent_clock::now() + AGAIN_AFTER;
        self.states.insert(ended.id, State::Ended { again_at });
    }

    /// Those that are to be started again.
    pub fn due<'a>(&self, seats: &'a [DevReplica]) -> Vec<&'a DevReplica> {
        let now = regent_clock::now();
        let is_due = |seat: &&DevReplica| match self.states.get(&seat.id) {
            Some(State::Ended { again_at }) => *again_at <= now,
            Some(State::Running { .. }) | None => false,
        };
        seats.iter().filter(is_due).collect()
    }

    /// The process of a replica, while it runs.
    pub fn pid(&self, id: ReplicaId) -> Option<u32> {
        match self.states.get(&id) {
            Some(State::Running { pid, .. }) => Some(*pid),
            Some(State::Ended { .. }) | None => None,
        }
    }

    /// How long until a replica that ended is started again.
    pub fn again_in(&self, id: ReplicaId) -> Option<Duration> {
        match self.states.get(&id) {
            Some(State::Ended { again_at }) => Some(regent_clock::now().until(*again_at)),
            Some(State::Running { .. }) | None => None,
        }
    }

    /// Ends all: in order if their data matter, at once if not.
    pub async fn end(&mut self, in_order: bool) {
        let running = std::mem::take(&mut self.states);
        let mut left = 0;
        let mut leashes = Vec::new();
        for state in running.into_values() {
            let State::Running { leash, .. } = state else { continue };
            left += 1;
            if in_order {
                drop(leash);
            } else {
                leashes.push(leash);
            }
        }
        for leash in leashes {
            let _ = leash.send(());
        }
        let all = async {
            for _ in 0..left {
                self.next_ended().await;
            }
        };
        // What does not end in time is killed when its task is dropped.
        let _ = timeout(END_WITHIN, all).await;
    }
}

fn spawn(program: &Path, seat: &DevReplica) -> Result<Child, DevError> {
    let log = File::options().create(true).append(true).open(&seat.log);
    let log = log.map_err(|source| DevError::file(&seat.log, source))?;
    let mut command = Command::new(program);
    command.args(["serve", "--until-stdin-ends", "--config"]).arg(&seat.config);
    // What is set for other servers is not meant for these.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("REGENT_")) {
            command.env_remove(name);
        }
    }
    // A group of its own: an interrupt of the terminal is this process's to handle.
    command.process_group(0).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
    command.spawn().map_err(|source| DevError::Spawn { source })
}

/// Waits for a process; pulled, the leash kills it, let go, it asks it to end.
async fn follow(child: &mut Child, pulled: oneshot::Receiver<()>) -> std::io::Result<ExitStatus> {
    // `wait` closes the pipe, so it is taken out first.
    let pipe = child.stdin.take();
    tokio::select! {
        status = child.wait() => return status,
        pulled = pulled => match pulled {
            Ok(()) => child.start_kill()?,
            Err(_) => drop(pipe),
        },
    }
    child.wait().await
}

fn how(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "for no known reason".to_owned(),
    }
}
