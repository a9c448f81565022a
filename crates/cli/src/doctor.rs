//! `regent doctor`: whether a deployment keeps what elections need, before it is trusted with any.
//!
//! It asks the deployment about itself, measures how long it takes, and then holds the contract of
//! registers against it over two connections: conditional writes that must fail, races that must have
//! one winner, waits that must end. A store that ignores conditions is found out here, and nowhere as
//! cheaply.

mod recovery;
mod split_brain;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clap::{Args, Subcommand};
use regent_election::{Budget, Drift};
use regent_stores::open_register;
use regent_stores::register::contract::{Harness, Verdict, cases};
use regent_stores::register::{Key, Record, Register, RegisterError, Swapped};
use regent_stores::time::{SystemTime, Time};
use serde::Serialize;

use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Screen, Side, remark, table};
use crate::serve::unopened;

/// Writes that are timed.
const TIMED: usize = 40;
/// Cases that run at once: enough that waits overlap, few enough for a small server.
const AT_ONCE: usize = 8;

/// Flags of `regent doctor`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Exit code 0: it keeps the contract. 77: it does not, and must not keep elections. 69: it cannot
be asked.
Every run leaves some hundred small entries behind, all named contract/...

Examples:
  regent doctor --store file:///var/lib/elections
  regent doctor --store postgres://regent@db/elections --ttl 5s
  regent doctor --store redis://cache --output json
  regent doctor split-brain --server http://a:7400,http://b:7400")]
pub(crate) struct DoctorArgs {
    /// The deployment; `regent store list` shows how its URL is written
    #[arg(long, value_name = "URL", env = "REGENT_STORE", required = true)]
    store: Option<String>,
    /// The ttl that leaders shall have on it
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    ttl: Duration,
    /// For people or for programs
    #[arg(short, long, value_enum, default_value_t, env = "REGENT_OUTPUT")]
    output: Output,
    #[command(subcommand)]
    verb: Option<DoctorVerb>,
}

/// What else can be looked into.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DoctorVerb {
    /// Find out whether two lead one group, and walk the way back to one
    SplitBrain(Box<split_brain::SplitBrainArgs>),
}

impl DoctorArgs {
    /// For whom a failure is told.
    pub(crate) fn output(&self) -> Output {
        match &self.verb {
            Some(DoctorVerb::SplitBrain(args)) => args.client.output,
            None => self.output,
        }
    }
}

/// What was found.
#[derive(Debug, Serialize)]
struct Report {
    store: &'static str,
    place: String,
    claims: String,
    /// Whether it may be trusted with what it claims.
    keeps_the_contract: bool,
    /// Why to trust it less.
    warnings: Vec<String>,
    write_p50_ms: f64,
    write_p99_ms: f64,
    checks: Vec<Check>,
}

/// One check.
#[derive(Debug, Serialize)]
struct Check {
    check: String,
    result: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
}

/// Two connections to one deployment.
struct Hands {
    here: Arc<dyn Register>,
    there: Arc<dyn Register>,
}

#[async_trait]
impl Harness for Hands {
    fn register(&self) -> Arc<dyn Register> {
        Arc::clone(&self.here)
    }

    fn other(&self) -> Arc<dyn Register> {
        Arc::clone(&self.there)
    }

    fn time(&self) -> Arc<dyn Time> {
        SystemTime::shared()
    }

    fn unique(&self) -> u128 {
        SystemTime.chance()
    }

    fn drift_ppm(&self) -> u32 {
        // A server's wall clock is slewed by its time daemon; the lease clock here is not.
        10_000
    }
}

/// Runs the verb.
pub(crate) async fn run(args: DoctorArgs) -> Outcome {
    if let Some(DoctorVerb::SplitBrain(args)) = args.verb {
        return split_brain::run(*args).await;
    }
    let store = args.store.ok_or_else(|| Failure::usage("--store says which deployment"))?;
    let open = || open_register(&store).map_err(unopened);
    let hands = Hands { here: open()?, there: open()? };
    let description = hands.here.describe();
    remark(&format!("{} at {} is examined", description.name, description.place));
    let mut warnings = hands.here.examine().await.map_err(|error| unasked(&error))?;
    let times = time_writes(&hands).await?;
    let (p50, p99) = (times[TIMED / 2], times[TIMED - 1]);
    let pace = pace(args.ttl, p99, &mut warnings)?;
    let hands: Arc<dyn Harness> = Arc::new(hands);
    let mut checks = vec![pace];
    checks.extend(hold(&hands, args.output).await?);
    let report = Report {
        store: description.name,
        place: description.place,
        claims: description.level.to_string(),
        keeps_the_contract: checks.iter().all(|check| check.result != "broken"),
        warnings,
        write_p50_ms: p50.as_secs_f64() * 1000.0,
        write_p99_ms: p99.as_secs_f64() * 1000.0,
        checks,
    };
    hands.register().shut_down().await;
    hands.other().shut_down().await;
    Screen { output: args.output }.answer(&report, || show(&report, args.ttl))?;
    Ok(if report.keeps_the_contract { Exit::Done } else { Exit::Refused })
}

