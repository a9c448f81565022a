//! Checks that many programs need.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use regent_election::Moment;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{Check, Finding, Thresholds};

/// Runs something that may take its time away from the runtime's threads.
async fn aside(look: impl FnOnce() -> Finding + Send + 'static) -> Finding {
    match tokio::task::spawn_blocking(look).await {
        Ok(finding) => finding,
        Err(error) => Finding::Ill(format!("the look failed: {error}")),
    }
}

/// Enough memory is left on this machine. Linux only: elsewhere it is always ill.
#[derive(Clone, Debug)]
pub struct Memory {
    available_bytes_min: u64,
    thresholds: Thresholds,
}

impl Memory {
    /// At least so many bytes must be available.
    #[must_use]
    pub fn at_least(available_bytes_min: u64) -> Self {
        Self { available_bytes_min, thresholds: Thresholds::default() }
    }

    /// The same with other thresholds.
    #[must_use]
    pub fn with(self, thresholds: Thresholds) -> Self {
        Self { thresholds, ..self }
    }

    fn judge(&self, meminfo: &str) -> Finding {
        let available = meminfo.lines().find_map(|line| {
            let rest = line.strip_prefix("MemAvailable:")?;
            rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        match available.map(|kib| kib.saturating_mul(1024)) {
            Some(bytes) if bytes >= self.available_bytes_min => Finding::Well,
            Some(bytes) => Finding::Ill(format!(
                "{bytes} bytes of memory are available, {} are needed",
                self.available_bytes_min
            )),
            None => Finding::Ill("this system does not say how much memory is left".to_owned()),
        }
    }
}

#[async_trait]
impl Check for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    async fn look(&self) -> Finding {
        let this = self.clone();
        aside(move || match std::fs::read_to_string("/proc/meminfo") {
            Ok(meminfo) => this.judge(&meminfo),
            Err(error) => Finding::Ill(format!("/proc/meminfo cannot be read: {error}")),
        })
        .await
    }

    fn thresholds(&self) -> Thresholds {
        self.thresholds
    }
}

/// Enough space is left where the work writes.
#[derive(Clone, Debug)]
pub struct DiskSpace {
    path: PathBuf,
    free_bytes_min: u64,
    thresholds: Thresholds,
}

impl DiskSpace {
    /// At least so many bytes must be free on the file system of `path`.
    #[must_use]
    pub fn at_least(path: impl Into<PathBuf>, free_bytes_min: u64) -> Self {
        Self { path: path.into(), free_bytes_min, thresholds: Thresholds::default() }
    }

    /// The same with other thresholds.
    #[must_use]
    pub fn with(self, thresholds: Thresholds) -> Self {
        Self { thresholds, ..self }
    }
}

#[async_trait]
impl Check for DiskSpace {
    fn name(&self) -> &str {
        "disk space"
    }

    async fn look(&self) -> Finding {
        let Self { path, free_bytes_min, .. } = self.clone();
        aside(move || match rustix::fs::statvfs(&path) {
            Ok(found) => {
                let free = found.f_bavail.saturating_mul(found.f_frsize);
                if free >= free_bytes_min {
                    return Finding::Well;
                }
                let path = path.display();
                Finding::Ill(format!(
                    "{free} bytes are free at {path}, {free_bytes_min} are needed"
                ))
            }
            Err(error) => Finding::Ill(format!("{}: {error}", path.display())),
        })
        .await
    }

    fn thresholds(&self) -> Thresholds {
        self.thresholds
    }
}

/// A command that ends with status 0. It is killed when it takes too long.
#[derive(Clone, Debug)]
pub struct Command {
    program: String,
    arguments: Vec<String>,
    thresholds: Thresholds,
}

impl Command {
    /// This program with these arguments, without a shell.
    #[must_use]
    pub fn new<A: Into<String>>(
        program: impl Into<String>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self { program: program.into(), arguments, thresholds: Thresholds::default() }
    }

    /// The same with other thresholds.
    #[must_use]
    pub fn with(self, thresholds: Thresholds) -> Self {
        Self { thresholds, ..self }
    }
}

#[async_trait]
impl Check for Command {
    fn name(&self) -> &str {
        &self.program
    }

    async fn look(&self) -> Finding {
        let status = tokio::process::Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .status()
            .await;
        match status {
            Ok(status) if status.success() => Finding::Well,
            Ok(status) => Finding::Ill(format!("{}: {status}", self.program)),
            Err(error) => Finding::Ill(format!("{}: {error}", self.program)),
        }
    }

