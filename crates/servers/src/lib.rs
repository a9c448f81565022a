//! Real servers for tests: found, started on free ports in temporary folders, and stopped by pid.
//!
//! A server is looked for on the PATH and in `target/servers/`, where the script `fetch` of this crate puts
//! what it may install. A variable like `REGENT_TEST_REDIS_URL` names one that runs already, which is then
//! used and neither killed nor stopped. What cannot be had is skipped loudly, with its reason; with
//! `REGENT_TEST_STORES=all` that is a failure instead.
//!
//! Tests run in processes of their own, so a server that many of them use is started once by the program of
//! this crate, `regent-servers COMMAND…`, which runs the command with those variables and stops the servers
//! after it. A test that kills its server starts one of its own.

#![allow(clippy::unwrap_used, reason = "only tests use this")]

pub mod certificates;
pub mod consul;
pub mod dynamodb;
pub mod etcd;
pub mod kubernetes;
pub mod mysql;
pub mod nats;
pub mod object;
pub mod postgres;
pub mod redis;
pub mod zookeeper;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a server may take to be ready. A bound on despair, not on speed.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// How often a server is started on other ports, because somebody took one that was free.
const STARTS_MAX: usize = 3;

/// Set by `regent-servers`: the servers that variables name are ours, and shared by many tests.
pub const SHARED: &str = "REGENT_TEST_SHARED";

/// Whether the servers that variables name were started by `regent-servers`.
#[must_use]
pub fn is_shared() -> bool {
    std::env::var_os(SHARED).is_some()
}

/// Why a server cannot be had.
pub type Skip = String;

/// A server, of one process or of several.
#[derive(Debug)]
pub struct Server {
    /// What opens a store on it.
    pub url: String,
    /// What it is, for people.
    pub version: String,
    /// None for a server that somebody else runs.
    pub processes: Vec<Process>,
}

impl Server {
    /// The server whose URL is in this variable, if any.
    pub fn given(variable: &str) -> Option<Self> {
        let url = std::env::var(variable).ok()?;
        let version = std::env::var(version_of(variable))
            .unwrap_or_else(|_| format!("the one of {variable}"));
        Some(Self { url, version, processes: Vec::new() })
    }

    /// Whether it is ours to kill.
    pub fn is_ours(&self) -> bool {
        !self.processes.is_empty()
    }
}

/// One process of a server; dropped, it is killed.
pub struct Process {
    command: Vec<OsString>,
    variables: Vec<(String, OsString)>,
    /// Where it keeps its data and its log; shared, because a cluster lies in one.
    folder: PathBuf,
    is_ready: Box<dyn Fn() -> bool + Send + Sync>,
    child: Option<Child>,
    /// Deleted after the process has ended.
    _folder: Option<TempDir>,
}

