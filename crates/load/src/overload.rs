//! Five times the load that a service can take: who is served then.
//!
//! Sessions that lead renew on time, each on a connection of its own, as programs do that were there before the flood
//! (`keepers`). Beside them connections ask to watch, to read and to campaign (`open_loop`): first as fast as they are
//! answered, which says what the service can take, then by the clock, five times as much.
//!
//! The flood and the sessions that renew have threads of their own, so that renewals are not late because this process
//! could not send them. They still share the machine with the service: the report says how much of it each had.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use regent::fresh;
use regent_api::Operation;
use regent_election::{Budget, Drift, Group};
use serde::Serialize;
use tokio::task::spawn_blocking;

use crate::closed_loop::{bid, group, node, unasked};
use crate::error::LoadError;
use crate::keepers::{Keeper, Kept, Stage, keep_all};
use crate::open_loop::{Flood, Flooding, Line, Tallies, Tally, WAITING_MAX};
use crate::usage::Processes;
use crate::wire::Wire;
use crate::{Bench, ClientTarget, Target, at_share};

/// Sessions that lead, and their ttl: that of a program that wants a quick successor.
const KEEPERS: usize = 256;
const KEEPER_TTL_MS: u64 = 3000;
/// How many times what the service can take is offered.
const TIMES: f64 = 5.0;
/// Connections that ask as fast as they are answered: few enough that none is refused.
const CLOSED_CONNECTIONS: usize = 128;
/// For how long they do.
const CLOSED_FOR: Duration = Duration::from_secs(3);
/// How often it is looked whether all sessions lead.
const READY_POLL_EVERY: Duration = Duration::from_millis(20);

/// What became of renewals under more load than the service can take.
#[derive(Clone, Debug, Serialize)]
pub struct Overload {
    /// Sessions that lead and renew.
    pub sessions: usize,
    pub ttl_ms: u64,
    /// Connections beside them that ask, and how many requests without an answer each may have.
    pub connections: usize,
    pub waiting_max: usize,
    /// What the service answers to a closed loop.
    pub capacity_per_second: f64,
    /// What was due by the clock.
    pub offered_per_second: f64,
    /// What of that was sent. The rest was due on connections that had too many requests without an answer.
    pub sent_per_second: f64,
    /// Both, as multiples of the capacity.
    pub offered_times: f64,
    pub sent_times: f64,
    /// By what was asked.
    pub asked: Vec<Asked>,
    pub renewals: u64,
    /// Acknowledged before the holder would have had to stop, with the library's retries.
    pub renewals_in_time: u64,
    /// The others: so often a lease was lost.
    pub leases_lost: u64,
    /// The part of all renewals that was answered in time, in per cent.
    pub in_time_percent: f64,
    /// Attempts to renew that were refused, and those without an answer within the request time-out.
    pub attempts_refused: u64,
    pub attempts_unanswered: u64,
    /// From when a renewal was due until it was acknowledged, of those in time.
    pub renewal_p50_ms: f64,
    pub renewal_p99_ms: f64,
    pub renewal_slowest_ms: f64,
    /// What the service and this process used while the load was offered, in cores.
    pub server_cores: Option<f64>,
    pub client_cores: f64,
}

/// What became of one kind of request.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    pub what: &'static str,
    pub offered: u64,
    pub unsent: u64,
    /// 200.
    pub answered: u64,
    /// 429.
    pub refused: u64,
    /// 503.
    pub unavailable: u64,
    /// Another answer, or a connection that broke.
    pub failed: u64,
}

