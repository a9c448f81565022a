//! `regent bench`: what elections cost.

mod show;

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use regent_election::error_text::plain;
use regent_load::{ClientTarget, LoadError, LoadPlan, LoadProgress, Part, measure, measure_nodes};

use crate::client::ClientArgs;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Screen, remark};

const EXAMPLES: &str = "\
Examples:
  regent bench --nodes 3
  regent bench --nodes 1,3 --to spread,leader --clients 1,64,512 --seconds 5
  regent bench --nodes 3 --parts failover,width,succession,memory
  regent bench --nodes 3 --parts handover --transfers 1000 --resigns 1000
  regent bench --nodes 1,3 --parts overload --clients 512 --seconds 10
  regent bench --nodes 1 --parts memory --groups 100000,1000000 --output json
  regent bench --parts gateway --clients 1,64
  regent bench --parts security --clients 64
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
    #[arg(long, value_parser = one_of(&Part::ALL), value_delimiter = ',', default_value = "load")]
    parts: Vec<Part>,
    /// Which nodes clients ask: all in turn, or the one that leads the log
    #[arg(long, value_parser = one_of(&ClientTarget::ALL), value_delimiter = ',', default_value = "spread")]
    to: Vec<ClientTarget>,
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

/// Measures and prints tables.
pub(crate) async fn run(args: BenchArgs) -> CommandResult {
    check(&args)?;
    let plan = args.plan()?;
    let mut reports = Vec::new();
    if args.nodes.is_empty() {
        let urls = args.client.remote()?.addresses().iter().map(ToString::to_string).collect();
        reports.push(measure(&plan, urls, args.pid.clone(), tell).await?);
    }
    for &count in &args.nodes {
        reports.push(measure_nodes(&plan, count, tell).await?);
    }
    Screen::chosen().answer(&reports, || show::reports(&reports))?;
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

impl BenchArgs {
    fn plan(&self) -> Result<LoadPlan, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            let why = format!("regent cannot start itself: {}", plain(&error));
            Failure::new(Exit::Unavailable, why)
        })?;
        // The parts asked for, each once.
        let mut parts = Vec::new();
        for &part in &self.parts {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        Ok(LoadPlan {
            parts,
            to: self.to.clone(),
            clients: self.clients.clone(),
            seconds: self.seconds,
            groups: self.groups.clone(),
            trials: self.trials,
            transfers: self.transfers,
            resigns: self.resigns,
            timeout: self.client.timeout,
            program,
            dir: self.dir.clone(),
        })
    }
}

/// One of these words, each with what it means.
fn one_of<T>(all: &'static [(T, &str, &str)]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let words = all.iter().map(|(_, word, about)| PossibleValue::new(*word).help(*about));
    PossibleValuesParser::new(words).try_map(move |chosen| {
        let found = all.iter().find(|(_, word, _)| *word == chosen);
        found.map(|(it, ..)| *it).ok_or_else(|| format!("no such word: {chosen}"))
    })
}

/// Says on standard error what happens.
fn tell(progress: LoadProgress<'_>) {
    match progress {
        LoadProgress::Step(step) => remark(step),
        LoadProgress::InMemory(folder) => remark(&format!(
            "warning: {} is in memory, where a sync costs nothing; choose a disk with --dir",
            folder.display()
        )),
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        let message = error.to_string();
        match error {
            LoadError::Remote(error) => error.into(),
            LoadError::Address(error) => error.into(),
            LoadError::Name(error) => error.into(),
            LoadError::NoRandomness(error) => error.into(),
            LoadError::Folder { path, source } => Self::file(&path, &source),
            LoadError::Io { what, source } => {
                Self::new(Exit::Unavailable, format!("{what}: {}", plain(&source)))
            }
            LoadError::Client(_) | LoadError::Unavailable(_) => {
                Self::new(Exit::Unavailable, message)
            }
            LoadError::Wrong(_) => Self::usage(message),
        }
    }
}