impl Process {
    /// Starts a process in a folder of its own and waits until it is ready.
    pub fn start(
        folder: TempDir,
        command: Vec<OsString>,
        is_ready: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Self, Skip> {
        let mut process = Self {
            command,
            variables: Vec::new(),
            folder: folder.path().to_owned(),
            is_ready: Box::new(is_ready),
            child: None,
            _folder: Some(folder),
        };
        process.start_again()?;
        Ok(process)
    }

    /// Begins a process without waiting until it is ready, as one of a cluster that is ready together.
    pub fn begin(
        folder: TempDir,
        command: Vec<OsString>,
        is_ready: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Self, Skip> {
        let mut process = Self {
            command,
            variables: Vec::new(),
            folder: folder.path().to_owned(),
            is_ready: Box::new(is_ready),
            child: None,
            _folder: Some(folder),
        };
        process.spawn()?;
        Ok(process)
    }

    /// Starts it, with the same data on the same ports, and waits until it is ready.
    pub fn start_again(&mut self) -> Result<(), Skip> {
        self.spawn()?;
        self.wait_until_ready()
    }

    /// Starts it and does not wait.
    pub fn spawn(&mut self) -> Result<(), Skip> {
        assert!(self.child.is_none(), "it runs already");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))
            .map_err(|error| error.to_string())?;
        let again = log.try_clone().map_err(|error| error.to_string())?;
        // The kernel ends the server if the test is killed before it can.
        let mut command = match find("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL", "--"]).args(&self.command);
                command
            }
            None => {
                let mut command = Command::new(&self.command[0]);
                command.args(&self.command[1..]);
                command
            }
        };
        let child = command
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(again)
            .spawn()
            .map_err(|error| format!("{} does not start: {error}", self.command[0].display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until it answers, or has ended by itself.
    pub fn wait_until_ready(&mut self) -> Result<(), Skip> {
        let begun_at = Instant::now();
        while !(self.is_ready)() {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if ended.is_some() || begun_at.elapsed() > READY_WITHIN {
                self.kill();
                return Err(format!("it was not ready ({ended:?}): {}", self.last_words()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Kills it with what it started, as a power cut would, and waits until all of it is gone: what lingers
    /// would keep its successor from starting.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let children = children_of(child.id());
            let _ = child.kill();
            let _ = child.wait();
            for pid in children {
                let Some(known) = rustix::process::Pid::from_raw(pid) else { continue };
                let _ = rustix::process::kill_process(known, rustix::process::Signal::KILL);
                while parent_and_state(pid).is_some_and(|(_, state)| state != "Z") {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }

    /// Its pid, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// What it said last, and before that the lines in which it says why it ended: a server written in Go
    /// buries those under the stacks of all its goroutines.
    fn last_words(&self) -> String {
        let log = std::fs::read(self.folder.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        let last = lines.len().saturating_sub(5);
        let is_reason = |line: &str| {
            let fatal =
                line.strip_prefix('F').is_some_and(|rest| rest.starts_with(char::is_numeric));
            fatal || line.contains("in use") || line.starts_with("panic:")
        };
        let reasons = lines[..last].iter().rev().filter(|line| is_reason(line)).take(3);
        let mut said: Vec<_> = lines[last..].iter().rev().copied().collect();
        said.extend(reasons);
        said.reverse();
        said.join(" | ")
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("command", &self.command).finish_non_exhaustive()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Who started a process and what it is doing, if it is there.
fn parent_and_state(pid: i32) -> Option<(u32, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold anything.
    let mut rest = stat.rsplit_once(") ")?.1.split(' ');
    let state = rest.next()?.to_owned();
    Some((rest.next()?.parse().ok()?, state))
}

/// The processes that this one started.
fn children_of(parent: u32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| parent_and_state(*pid).is_some_and(|(who, _)| who == parent))
        .collect()
}

/// The variable that tells the version of the server that `variable` names.
#[must_use]
pub fn version_of(variable: &str) -> String {
    variable.replace("_URL", "_VERSION")
}

/// Cargo's target folder: the one above this program that Cargo has marked as its own, or the one above
/// `debug/`; Cargo does not mark a folder that was there before.
///
/// # Panics
/// If this program is in no folder of Cargo's.
#[must_use]
pub fn target() -> PathBuf {
    let program = std::env::current_exe().expect("a running program has a place");
    let marked = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
    let above = || program.ancestors().find(|folder| folder.ends_with("debug"))?.parent();
    marked.or_else(above).expect("tests run from Cargo's target folder").to_owned()
}

/// Where downloaded servers lie.
#[must_use]
pub fn cache() -> PathBuf {
    target().join("servers")
}

/// A program on the PATH, in the places of servers, or in the cache.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into(), cache().join("bin")])
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// The same, or why not.
pub fn need(program: &str) -> Result<PathBuf, Skip> {
    find(program).ok_or_else(|| {
        let why = std::fs::read_to_string(cache().join(format!("{program}.why")));
        match why {
            Ok(why) => format!("{program} is not installed: {}", why.trim()),
            Err(_) => format!("{program} is not installed; crates/servers/fetch may get it"),
        }
    })
}

/// The first line that a program says about itself.
pub fn version(program: &Path, flag: &str) -> String {
    let said = Command::new(program).arg(flag).output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    said.unwrap_or_default().lines().next().unwrap_or("of unknown version").trim().to_owned()
}

/// The ports that servers get: below the range that the kernel takes ports of outgoing connections from, so
/// that no connection sits on the port of a server that was killed and starts again.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// A port that nobody listens on, and that no other test gets while this process lives.
///
/// Tests are processes of their own, so a reservation is a lock on a file in the cache; the kernel gives it up
/// when its process ends.
///
/// # Panics
/// If all ports are taken.
pub fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let reservations = cache().join("ports");
    std::fs::create_dir_all(&reservations).expect("the cache can be written to");
    // Processes begin in different places, so that they seldom ask for the same ports.
    let first = std::process::id().wrapping_mul(64) % u32::from(PORTS.end - PORTS.start);
    for _ in PORTS {
        let step = first + u32::from(TRIED.fetch_add(1, Ordering::Relaxed));
        let offset = step % u32::from(PORTS.end - PORTS.start);
        let port = PORTS.start + u16::try_from(offset).expect("it is below the length of a range");
        let file =
            File::options().create(true).append(true).open(reservations.join(port.to_string()));
        let file = file.expect("the cache can be written to");
        if file.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            // Kept open, and so locked, until this process ends.
            std::mem::forget(file);
            return port;
        }
    }
    panic!("all ports of {PORTS:?} are taken");
}

/// A temporary folder.
pub fn folder() -> TempDir {
    tempfile::Builder::new()
        .prefix("regent-")
        .tempdir()
        .expect("there is a place for temporary files")
}

/// Starts a server, again if the ports it was given were taken meanwhile.
pub fn starting(start: impl Fn() -> Result<Server, Skip>) -> Result<Server, Skip> {
    let mut why = String::new();
    for _ in 0..STARTS_MAX {
        match start() {
            Ok(server) => return Ok(server),
            Err(reason) => why = reason,
        }
    }
    Err(why)
}

/// The words of a command line.
pub fn words<const N: usize>(program: &Path, words: [&str; N]) -> Vec<OsString> {
    std::iter::once(program.as_os_str().to_owned())
        .chain(words.iter().map(OsStr::new).map(OsStr::to_owned))
        .collect()
}

/// Notes a result for the table that `./test` prints: store, server, passed, skipped, and why or what
/// else there is to say.
pub fn report(store: &str, server: &str, passed: usize, skipped: usize, note: &str) {
    let line = format!("{store}\t{server}\t{passed}\t{skipped}\t{note}\n");
    let file = std::env::var_os("REGENT_TEST_REPORT")
        .map_or_else(|| target().join("stores.tsv"), PathBuf::from);
    // One write of one line: tests in other processes append to the same file.
    let written = File::options()
        .create(true)
        .append(true)
        .open(&file)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        eprintln!("no report in {}: {error}", file.display());
    }
    eprint!("stores: {line}");
}

/// The server, or a loud skip: a line on stderr and one in the table.
pub fn or_skip(store: &str, server: Result<Server, Skip>) -> Option<Server> {
    match server {
        Ok(server) => Some(server),
        Err(why) => {
            assert!(
                std::env::var("REGENT_TEST_STORES").as_deref() != Ok("all"),
                "{store} cannot be tested: {why}"
            );
            report(store, "-", 0, 1, &format!("SKIPPED: {why}"));
            None
        }
    }
}