impl Overload {
    /// All of it for people, one fact a line.
    #[must_use]
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let rate = |per_second: f64, times: f64| {
            format!("{per_second:.0} a second, {times:.1} times that")
        };
        let mut facts = vec![
            ("sessions that renew", format!("{}, with a ttl of {} ms", self.sessions, self.ttl_ms)),
            ("it can take", format!("{:.0} requests a second", self.capacity_per_second)),
            ("offered", rate(self.offered_per_second, self.offered_times)),
            (
                "sent",
                format!(
                    "{}; on {} connections, each with up to {} unanswered",
                    rate(self.sent_per_second, self.sent_times),
                    self.connections,
                    self.waiting_max
                ),
            ),
        ];
        facts.extend(self.asked.iter().map(|asked| {
            let Asked { what, unsent, answered, refused, unavailable, failed, .. } = asked;
            let text = format!(
                "{answered} answered, {refused} refused (429), {unavailable} (503), {failed} failed, {unsent} not sent"
            );
            (*what, text)
        }));
        let (server, client) = (self.server_cores, self.client_cores);
        let server = server.map_or_else(|| "-".to_owned(), |cores| format!("{cores:.2}"));
        facts.extend([
            (
                "renewals answered in time",
                format!("{:.2} % of {}", self.in_time_percent, self.renewals),
            ),
            ("leases lost", self.leases_lost.to_string()),
            (
                "attempts tried again",
                format!(
                    "{} refused, {} unanswered",
                    self.attempts_refused, self.attempts_unanswered
                ),
            ),
            (
                "renewals took",
                format!(
                    "p50 {:.1} ms, p99 {:.1} ms, slowest {:.1} ms",
                    self.renewal_p50_ms, self.renewal_p99_ms, self.renewal_slowest_ms
                ),
            ),
            ("cores used", format!("{server} by the service, {client:.2} by the load")),
        ]);
        facts
    }
}

impl Bench<'_> {
    /// Offers five times what the service can take, beside sessions that renew.
    pub(crate) async fn overload(&self) -> Result<Overload, LoadError> {
        let target = self.target(ClientTarget::Spread).await?;
        let connections = self.plan.clients.iter().copied().max().unwrap_or(1);
        let seconds = Duration::from_secs(self.plan.seconds);

        self.tell(&format!("{KEEPERS} sessions lead and renew"));
        let keepers: Result<Vec<_>, _> =
            (0..KEEPERS).map(|number| self.keeper(&target, number)).collect();
        let stage = Arc::new(Stage::default());
        let kept = {
            let (keepers, stage) = (keepers?, Arc::clone(&stage));
            on_its_own_thread(move || keep_all(keepers, stage))
        };
        while stage.ready.load(Ordering::Acquire) < KEEPERS && !kept.is_finished() {
            tokio::time::sleep(READY_POLL_EVERY).await;
        }
        let mut flooding = Flooding::new(self.lines(&target, connections).await?);
        self.tell(&format!("{connections} connections; what it can take"));
        let (calm, back) = spawn_blocking(move || {
            let tallies = flooding.ask(CLOSED_CONNECTIONS, CLOSED_FOR);
            (tallies, flooding)
        })
        .await?;
        flooding = back;
        let answered: u64 = calm.iter().map(|tally| tally.answered).sum();
        let capacity = answered as f64 / CLOSED_FOR.as_secs_f64();
        if answered == 0 {
            return Err(LoadError::Wrong(format!("nothing was answered: {calm:?}")));
        }
        self.calm_down().await?;
        self.tell(&format!("{:.0} requests a second, {} s", capacity * TIMES, self.plan.seconds));
        let (own, service) = (Processes::of(vec![std::process::id()]), &self.processes);
        let before = (own.cpu_us()?, service.cpu_us()?);
        stage.counts.store(true, Ordering::Release);
        let flooded = spawn_blocking(move || flooding.offer(capacity * TIMES, seconds)).await?;
        stage.is_over.store(true, Ordering::Release);
        let after = (own.cpu_us()?, service.cpu_us()?);
        let kept = kept.await??;
        let cores = |before: u64, after: u64| (after - before) as f64 / seconds.as_micros() as f64;
        let report = Overload {
            connections,
            server_cores: (!service.are_unknown()).then(|| cores(before.1, after.1)),
            client_cores: cores(before.0, after.0),
            ..told(capacity, seconds, &flooded, &kept)
        };
        Ok(report)
    }

    /// A connection for each client of the flood, and what it asks.
    async fn lines(&self, target: &Target, count: usize) -> Result<Vec<Line>, LoadError> {
        let mut lines = Vec::with_capacity(count);
        let mut wires: BTreeMap<String, Wire> = BTreeMap::new();
        for number in 0..count {
            let address = self.remote(target, number)?.addresses()[0].clone();
            let wire = match wires.entry(address.to_string()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(free) => free.insert(Wire::connect(&address).await.map_err(unasked)?),
            };
            let (what, group) = match number % 5 {
                0 => (Flood::Watch, "watch"),
                1 => (Flood::Campaign, "campaign"),
                _ => (Flood::Read, "read"),
            };
            let name = group_name(self.run_number, group, number % 64)?;
            let request = match what {
                Flood::Watch => wire.request_with(Operation::Watch, Some(&name), "?wait_ms=0"),
                Flood::Read => wire.request(Operation::Leader, Some(&name), None::<&()>),
                Flood::Campaign => {
                    let node = node(&format!("flood-{}", number % 64))?;
                    let session = fresh::session_id()?;
                    wire.request(Operation::Campaign, Some(&name), Some(&bid(node, session)))
                }
            };
            lines.push(Line::connect(what, wire.place(), &request).map_err(unasked)?);
        }
        Ok(lines)
    }

    fn keeper(&self, target: &Target, number: usize) -> Result<Keeper, LoadError> {
        let budget = Budget::new(KEEPER_TTL_MS, Drift::DEFAULT);
        let budget = budget.map_err(|error| LoadError::Wrong(error.to_string()))?;
        let remote = self.remote(target, number)?;
        let group = group_name(self.run_number, "kept", number)?;
        Ok(Keeper { remote, node: node(&format!("keeper-{number}"))?, group, budget })
    }
}

