//! A load generator: what elections cost a running service.
//!
//! Load comes from this process, the service is others: times are what a client sees, and CPU is what
//! the service's processes used, all of them together. On a shared machine times wander and CPU hardly
//! does, so CPU per operation is what to compare.
//!
//! [`measure`] asks a service that runs already; [`measure_nodes`] founds clusters of its own in a
//! temporary folder, fsync and all, and ends them again.

mod closed_loop;
mod door;
mod error;
mod failover;
mod gateway;
mod handover;
mod keepers;
mod many;
mod open_loop;
mod overload;
mod security;
mod servers;
mod usage;
mod wire;

use std::path::{Path, PathBuf};
use std::time::Duration;

use regent::fresh;
use regent::remote::Remote;
use serde::Serialize;

pub use closed_loop::{LoadRow, Work};
pub use error::LoadError;
pub use failover::Failover;
pub use gateway::{GatewayCost, Spread, Way};
pub use handover::{HandOver, Leaderless};
pub use many::{Memory, Succession, Width};
pub use overload::{Asked, Overload};
pub use security::SecurityCost;

use door::Door;
use servers::Servers;
use usage::Processes;

/// What is measured, and how much of it.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// What is measured, in this order.
    pub parts: Vec<Part>,
    /// Which nodes clients ask.
    pub to: Vec<ClientTarget>,
    /// How many clients at once, one row for each number.
    pub clients: Vec<usize>,
    /// How long each row is measured.
    pub seconds: u64,
    /// How many groups, for memory and succession; the latter takes the first number.
    pub groups: Vec<usize>,
    /// How many crashes, for failover.
    pub trials: usize,
    /// How many planned transfers, for handover.
    pub transfers: usize,
    /// How many resignations, for handover.
    pub resigns: usize,
    /// How long an answer may take.
    pub timeout: Duration,
    /// The command `regent`, which runs the nodes and the gateway that are measured.
    pub program: PathBuf,
    /// Where servers that are started keep their data; a temporary folder if it is not said.
    pub dir: Option<PathBuf>,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Campaigns, renewals, heartbeats and reads, as fast as they are answered.
    Load,
    /// A heartbeat of a session that leads 1,000 groups against one that leads a single group.
    Width,
    /// How long after its ttl a crashed leader is succeeded.
    Failover,
    /// How long nobody leads when a leader hands over or resigns, while the service is busy.
    Handover,
    /// How long after its ttl a crashed leader of very many groups is succeeded in all of them.
    Succession,
    /// What an idle group costs in memory.
    Memory,
    /// What the fencing gateway costs a write; it needs no service.
    Gateway,
    /// How many renewals are answered in time while five times the load is offered that the service can take.
    Overload,
    /// What client certificates, TLS and authorisation cost an operation; it needs no service.
    Security,
}

impl Part {
    /// All of them, with the word for each and what it tells.
    pub const ALL: [(Self, &'static str, &'static str); 9] = [
        (
            Self::Load,
            "load",
            "Campaigns, renewals, heartbeats and reads, as fast as they are answered",
        ),
        (
            Self::Width,
            "width",
            "A heartbeat of a session that leads 1,000 groups against one that leads a single group",
        ),
        (Self::Failover, "failover", "How long after its ttl a crashed leader is succeeded"),
        (
            Self::Handover,
            "handover",
            "How long nobody leads when a leader hands over or resigns, while the service is busy",
        ),
        (
            Self::Succession,
            "succession",
            "How long after its ttl a crashed leader of very many groups is succeeded in all of them",
        ),
        (Self::Memory, "memory", "What an idle group costs in memory"),
        (Self::Gateway, "gateway", "What the fencing gateway costs a write; it needs no service"),
        (
            Self::Overload,
            "overload",
            "How many renewals are answered in time while five times the load is offered that the service can take",
        ),
        (
            Self::Security,
            "security",
            "What client certificates, TLS and authorisation cost an operation; it needs no service",
        ),
    ];
}

/// Where clients go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientTarget {
    /// Each asks one of the nodes, all of them in turn.
    Spread,
    /// All ask the node that leads the log.
    Leader,
}

impl ClientTarget {
    /// Both, with the word for each and what it means.
    pub const ALL: [(Self, &'static str, &'static str); 2] = [
        (Self::Spread, "spread", "Each asks one of the nodes, all of them in turn"),
        (Self::Leader, "leader", "All ask the node that leads the log"),
    ];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Leader => "leader",
        }
    }
}