fn unasked(error: &RegisterError) -> Failure {
    match error {
        RegisterError::Unfit { why } => {
            Failure::new(Exit::Refused, format!("{why}; do not hold elections on it"))
        }
        RegisterError::Unavailable { .. }
        | RegisterError::Uncertain { .. }
        | RegisterError::Corrupt { .. } => {
            Failure::new(Exit::Unavailable, format!("the deployment cannot be examined: {error}"))
        }
    }
}

/// How long writes take, the shortest first.
async fn time_writes(hands: &Hands) -> Result<Vec<Duration>, Failure> {
    let key = Key::session(SystemTime.chance());
    let mut version = None;
    let mut times = Vec::with_capacity(TIMED);
    for _ in 0..TIMED {
        let value = SystemTime.chance().to_be_bytes().to_vec();
        let since = regent_clock::now();
        let swapped = hands.here.swap(&key, version.as_ref(), Record::bare(value)).await;
        match swapped.map_err(|error| unasked(&error))? {
            Swapped::Done(next) => version = Some(next),
            Swapped::Conflict => {
                let why = "an entry of our own was changed by somebody else, or a write was lost";
                return Err(Failure::new(Exit::Refused, why));
            }
        }
        times.push(regent_clock::now().since(since));
    }
    times.sort_unstable();
    Ok(times)
}

/// Whether writes are quick enough for this ttl.
fn pace(ttl: Duration, p99: Duration, warnings: &mut Vec<String>) -> Result<Check, Failure> {
    let drift = Drift::from_ppm(regent_clock::drift_ppm())
        .map_err(|error| Failure::usage(error.to_string()))?;
    let budget = Budget::new(duration::millis(ttl), drift)
        .map_err(|error| Failure::new(Exit::Usage, format!("--ttl: {error}")))?;
    let allowed = budget.request_timeout();
    let note = format!("{p99:.0?} of the {allowed:.0?} that a heartbeat may take");
    if p99 > allowed / 2 && p99 <= allowed {
        warnings.push(format!("writes are slow for this ttl: {note}"));
    }
    let result = if p99 <= allowed { "held" } else { "broken" };
    Ok(Check { check: "a_write_fits_into_a_heartbeat".into(), result, note })
}

/// Holds the contract against the deployment.
async fn hold(hands: &Arc<dyn Harness>, output: Output) -> Result<Vec<Check>, Failure> {
    let mut waiting = cases().into_iter();
    let total = waiting.len();
    let mut running = tokio::task::JoinSet::new();
    let mut checks = Vec::with_capacity(total);
    loop {
        while running.len() < AT_ONCE
            && let Some(case) = waiting.next()
        {
            let hands = Arc::clone(hands);
            running.spawn(async move { (case.name, case.run(hands).await) });
        }
        let Some(done) = running.join_next().await else { break };
        let (name, verdict) = done.map_err(|error| {
            Failure::new(Exit::Unavailable, format!("a check was broken off: {error}"))
        })?;
        let (result, note) = match verdict {
            Verdict::Held => ("held", String::new()),
            Verdict::Skipped(why) => ("skipped", why),
            Verdict::Broken(why) => ("broken", why),
        };
        checks.push(Check { check: name.into(), result, note });
        if output == Output::Text && (result == "broken" || checks.len() % 8 == 0) {
            remark(&format!("{} of {total} checks done", checks.len()));
        }
    }
    checks.sort_by(|a, b| (a.result, &a.check).cmp(&(b.result, &b.check)));
    Ok(checks)
}

fn show(report: &Report, ttl: Duration) -> String {
    let head = [("check", Side::Left), ("result", Side::Left), ("note", Side::Left)];
    let cells = |check: &Check| {
        let name = check.check.replace('_', " ");
        vec![name, check.result.to_owned(), check.note.clone()]
    };
    let mut text = table(&head, report.checks.iter().map(cells).collect());
    text.push_str(&format!(
        "\n\nwrites take {:.1} ms, the slowest of {TIMED} {:.1} ms\n",
        report.write_p50_ms, report.write_p99_ms
    ));
    for warning in &report.warnings {
        text.push_str(&format!("WARNING: {warning}\n"));
    }
    let (name, place) = (report.store, &report.place);
    text.push_str(&if !report.keeps_the_contract {
        format!("{name} at {place} does NOT keep the contract: do not hold elections on it\n")
    } else if report.warnings.is_empty() {
        format!("{name} at {place} keeps the contract: {}, for a ttl of {ttl:?}\n", report.claims)
    } else {
        format!(
            "{name} at {place} keeps the contract, and would be {} without what is warned of above\n",
            report.claims
        )
    });
    text
}
