//! Whether a deployment keeps what elections need, before it is trusted with any.
//!
//! It asks the deployment about itself, measures how long it takes, and then holds the contract of
//! registers against it over two connections: conditional writes that must fail, races that must have
//! one winner, waits that must end. A store that ignores conditions is found out here, and nowhere as
//! cheaply.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use regent_election::Budget;
use regent_stores::register::contract::{CaseResult, Harness, cases};
use regent_stores::register::{Key, Record, Register, RegisterError, Swapped};
use regent_stores::time::{SystemTime, Time};
use serde::Serialize;

/// Writes that are timed.
pub const TIMED_WRITES: usize = 40;
/// Cases that run at once: enough that waits overlap, few enough for a small server.
const AT_ONCE: usize = 8;

/// What happens on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExamineProgress<'a> {
    /// The examination begins.
    Began {
        /// What kind of store it is.
        name: &'static str,
        /// Where it is, without secrets.
        place: &'a str,
    },
    /// One more check is done.
    Checked {
        /// How many are.
        done: usize,
        /// How many there are.
        total: usize,
        /// Whether this one was broken.
        is_broken: bool,
    },
}

/// Why a deployment cannot be examined.
#[derive(Debug, thiserror::Error)]
pub enum ExamineError {
    /// It is unfit, or cannot be asked.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// It must not keep elections.
    #[error("an entry of our own was changed by somebody else, or a write was lost")]
    LostWrite,
    /// A check did not end.
    #[error("a check was broken off: {0}")]
    BrokenOff(String),
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExamineReport {
    /// What kind of store it is.
    pub store: &'static str,
    /// Where it is, without secrets.
    pub place: String,
    /// The level that it claims.
    pub claims: String,
    /// How the connection to it is protected, where an engine of ours makes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// Whether it may be trusted with what it claims.
    pub keeps_the_contract: bool,
    /// Why to trust it less.
    pub warnings: Vec<String>,
    /// How long half of the writes took at most.
    pub write_p50_ms: f64,
    /// How long the slowest write took.
    pub write_p99_ms: f64,
    pub checks: Vec<Check>,
}

impl ExamineReport {
    /// Whether it may be trusted, in one line; `ttl` is what leaders shall have.
    #[must_use]
    pub fn verdict(&self, ttl: Duration) -> String {
        let (name, place) = (self.store, &self.place);
        if !self.keeps_the_contract {
            format!("{name} at {place} does NOT keep the contract: do not hold elections on it\n")
        } else if self.warnings.is_empty() {
            format!("{name} at {place} keeps the contract: {}, for a ttl of {ttl:?}\n", self.claims)
        } else {
            format!(
                "{name} at {place} keeps the contract, and would be {} without what is warned of above\n",
                self.claims
            )
        }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name, as a fact with underscores.
    pub check: String,
    /// `held`, `skipped` or `broken`.
    pub result: &'static str,
    /// Why, if it is not held.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
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

/// Examines a deployment over two connections to it; `budget` is that of the ttl which leaders shall have on
/// it. Both connections are shut down at the end.
///
/// Every run leaves some hundred small entries behind, all named `contract/...`.
///
/// # Errors
/// If it cannot be examined to the end.
pub async fn examine(
    here: Arc<dyn Register>,
    there: Arc<dyn Register>,
    budget: &Budget,
    report: &mut (dyn FnMut(ExamineProgress<'_>) + Send),
) -> Result<ExamineReport, ExamineError> {
    let hands = Hands { here, there };
    let description = hands.here.describe();
    report(ExamineProgress::Began { name: description.name, place: &description.place });
    let connection = hands.here.encryption().map(|encryption| encryption.to_string());
    let mut warnings = hands.here.examine().await?;
    let times = time_writes(&hands).await?;
    let (p50, p99) = (times[TIMED_WRITES / 2], times[TIMED_WRITES - 1]);
    let mut checks = vec![pace(budget, p99, &mut warnings)];
    let hands: Arc<dyn Harness> = Arc::new(hands);
    checks.extend(hold(&hands, report).await?);
    hands.register().shut_down().await;
    hands.other().shut_down().await;
    Ok(ExamineReport {
        store: description.name,
        place: description.place,
        claims: description.level.to_string(),
        connection,
        keeps_the_contract: checks.iter().all(|check| check.result != "broken"),
        warnings,
        write_p50_ms: p50.as_secs_f64() * 1000.0,
        write_p99_ms: p99.as_secs_f64() * 1000.0,
        checks,
    })
}

/// How long writes take, the shortest first.
async fn time_writes(hands: &Hands) -> Result<Vec<Duration>, ExamineError> {
    let key = Key::session(SystemTime.chance());
    let mut version = None;
    let mut times = Vec::with_capacity(TIMED_WRITES);
    for _ in 0..TIMED_WRITES {
        let value = SystemTime.chance().to_be_bytes().to_vec();
        let since = regent_clock::now();
        let swapped = hands.here.swap(&key, version.as_ref(), Record::bare(value)).await;
        match swapped? {
            Swapped::Done(next) => version = Some(next),
            Swapped::Conflict => return Err(ExamineError::LostWrite),
        }
        times.push(regent_clock::now().since(since));
    }
    times.sort_unstable();
    Ok(times)
}

/// Whether writes are quick enough for this ttl.
fn pace(budget: &Budget, p99: Duration, warnings: &mut Vec<String>) -> Check {
    let allowed = budget.request_timeout();
    let note = format!("{p99:.0?} of the {allowed:.0?} that a heartbeat may take");
    if p99 > allowed / 2 && p99 <= allowed {
        warnings.push(format!("writes are slow for this ttl: {note}"));
    }
    let result = if p99 <= allowed { "held" } else { "broken" };
    Check { check: "a_write_fits_into_a_heartbeat".into(), result, note }
}

/// Holds the contract against the deployment.
async fn hold(
    hands: &Arc<dyn Harness>,
    report: &mut (dyn FnMut(ExamineProgress<'_>) + Send),
) -> Result<Vec<Check>, ExamineError> {
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
        let (name, verdict) = done.map_err(|error| ExamineError::BrokenOff(error.to_string()))?;
        let (result, note) = match verdict {
            CaseResult::Held => ("held", String::new()),
            CaseResult::Skipped(why) => ("skipped", why),
            CaseResult::Broken(why) => ("broken", why),
        };
        checks.push(Check { check: name.into(), result, note });
        report(ExamineProgress::Checked {
            done: checks.len(),
            total,
            is_broken: result == "broken",
        });
    }
    checks.sort_by(|a, b| (a.result, &a.check).cmp(&(b.result, &b.check)));
    Ok(checks)
}
