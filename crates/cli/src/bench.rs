//! `regent bench`: what elections cost a running service.
//!
//! Load comes from this process, the service is another: times are what a client sees, and CPU is
//! what the service's processes used, all of them together. On a shared machine times wander and CPU
//! hardly does, so CPU per operation is what to compare.
//!
//! A closed loop: every client sends its next request when the last one is answered.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use regent::fresh;
use regent::remote::Remote;
use regent_api::{
    CampaignRequest, Consistency, OpenSessionRequest, RenewRequest, RenewSessionRequest,
};
use regent_election::{Group, Metadata, Node, SessionId, Term};
use serde::Serialize;

use crate::client::ClientArgs;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::{Side, remark, table};

const EXAMPLES: &str = "\
Examples:
  regent bench --pid $(pgrep -x regent)
  regent bench --clients 1,64 --seconds 5 --output json";

/// A session of the benchmark lives this long unheard, so that none expires in a run.
const TTL_MS: u64 = 30 * 60 * 1000;

/// Flags of `regent bench`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// How many clients at once, one row for each number
    #[arg(long, value_delimiter = ',', default_value = "1,64,512")]
    clients: Vec<usize>,
    /// How long each row is measured
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// The service's process ids, to measure the CPU they use; all nodes of a cluster
    #[arg(long, value_delimiter = ',')]
    pid: Vec<u32>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Work {
    Campaign,
    Renew,
    Heartbeat,
    Read,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Campaign => "campaign and win",
            Self::Renew => "renew one tenure",
            Self::Heartbeat => "renew a session",
            Self::Read => "read who leads",
        })
    }
}

/// One row.
#[derive(Clone, Debug, Serialize)]
struct Row {
    work: Work,
    clients: usize,
    operations: u64,
    failures: u64,
    per_second: f64,
    p50_us: u64,
    p99_us: u64,
    server_cpu_us: Option<f64>,
}

/// A client with its session and the office it holds.
struct Client {
    remote: Remote,
    number: usize,
    session: SessionId,
    group: Group,
    term: Term,
    campaigns: u64,
}

/// Measures and prints a table.
pub(crate) async fn run(args: BenchArgs) -> Outcome {
    let run_number = fresh::number()? % 1_000_000;
    let mut rows = Vec::new();
    for &count in &args.clients {
        if count == 0 {
            return Err(Failure::usage("--clients: at least one client".to_owned()));
        }
        remark(&format!("{count} clients get ready"));
        let mut clients = prepare(&args, run_number, count).await?;
        for work in [Work::Campaign, Work::Renew, Work::Heartbeat, Work::Read] {
            remark(&format!("{count} clients: {work}, {} s", args.seconds));
            let (row, back) = measure(&args, work, clients).await?;
            clients = back;
            rows.push(row);
        }
    }
    args.client.screen().answer(&rows, || show(&rows))?;
    Ok(Exit::Done)
}

fn name(text: &str) -> Result<Group, Failure> {
    Group::new(text).map_err(|error| Failure::usage(error.to_string()))
}

/// Opens a session for every client and lets each lead one group.
async fn prepare(args: &BenchArgs, run_number: u64, count: usize) -> Result<Vec<Client>, Failure> {
    let mut starting = tokio::task::JoinSet::new();
    for number in 0..count {
        // Every client has connections of its own, as processes would.
        let remote = args.client.remote()?;
        let group = name(&format!("bench/{run_number}/{count}/{number}"))?;
        starting.spawn(async move {
            let node = Node::new(&format!("bench-{number}"))
                .map_err(|error| Failure::usage(error.to_string()))?;
            let session = fresh::session_id()?;
            let open = OpenSessionRequest {
                node_id: node.clone(),
                ttl_ms: Some(TTL_MS),
                session_id: Some(session),
            };
            remote.open_session(&open).await?;
            let won = remote.campaign(&group, &bid(node, session)).await?;
            let term = won.elected.then_some(won.office.term);
            let term = term.ok_or_else(|| Failure::usage(format!("{group} is led already")))?;
            Ok::<Client, Failure>(Client { remote, number, session, group, term, campaigns: 0 })
        });
    }
    let mut clients = Vec::with_capacity(count);
    while let Some(client) = starting.join_next().await {
        clients.push(client.map_err(|error| Failure::usage(error.to_string()))??);
    }
    Ok(clients)
}

fn bid(node_id: Node, session: SessionId) -> CampaignRequest {
    CampaignRequest {
        node_id,
        ttl_ms: None,
        session_id: Some(session),
        wait_ms: None,
        priority: 0,
        metadata: Metadata::NONE,
        request_id: None,
    }
}