/// What happens while it is measured.
#[derive(Clone, Copy, Debug)]
pub enum LoadProgress<'a> {
    /// This step begins.
    Step(&'a str),
    /// The data of the nodes are in this folder, which is in memory: a sync costs nothing there, and the
    /// figures promise too much.
    InMemory(&'a Path),
}

/// Hears what happens.
pub type Tell = fn(LoadProgress<'_>);

/// Everything that was measured of one service.
#[derive(Debug, Default, Serialize)]
pub struct LoadReport {
    /// How many nodes were started; none if the service ran already.
    pub nodes: Option<usize>,
    /// What the service uses when nobody asks it anything, in hundredths of a core.
    pub idle_cpu_percent: Option<f64>,
    /// One row for each kind of work and number of clients.
    pub load: Vec<LoadRow>,
    /// See [`Part::Width`].
    pub width: Option<Width>,
    /// See [`Part::Failover`].
    pub failover: Option<Failover>,
    /// See [`Part::Handover`].
    pub handover: Option<HandOver>,
    /// See [`Part::Succession`].
    pub succession: Option<Succession>,
    /// One row for each number of groups.
    pub memory: Vec<Memory>,
    /// One row for each number of clients.
    pub gateway: Vec<GatewayCost>,
    /// See [`Part::Overload`].
    pub overload: Option<Overload>,
    /// One row for each kind of work, number of clients and door.
    pub security: Vec<SecurityCost>,
}

/// Measures a service that runs at these addresses, in these processes. Without processes there are no
/// figures of CPU.
///
/// # Errors
/// If the service does not answer, or breaks a promise.
pub async fn measure(
    plan: &LoadPlan,
    urls: Vec<String>,
    pids: Vec<u32>,
    tell: Tell,
) -> Result<LoadReport, LoadError> {
    let bench = Bench::new(plan, urls, Processes::of(pids), tell)?;
    let mut report = LoadReport::default();
    for part in &plan.parts {
        bench.measure(*part, &mut report).await?;
    }
    Ok(report)
}

/// Measures a cluster of this many nodes, started for each part.
///
/// # Errors
/// If the cluster does not start or answer, or breaks a promise.
pub async fn measure_nodes(
    plan: &LoadPlan,
    count: usize,
    tell: Tell,
) -> Result<LoadReport, LoadError> {
    let mut report = LoadReport { nodes: Some(count), ..LoadReport::default() };
    for &part in &plan.parts {
        // Memory is told by what a fresh process grows by.
        for (nth, groups) in plan.groups.iter().enumerate() {
            if nth > 0 && part != Part::Memory {
                break;
            }
            tell(LoadProgress::Step(&format!("{count} nodes start")));
            let dir = plan.dir.as_deref();
            let servers = Servers::start(&plan.program, count, Door::Open, dir, tell).await?;
            let bench = Bench::new(plan, servers.urls(), Processes::of(servers.pids()), tell)?;
            if part == Part::Memory {
                report.memory.push(bench.memory(*groups).await?);
            } else {
                bench.measure(part, &mut report).await?;
            }
        }
    }
    Ok(report)
}

/// A service under measurement.
struct Bench<'a> {
    plan: &'a LoadPlan,
    /// Addresses of all nodes.
    urls: Vec<String>,
    processes: Processes,
    /// Keeps apart the names of several runs against one service.
    run_number: u64,
    progress: Tell,
}

impl<'a> Bench<'a> {
    fn new(
        plan: &'a LoadPlan,
        urls: Vec<String>,
        processes: Processes,
        progress: Tell,
    ) -> Result<Self, LoadError> {
        let run_number = fresh::number()? % 1_000_000;
        Ok(Self { plan, urls, processes, run_number, progress })
    }

    /// Says that a step begins.
    fn tell(&self, step: &str) {
        (self.progress)(LoadProgress::Step(step));
    }

    async fn measure(&self, part: Part, report: &mut LoadReport) -> Result<(), LoadError> {
        match part {
            Part::Load => {
                report.idle_cpu_percent = self.idle().await?;
                for &to in &self.plan.to {
                    for &count in &self.plan.clients {
                        report.load.extend(self.load(to, count).await?);
                    }
                }
            }
            Part::Width => report.width = Some(self.width().await?),
            Part::Failover => report.failover = Some(self.failover().await?),
            Part::Handover => report.handover = Some(self.handover().await?),
            Part::Succession => report.succession = Some(self.succession().await?),
            Part::Overload => report.overload = Some(self.overload().await?),
            Part::Security => report.security = security::measure(self.plan, self.progress).await?,
            Part::Gateway => {
                report.gateway =
                    gateway::measure(&self.plan.program, &self.plan.clients, self.plan.seconds)
                        .await?;
            }
            Part::Memory => {
                for &groups in &self.plan.groups {
                    report.memory.push(self.memory(groups).await?);
                }
            }
        }
        Ok(())
    }

    /// What the service costs when nobody asks anything.
    async fn idle(&self) -> Result<Option<f64>, LoadError> {
        if self.processes.are_unknown() {
            return Ok(None);
        }
        let (cpu, start) = (self.processes.cpu_us()?, regent_clock::now());
        tokio::time::sleep(Duration::from_secs(self.plan.seconds)).await;
        let elapsed = regent_clock::now().since(start).as_micros() as f64;
        Ok(Some((self.processes.cpu_us()? - cpu) as f64 * 100.0 / elapsed))
    }

    /// Connections of one client, as a process of its own would have them. It goes on with the other
    /// nodes if its own does not answer.
    fn remote(&self, to: &Target, number: usize) -> Result<Remote, LoadError> {
        let urls = match to {
            Target::One(url) => url.clone(),
            Target::All => {
                let mut urls = self.urls.clone();
                urls.rotate_left(number % self.urls.len());
                urls.join(",")
            }
        };
        Ok(Remote::new(&urls)?.with_timeout(self.plan.timeout))
    }

    /// Finds out where that is.
    async fn target(&self, to: ClientTarget) -> Result<Target, LoadError> {
        match to {
            ClientTarget::Spread => Ok(Target::All),
            ClientTarget::Leader => {
                let cluster = self.remote(&Target::All, 0)?.cluster().await?;
                let address = cluster.leader_address.ok_or_else(|| {
                    LoadError::Unavailable("nobody leads the log; try again".to_owned())
                })?;
                Ok(Target::One(format!("http://{address}")))
            }
        }
    }
}

/// Where clients go, found out.
#[derive(Clone, Debug)]
enum Target {
    All,
    One(String),
}

/// What stands at this share of sorted numbers.
fn at_share(sorted: &[u64], share: f64) -> u64 {
    let index = ((sorted.len() as f64 * share) as usize).min(sorted.len().max(1) - 1);
    sorted.get(index).copied().unwrap_or_default()
}
