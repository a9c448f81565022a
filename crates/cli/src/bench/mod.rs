//! `regent bench`: what elections cost.
//!
//! Load comes from this process, the service is others: times are what a client sees, and CPU is what
//! the service's processes used, all of them together. On a shared machine times wander and CPU hardly
//! does, so CPU per operation is what to compare.
//!
//! With `--nodes` it founds clusters of its own in a temporary folder, fsync and all, and ends them
//! again; otherwise it measures the service that runs at `--server`.

mod failover;
mod gateway;
mod handover;
mod load;
mod many;
mod servers;
mod show;
mod usage;
mod wire;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use regent::fresh;
use regent::remote::Remote;
use serde::Serialize;

use crate::client::ClientArgs;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::remark;
use failover::Failover;
use gateway::GatewayCost;
use handover::HandOver;
use load::Row;
use many::{Memory, Succession, Width};
use servers::Servers;
use usage::Processes;

const EXAMPLES: &str = "\
Examples:
  regent bench --nodes 3
  regent bench --nodes 1,3 --to spread,leader --clients 1,64,512 --seconds 5
  regent bench --nodes 3 --parts failover,width,succession,memory
  regent bench --nodes 3 --parts handover --transfers 1000 --resigns 1000
  regent bench --nodes 1 --parts memory --groups 100000,1000000 --output json
  regent bench --parts gateway --clients 1,64
  regent bench --server http://10.0.0.1:7400 --pid $(pgrep -x regent)";

/// Flags of `regent bench`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Start clusters of this many nodes here, one after the other, and measure those
    #[arg(long, value_delimiter = ',', value_name = "N", conflicts_with = "pid")]
    nodes: Vec<usize>,
    /// Where those keep their data; a folder in it is made and removed
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// What is measured
    #[arg(long, value_enum, value_delimiter = ',', default_value = "load")]
    parts: Vec<Part>,
    /// Which nodes clients ask: all in turn, or the one that leads the log
    #[arg(long, value_enum, value_delimiter = ',', default_value = "spread")]
    to: Vec<To>,
    /// How many clients at once, one row for each number
    #[arg(long, value_delimiter = ',', default_value = "1,64,512")]
    clients: Vec<usize>,
    /// How long each row is measured
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// How many groups, for memory and succession; the latter takes the first number
    #[arg(long, value_delimiter = ',', default_value = "100000", value_name = "N")]
    groups: Vec<usize>,
    /// How many crashes, for failover
    #[arg(long, default_value_t = 200, value_name = "N")]
    trials: usize,
    /// How many planned transfers, for handover
    #[arg(long, default_value_t = 200, value_name = "N")]
    transfers: usize,
    /// How many resignations, for handover
    #[arg(long, default_value_t = 200, value_name = "N")]
    resigns: usize,
    /// The service's process ids, to measure the CPU they use; all nodes of a cluster
    #[arg(long, value_delimiter = ',')]
    pid: Vec<u32>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Campaigns, renewals, heartbeats and reads, as fast as they are answered
    Load,
    /// A heartbeat of a session that leads 1,000 groups against one that leads a single group
    Width,
    /// How long after its ttl a crashed leader is succeeded
    Failover,
    /// How long nobody leads when a leader hands over or resigns, while the service is busy
    Handover,
    /// How long after its ttl a crashed leader of very many groups is succeeded in all of them
    Succession,
    /// What an idle group costs in memory
    Memory,
    /// What the fencing gateway costs a write; it needs no service
    Gateway,
}

/// Where clients go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum To {
    /// Each asks one of the nodes, all of them in turn
    Spread,
    /// All ask the node that leads the log
    Leader,
}

impl To {
    const fn word(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Leader => "leader",
        }
    }
}

/// Everything that was measured of one service.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// How many nodes were started; none if the service ran already.
    nodes: Option<usize>,
    /// What the service uses when nobody asks it anything, in hundredths of a core.
    idle_cpu_percent: Option<f64>,
    load: Vec<Row>,
    width: Option<Width>,
    failover: Option<Failover>,
    handover: Option<HandOver>,
    succession: Option<Succession>,
    memory: Vec<Memory>,
    gateway: Vec<GatewayCost>,
}

/// A service under measurement.
struct Bench<'a> {
    args: &'a BenchArgs,
    /// Addresses of all nodes.
    urls: Vec<String>,
    processes: Processes,
    /// Keeps apart the names of several runs against one service.
    run_number: u64,
}