impl Client {
    async fn once(&mut self, work: Work) -> bool {
        match work {
            Work::Campaign => {
                self.campaigns += 1;
                let group = format!("{}/{}", self.group, self.campaigns);
                let (Ok(group), Ok(node)) =
                    (Group::new(&group), Node::new(&format!("bench-{}", self.number)))
                else {
                    return false;
                };
                let won = self.remote.campaign(&group, &bid(node, self.session)).await;
                won.is_ok_and(|won| won.elected)
            }
            Work::Renew => {
                let request =
                    RenewRequest { session_id: self.session, term: self.term, extend_by_ms: None };
                self.remote.renew(&self.group, &request).await.is_ok()
            }
            Work::Heartbeat => {
                let request = RenewSessionRequest {
                    session_id: self.session,
                    sequence: None,
                    disown: Vec::new(),
                };
                self.remote.renew_session(&request).await.is_ok()
            }
            Work::Read => self.remote.leader(&self.group, Consistency::Linearizable).await.is_ok(),
        }
    }
}

async fn measure(
    args: &BenchArgs,
    work: Work,
    clients: Vec<Client>,
) -> Result<(Row, Vec<Client>), Failure> {
    let count = clients.len();
    let failures = Arc::new(AtomicU64::new(0));
    let cpu_before = cpu_us(&args.pid)?;
    let start = regent_clock::now();
    let end = start + Duration::from_secs(args.seconds);
    let mut running = tokio::task::JoinSet::new();
    for mut client in clients {
        let failures = Arc::clone(&failures);
        running.spawn(async move {
            let mut times_us = Vec::new();
            loop {
                let sent_at = regent_clock::now();
                if sent_at >= end {
                    return (client, times_us);
                }
                if client.once(work).await {
                    let took = regent_clock::now().since(sent_at);
                    times_us.push(took.as_micros() as u64);
                } else {
                    failures.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    let mut back = Vec::with_capacity(count);
    let mut times_us = Vec::new();
    while let Some(done) = running.join_next().await {
        let (client, times) = done.map_err(|error| Failure::usage(error.to_string()))?;
        back.push(client);
        times_us.extend(times);
    }
    let elapsed = regent_clock::now().since(start).as_secs_f64();
    let cpu = cpu_us(&args.pid)?;
    times_us.sort_unstable();
    let operations = times_us.len() as u64;
    let at = |share: f64| {
        let index = ((times_us.len() as f64 * share) as usize).min(times_us.len().max(1) - 1);
        times_us.get(index).copied().unwrap_or_default()
    };
    let row = Row {
        work,
        clients: count,
        operations,
        failures: failures.load(Ordering::Relaxed),
        per_second: operations as f64 / elapsed,
        p50_us: at(0.50),
        p99_us: at(0.99),
        server_cpu_us: (!args.pid.is_empty() && operations > 0)
            .then(|| (cpu - cpu_before) as f64 / operations as f64),
    };
    Ok((row, back))
}

/// CPU that these processes have used, in microseconds.
fn cpu_us(pids: &[u32]) -> Result<u64, Failure> {
    let mut total = 0;
    for pid in pids {
        let path = format!("/proc/{pid}/stat");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Failure::usage(format!("--pid {pid}: {path}: {error}")))?;
        // The name may hold anything, so count from the parenthesis that ends it.
        let after = text.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = after.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let used = ticks(11).zip(ticks(12)).map(|(user, system)| user + system);
        let used = used.ok_or_else(|| Failure::usage(format!("{path} is not as expected")))?;
        // A hundred ticks a second on every Linux there is.
        total += used * 10_000;
    }
    Ok(total)
}

fn show(rows: &[Row]) -> String {
    let head = [
        ("WORK", Side::Left),
        ("CLIENTS", Side::Right),
        ("PER SECOND", Side::Right),
        ("P50", Side::Right),
        ("P99", Side::Right),
        ("SERVER CPU", Side::Right),
        ("FAILED", Side::Right),
    ];
    let micros = |us: u64| format!("{:.2} ms", us as f64 / 1000.0);
    let body = rows.iter().map(|row| {
        vec![
            row.work.to_string(),
            row.clients.to_string(),
            format!("{:.0}", row.per_second),
            micros(row.p50_us),
            micros(row.p99_us),
            row.server_cpu_us.map_or_else(|| "-".to_owned(), |us| format!("{us:.0} us")),
            row.failures.to_string(),
        ]
    });
    table(&head, body.collect())
}
