//! Clusters of `regent serve` that the benchmark starts and ends itself: real processes, real files,
//! real syncs, on this machine's loopback.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use regent::fresh;
use regent::remote::Remote;
use regent_api::Consistency;
use regent_election::Group;

use crate::door::{self, Door};
use crate::error::LoadError;
use crate::wire::Shown;
use crate::{LoadProgress, Tell};

/// How long a cluster has to elect its first leader.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Running servers; dropped, they are killed and their data is removed.
pub(crate) struct Servers {
    /// The command `regent`.
    program: PathBuf,
    children: Vec<Child>,
    clients: Vec<String>,
    folder: PathBuf,
    door: Door,
    /// What clients show, each one of these in turn; nothing at an open door.
    shown: Vec<Shown>,
}

impl Servers {
    /// Founds a cluster of `count` nodes below `dir`, starts it and waits until it answers.
    pub(crate) async fn start(
        program: &Path,
        count: usize,
        door: Door,
        dir: Option<&Path>,
        tell: Tell,
    ) -> Result<Self, LoadError> {
        let above = dir.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let folder = above.join(format!("regent-bench-{:016x}", fresh::number()?));
        fs::create_dir_all(&folder).map_err(|error| LoadError::folder(&folder, error))?;
        if let Some(folder) = in_memory(&folder) {
            tell(LoadProgress::InMemory(&folder));
        }
        let program = program.to_owned();
        let (children, clients, shown) = (Vec::new(), Vec::new(), Vec::new());
        let mut servers = Self { program, children, clients, folder, door, shown };
        let mut peers = Vec::new();
        for _ in 0..count {
            peers.push(free_address()?);
            servers.clients.push(free_address()?);
        }
        let pairs = peers.iter().zip(&servers.clients).enumerate();
        let members: Vec<_> =
            pairs.map(|(at, (peer, client))| format!("{}={peer}/{client}", at + 1)).collect();
        let members = members.join(",");
        let mut cluster_id = None;
        for number in 1..=count {
            cluster_id = Some(servers.init(number, &members, cluster_id.as_deref())?);
        }
        if door == Door::Certificates {
            let run = |arguments: &[&str]| servers.run(arguments);
            door::issue(run, &servers.ca(), &cluster_id.unwrap_or_default())?;
        }
        for (at, peer) in peers.iter().enumerate() {
            servers.serve(at, peer)?;
        }
        servers.answers().await?;
        if door != Door::Open {
            let administrator = Remote::new(&servers.socket(1))?;
            door::bind(&administrator).await?;
            servers.shown = match door {
                Door::Certificates => door::certificates(&servers.ca())?,
                Door::Open | Door::Tokens => door::tokens(&administrator).await?,
            };
        }
        Ok(servers)
    }

    /// What the client with this number shows.
    pub(crate) fn shown(&self, number: usize) -> Shown {
        let count = self.shown.len().max(1);
        self.shown.get(number % count).cloned().unwrap_or_default()
    }

    /// Where the certificates are.
    fn ca(&self) -> PathBuf {
        self.folder.join("ca")
    }

    /// Where this machine's administrators ask a node that asks others who they are.
    fn socket(&self, number: usize) -> String {
        format!("unix://{}", self.data(number).join("run/regent.sock").display())
    }

    /// Runs the command to its end.
    fn run(&self, arguments: &[&str]) -> Result<(), LoadError> {
        let ended = self.command().args(arguments).output().map_err(unstartable)?;
        if ended.status.success() {
            return Ok(());
        }
        let (verb, why) = (arguments.join(" "), String::from_utf8_lossy(&ended.stderr));
        Err(LoadError::Unavailable(format!("regent {verb}: {}", why.trim())))
    }

    /// Addresses for clients.
    pub(crate) fn urls(&self) -> Vec<String> {
        let scheme = self.door.scheme();
        self.clients.iter().map(|client| format!("{scheme}://{client}")).collect()
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    fn data(&self, number: usize) -> PathBuf {
        self.folder.join(format!("node-{number}"))
    }

    /// Founds one node and returns the cluster's id.
    fn init(
        &self,
        number: usize,
        members: &str,
        cluster_id: Option<&str>,
    ) -> Result<String, LoadError> {
        let mut command = self.command();
        command.args(["cluster", "init", "--id", &number.to_string(), "--members", members]);
        command.arg("--data-dir").arg(self.data(number)).args(["--output", "json"]);
        if let Some(id) = cluster_id {
            command.args(["--cluster-id", id]);
        }
        let ended = command.output().map_err(unstartable)?;
        let told: Option<serde_json::Value> = serde_json::from_slice(&ended.stdout).ok();
        let id = told.as_ref().and_then(|told| told["cluster_id"].as_str());
        id.map(str::to_owned).ok_or_else(|| {
            let why = String::from_utf8_lossy(&ended.stderr);
            LoadError::Unavailable(format!("a node could not be founded: {}", why.trim()))
        })
    }

    /// Starts one node and waits until it listens.
    fn serve(&mut self, at: usize, peer: &str) -> Result<(), LoadError> {
        let log = self.folder.join(format!("node-{}.log", at + 1));
        let log_file = fs::File::create(&log).map_err(|error| LoadError::folder(&log, error))?;
        let mut command = self.command();
        command.args(["serve", "--listen", &self.clients[at], "--peer-listen", peer]);
        command.arg("--data-dir").arg(self.data(at + 1));
        command.args(self.door.flags(&self.ca()));
        // All load comes from one address, and what all of them may have under way is the limit that is measured.
        command.args(["--requests-per-principal", "0", "--renewals-per-principal", "0"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
        // They share this machine: each is told of its share of the cores only.
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let share = (cores / self.clients.len()).max(1);
        command.env("TOKIO_WORKER_THREADS", share.to_string());
        let mut child = command.spawn().map_err(unstartable)?;
        let stdout = child.stdout.take();
        self.children.push(child);
        let mut line = String::new();
        let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut line));
        if !matches!(read, Some(Ok(_))) || !line.contains("listens on") {
            let why = fs::read_to_string(&log).unwrap_or_default();
            return Err(LoadError::Unavailable(format!("a node ended: {}", why.trim())));
        }
        Ok(())
    }

    /// The command, without settings of the environment: they are meant for other servers.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("REGENT_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// Returns once every node answers a read that the others had to confirm.
    async fn answers(&self) -> Result<(), LoadError> {
        let group = Group::new("bench").expect("the name is short and plain");
        let until = regent_clock::now() + READY_WITHIN;
        let urls = match self.door {
            Door::Open => self.urls(),
            Door::Tokens | Door::Certificates => {
                (1..=self.clients.len()).map(|number| self.socket(number)).collect()
            }
        };
        for url in urls {
            let remote = Remote::new(&url)?;
            while let Err(error) = remote.leader(&group, Consistency::Linearizable).await {
                if regent_clock::now() >= until {
                    return Err(error.into());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn unstartable(source: std::io::Error) -> LoadError {
    LoadError::io("regent cannot start itself", source)
}

/// An address that was free a moment ago.
fn free_address() -> Result<String, LoadError> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    bound.map(|address| address.to_string()).map_err(unstartable)
}

/// A file system in memory syncs nothing, and figures from it would promise too much.
fn in_memory(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mut longest = (0, "");
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(place), Some(kind)) = (words.next(), words.next()) else { continue };
        if folder.starts_with(place) && place.len() >= longest.0 {
            longest = (place.len(), kind);
        }
    }
    matches!(longest.1, "tmpfs" | "ramfs").then_some(folder)
}