fn group_name(run: u64, what: &str, number: usize) -> Result<Group, LoadError> {
    group(&format!("bench/{run}/over/{what}/{number}"))
}

/// What was counted, without what only the measurement knows.
fn told(capacity: f64, seconds: Duration, flooded: &Tallies, kept: &Kept) -> Overload {
    let rate = |count: fn(&Tally) -> u64| {
        flooded.iter().map(count).sum::<u64>() as f64 / seconds.as_secs_f64()
    };
    let (offered, sent) = (rate(|tally| tally.offered), rate(|tally| tally.offered - tally.unsent));
    let asked = Flood::ALL.iter().zip(flooded).map(|(what, tally)| {
        let Tally { offered, unsent, answered, refused, unavailable, failed } = *tally;
        Asked { what: what.word(), offered, unsent, answered, refused, unavailable, failed }
    });
    let in_time = kept.in_time_us.len() as u64;
    let renewals = in_time + kept.lost;
    let at_ms = |share: f64| at_share(&kept.in_time_us, share) as f64 / 1000.0;
    Overload {
        sessions: KEEPERS,
        ttl_ms: KEEPER_TTL_MS,
        connections: 0,
        waiting_max: WAITING_MAX,
        capacity_per_second: capacity,
        offered_per_second: offered,
        sent_per_second: sent,
        offered_times: offered / capacity,
        sent_times: sent / capacity,
        asked: asked.collect(),
        renewals,
        renewals_in_time: in_time,
        leases_lost: kept.lost,
        in_time_percent: in_time as f64 * 100.0 / renewals.max(1) as f64,
        attempts_refused: kept.refused,
        attempts_unanswered: kept.unanswered,
        renewal_p50_ms: at_ms(0.5),
        renewal_p99_ms: at_ms(0.99),
        renewal_slowest_ms: at_ms(1.0),
        server_cores: None,
        client_cores: 0.0,
    }
}

/// Runs something on a thread that does nothing else.
fn on_its_own_thread<T: Send + 'static, F: Future<Output = Result<T, LoadError>>>(
    work: impl FnOnce() -> F + Send + 'static,
) -> tokio::task::JoinHandle<Result<T, LoadError>> {
    spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(unasked)?.block_on(work())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_and_what_is_sent_are_told_as_multiples_of_what_it_can_take() {
        let one =
            Tally { offered: 500, unsent: 300, answered: 50, refused: 150, ..Tally::default() };
        let flooded = [one, Tally::default(), Tally::default()];
        let kept = Kept { in_time_us: vec![1000; 999], lost: 1, ..Kept::default() };
        let told = told(10.0, Duration::from_secs(10), &flooded, &kept);
        assert_eq!((told.offered_times, told.sent_times), (5.0, 2.0));
        assert_eq!((told.renewals, told.leases_lost), (1000, 1));
        assert_eq!(told.in_time_percent, 99.9);
        assert_eq!(told.renewal_slowest_ms, 1.0);
    }
}