    fn thresholds(&self) -> Thresholds {
        self.thresholds
    }
}

type ProbeAnswer = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Whatever the application knows how to look at.
pub struct Probe {
    name: String,
    look: Box<dyn Fn() -> ProbeAnswer + Send + Sync>,
    thresholds: Thresholds,
}

impl Probe {
    /// Looks by calling this; an error says what is wrong.
    pub fn new<F, A>(name: impl Into<String>, look: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<(), String>> + Send + 'static,
    {
        let look = Box::new(move || Box::pin(look()) as ProbeAnswer);
        Self { name: name.into(), look, thresholds: Thresholds::default() }
    }

    /// The same with other thresholds.
    #[must_use]
    pub fn with(self, thresholds: Thresholds) -> Self {
        Self { thresholds, ..self }
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("name", &self.name).finish_non_exhaustive()
    }
}

#[async_trait]
impl Check for Probe {
    fn name(&self) -> &str {
        &self.name
    }

    async fn look(&self) -> Finding {
        match (self.look)().await {
            Ok(()) => Finding::Well,
            Err(what) => Finding::Ill(what),
        }
    }

    fn thresholds(&self) -> Thresholds {
        self.thresholds
    }
}

/// The work says itself that it gets on: real work done, not a timer that fires. Made by
/// [`Progress::within`] together with its [`Beacon`].
#[derive(Clone, Debug)]
pub struct Progress {
    state: Arc<ProgressState>,
    within: Duration,
    thresholds: Thresholds,
}

/// Where the work says that it got on. Only while a [`Beacon::working`] is alive is it expected to: a
/// standby does no work.
#[derive(Clone, Debug)]
pub struct Beacon {
    state: Arc<ProgressState>,
}

/// The work is under way.
#[derive(Debug)]
#[must_use = "work is expected only while this lives"]
pub struct Working {
    state: Arc<ProgressState>,
}

#[derive(Debug, Default)]
struct ProgressState {
    /// When real work was last done, in nanoseconds of the lease clock.
    done_at: AtomicU64,
    working: AtomicUsize,
}

impl Progress {
    /// Work that is under way must get on at least once within this.
    #[must_use]
    pub fn within(within: Duration) -> (Self, Beacon) {
        let state = Arc::new(ProgressState::default());
        let beacon = Beacon { state: Arc::clone(&state) };
        (Self { state, within, thresholds: Thresholds::default() }, beacon)
    }

    /// The same with other thresholds.
    #[must_use]
    pub fn with(self, thresholds: Thresholds) -> Self {
        Self { thresholds, ..self }
    }

    fn judge(&self, now: Moment) -> Finding {
        let done_at = Moment::from_nanos(self.state.done_at.load(Ordering::SeqCst));
        let idle_for = now.since(done_at);
        if self.state.working.load(Ordering::SeqCst) == 0 || idle_for <= self.within {
            return Finding::Well;
        }
        let (idle_ms, within_ms) = (idle_for.as_millis(), self.within.as_millis());
        Finding::Ill(format!("no work was done for {idle_ms} ms, {within_ms} are allowed"))
    }
}

impl Beacon {
    /// The work begins, and is expected to get on until the answer is dropped.
    pub fn working(&self) -> Working {
        self.did_work();
        self.state.working.fetch_add(1, Ordering::SeqCst);
        Working { state: Arc::clone(&self.state) }
    }