/// Measures and prints tables.
pub(crate) async fn run(args: BenchArgs) -> Outcome {
    check(&args)?;
    let mut reports = Vec::new();
    if args.nodes.is_empty() {
        let urls = args.client.remote()?.addresses().iter().map(ToString::to_string).collect();
        let bench = Bench::new(&args, urls, Processes::of(args.pid.clone()))?;
        let mut report = Report::default();
        for part in parts(&args) {
            bench.measure(part, &mut report).await?;
        }
        reports.push(report);
    }
    for &count in &args.nodes {
        let mut report = Report { nodes: Some(count), ..Report::default() };
        for part in parts(&args) {
            // Memory is told by what a fresh process grows by.
            for (nth, _) in args.groups.iter().enumerate() {
                if nth > 0 && part != Part::Memory {
                    break;
                }
                remark(&format!("{count} nodes start"));
                let servers = Servers::start(count, args.dir.as_deref()).await?;
                let bench = Bench::new(&args, servers.urls(), Processes::of(servers.pids()))?;
                match part {
                    Part::Memory => report.memory.push(bench.memory(args.groups[nth]).await?),
                    Part::Load
                    | Part::Width
                    | Part::Failover
                    | Part::Handover
                    | Part::Succession
                    | Part::Gateway => {
                        bench.measure(part, &mut report).await?;
                    }
                }
            }
        }
        reports.push(report);
    }
    args.client.screen().answer(&reports, || show::reports(&reports))?;
    Ok(Exit::Done)
}

fn check(args: &BenchArgs) -> Result<(), Failure> {
    for (name, numbers) in
        [("nodes", &args.nodes), ("clients", &args.clients), ("groups", &args.groups)]
    {
        if numbers.contains(&0) {
            return Err(Failure::usage(format!("--{name}: at least one")));
        }
    }
    if args.seconds == 0 || args.trials == 0 {
        return Err(Failure::usage("--seconds and --trials: at least one"));
    }
    if args.transfers == 0 && args.resigns == 0 {
        return Err(Failure::usage("--transfers and --resigns: at least one of either"));
    }
    Ok(())
}

/// The parts asked for, each once.
fn parts(args: &BenchArgs) -> Vec<Part> {
    let mut parts = Vec::new();
    for part in &args.parts {
        if !parts.contains(part) {
            parts.push(*part);
        }
    }
    parts
}

impl<'a> Bench<'a> {
    fn new(args: &'a BenchArgs, urls: Vec<String>, processes: Processes) -> Result<Self, Failure> {
        let run_number = fresh::number()? % 1_000_000;
        Ok(Self { args, urls, processes, run_number })
    }

    async fn measure(&self, part: Part, report: &mut Report) -> Result<(), Failure> {
        match part {
            Part::Load => {
                report.idle_cpu_percent = self.idle().await?;
                for &to in &self.args.to {
                    for &count in &self.args.clients {
                        report.load.extend(self.load(to, count).await?);
                    }
                }
            }
            Part::Width => report.width = Some(self.width().await?),
            Part::Failover => report.failover = Some(self.failover().await?),
            Part::Handover => report.handover = Some(self.handover().await?),
            Part::Succession => report.succession = Some(self.succession().await?),
            Part::Gateway => {
                report.gateway = gateway::measure(&self.args.clients, self.args.seconds).await?;
            }
            Part::Memory => {
                for &groups in &self.args.groups {
                    report.memory.push(self.memory(groups).await?);
                }
            }
        }
        Ok(())
    }

    /// What the service costs when nobody asks anything.
    async fn idle(&self) -> Result<Option<f64>, Failure> {
        if self.processes.are_unknown() {
            return Ok(None);
        }
        let (cpu, start) = (self.processes.cpu_us()?, regent_clock::now());
        tokio::time::sleep(std::time::Duration::from_secs(self.args.seconds)).await;
        let elapsed = regent_clock::now().since(start).as_micros() as f64;
        Ok(Some((self.processes.cpu_us()? - cpu) as f64 * 100.0 / elapsed))
    }

    /// Connections of one client, as a process of its own would have them. It goes on with the other
    /// nodes if its own does not answer.
    fn remote(&self, to: &Target, number: usize) -> Result<Remote, Failure> {
        let urls = match to {
            Target::One(url) => url.clone(),
            Target::All => {
                let mut urls = self.urls.clone();
                urls.rotate_left(number % self.urls.len());
                urls.join(",")
            }
        };
        Ok(Remote::new(&urls)?.with_timeout(self.args.client.timeout))
    }

    /// Finds out where that is.
    async fn target(&self, to: To) -> Result<Target, Failure> {
        match to {
            To::Spread => Ok(Target::All),
            To::Leader => {
                let cluster = self.remote(&Target::All, 0)?.cluster().await?;
                let address = cluster.leader_address.ok_or_else(|| {
                    Failure::new(Exit::Unavailable, "nobody leads the log; try again")
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

/// A task of the benchmark itself failed.
fn broken(error: tokio::task::JoinError) -> Failure {
    Failure::new(Exit::Unavailable, format!("a client of the benchmark failed: {error}"))
}