    /// Some real work was done just now.
    pub fn did_work(&self) {
        self.state.done_at.fetch_max(regent_clock::now().as_nanos(), Ordering::SeqCst);
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.state.working.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Check for Progress {
    fn name(&self) -> &str {
        "progress"
    }

    async fn look(&self) -> Finding {
        self.judge(regent_clock::now())
    }

    fn thresholds(&self) -> Thresholds {
        self.thresholds
    }
}

/// This process reaches a majority of its group's members, itself included: a leader that is cut off
/// from those it leads is of no use, though the store still hears it.
#[derive(Clone, Debug)]
pub struct PeerQuorum {
    /// `host:port` of the other members; may change while the process runs.
    peers: Arc<Mutex<Vec<String>>>,
    thresholds: Thresholds,
}

impl PeerQuorum {
    /// The other members, each as `host:port`. One is reached if it accepts a connection.
    #[must_use]
    pub fn of<P: Into<String>>(peers: impl IntoIterator<Item = P>) -> Self {
        let peers = peers.into_iter().map(Into::into).collect();
        Self { peers: Arc::new(Mutex::new(peers)), thresholds: Thresholds::default() }
    }

    /// The same with other thresholds.
    #[must_use]
    pub fn with(self, thresholds: Thresholds) -> Self {
        Self { thresholds, ..self }
    }

    /// The members have changed.
    pub fn set<P: Into<String>>(&self, peers: impl IntoIterator<Item = P>) {
        *self.peers() = peers.into_iter().map(Into::into).collect();
    }

    fn peers(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this process and those it reached are more than half of all.
fn judge_quorum(reached: usize, peers: usize) -> Finding {
    if (reached + 1) * 2 > peers + 1 {
        return Finding::Well;
    }
    let (reached, all) = (reached + 1, peers + 1);
    Finding::Ill(format!("only {reached} of {all} members are reached, this one included"))
}

#[async_trait]
impl Check for PeerQuorum {
    fn name(&self) -> &str {
        "peer quorum"
    }

    async fn look(&self) -> Finding {
        let peers = self.peers().clone();
        let (count, patience) = (peers.len(), self.thresholds.timeout * 3 / 4);
        let mut dialling = JoinSet::new();
        for peer in peers {
            dialling.spawn(async move {
                matches!(tokio::time::timeout(patience, TcpStream::connect(peer)).await, Ok(Ok(_)))
            });
        }
        let mut reached = 0;
        while let Some(dialled) = dialling.join_next().await {
            reached += usize::from(dialled.unwrap_or(false));
        }
        judge_quorum(reached, count)
    }

    fn thresholds(&self) -> Thresholds {
        self.thresholds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_the_kernel_writes_it() {
        let check = Memory::at_least(2 << 20);
        assert_eq!(check.judge("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Finding::Well);
        assert!(matches!(check.judge("MemAvailable: 2047 kB\n"), Finding::Ill(_)));
        assert!(matches!(check.judge("nothing of the kind"), Finding::Ill(_)));
    }

    #[test]
    fn a_majority_counts_this_process() {
        for (reached, peers, is_well) in [
            (0, 0, true),
            (0, 1, false),
            (1, 1, true),
            (0, 2, false),
            (1, 2, true),
            (1, 3, false),
            (2, 3, true),
            (1, 4, false),
            (2, 4, true),
        ] {
            let is_found = judge_quorum(reached, peers) == Finding::Well;
            assert_eq!(is_found, is_well, "{reached} of {peers}");
        }
    }

    #[test]
    fn progress_is_expected_only_of_work_that_is_under_way() {
        let (check, beacon) = Progress::within(Duration::from_secs(5));
        let later = regent_clock::now() + Duration::from_secs(60);
        assert_eq!(check.judge(later), Finding::Well, "a standby does no work");
        let working = beacon.working();
        assert_eq!(check.judge(regent_clock::now()), Finding::Well);
        assert!(matches!(check.judge(later), Finding::Ill(_)));
        drop(working);
        assert_eq!(check.judge(later), Finding::Well);
    }

    #[tokio::test]
    async fn space_and_commands_are_looked_at_for_real() {
        assert_eq!(DiskSpace::at_least("/", 1).look().await, Finding::Well);
        assert!(matches!(DiskSpace::at_least("/", u64::MAX).look().await, Finding::Ill(_)));
        assert!(matches!(DiskSpace::at_least("/no/such", 1).look().await, Finding::Ill(_)));
        assert_eq!(Command::new("true", [""; 0]).look().await, Finding::Well);
        assert!(matches!(Command::new("false", [""; 0]).look().await, Finding::Ill(_)));
        assert!(matches!(Command::new("no-such-program", [""; 0]).look().await, Finding::Ill(_)));
    }

    #[tokio::test]
    async fn peers_are_reached_by_a_connection() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap().to_string();
        let gone = {
            let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            other.local_addr().unwrap().to_string()
        };
        let check = PeerQuorum::of([there.clone(), gone.clone()]);
        assert_eq!(check.look().await, Finding::Well);
        check.set([gone.clone(), gone]);
        assert!(matches!(check.look().await, Finding::Ill(_)));
    }
}
