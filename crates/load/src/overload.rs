//! More than a service can take: who is served then.
//!
//! Sessions that lead renew on time, each on a connection of its own, as programs do that were there before the flood.
//! Beside them clients ask without a pause: first as many as the service answers, which says what it can take, then
//! five times as many. A client that is refused asks again at once, as no honest one does. What they ask is more than the
//! service can take only as far as it refuses: a client that waits for its answer asks nothing meanwhile.
//!
//! The flood and the sessions that renew have threads of their own, so that renewals are not late because this process
//! could not send them. They still share the machine with the service.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use regent::fresh;
use regent::remote::{Address, Remote};
use regent_api::Operation;
use regent_election::{Group, Moment, Node};
use serde::Serialize;
use tokio::task::{JoinSet, spawn_blocking};

use crate::closed_loop::{bid, group, heartbeat, node, open, unasked};
use crate::error::LoadError;
use crate::wire::Wire;
use crate::{Bench, ClientTarget, Target};

/// Sessions that lead, and their ttl: that of a program that wants a quick successor.
const KEEPERS: usize = 256;
const KEEPER_TTL_MS: u64 = 3000;
/// How often they renew. A renewal is in time if it is answered before the next one is due.
const RENEW_EVERY: Duration = Duration::from_millis(KEEPER_TTL_MS / 3);
/// How many times as many clients as keep the service busy.
const TIMES: usize = 5;
/// How often it is looked whether all sessions lead.
const READY_POLL_EVERY: Duration = Duration::from_millis(20);
/// How long a client waits after its connection broke.
const CONNECT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What became of renewals under more load than the service can take.
#[derive(Clone, Debug, Serialize)]
pub struct Overload {
    /// Sessions that lead and renew.
    pub sessions: usize,
    pub ttl_ms: u64,
    /// Clients beside them that ask as fast as they are answered.
    pub clients: usize,
    /// What the service answers when a fifth of them asks.
    pub capacity_per_second: f64,
    /// What was asked of it, refused or not.
    pub offered_per_second: f64,
    /// By what was asked.
    pub asked: Vec<Asked>,
    pub renewals: u64,
    /// Answered before the next one was due.
    pub renewals_in_time: u64,
    /// Answered later.
    pub renewals_late: u64,
    pub renewals_refused: u64,
    /// No answer: the connection broke.
    pub renewals_unanswered: u64,
    /// The part of all renewals that was answered in time, in per cent.
    pub in_time_percent: f64,
    pub slowest_renewal_ms: f64,
}

/// What became of one kind of request.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    pub what: &'static str,
    pub answered: u64,
    /// 429.
    pub refused: u64,
    /// Another answer, or none.
    pub failed: u64,
}

/// What the clients of the flood ask: those who watch, who read and who campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flood {
    Watch,
    Read,
    Campaign,
}

impl Flood {
    const ALL: [Self; 3] = [Self::Watch, Self::Read, Self::Campaign];

    const fn word(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Read => "read",
            Self::Campaign => "campaign",
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    answered: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

impl Tally {
    fn note(&self, status: io::Result<u16>) {
        let count = match status {
            Ok(200) => &self.answered,
            Ok(429) => &self.refused,
            Ok(_) | Err(_) => &self.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn all(&self) -> u64 {
        [&self.answered, &self.refused, &self.failed]
            .map(|it| it.load(Ordering::Relaxed))
            .iter()
            .sum()
    }
}

type Tallies = Arc<[Tally; 3]>;

/// What became of the renewals of one session.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    in_time: u64,
    late: u64,
    refused: u64,
    unanswered: u64,
    slowest: Duration,
}

impl Bench<'_> {
    /// Lets five times as many clients ask as keep the service busy, beside sessions that renew.
    pub(crate) async fn overload(&self) -> Result<Overload, LoadError> {
        let target = self.target(ClientTarget::Spread).await?;
        let base = self.plan.clients.iter().copied().max().unwrap_or(1);
        let clients = self.flooders(&target, base * TIMES).await?;
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
        self.tell(&format!("{base} clients ask, {} s", self.plan.seconds));
        let calm = flood(clients[..base].to_vec(), seconds).await?;
        let count = clients.len();
        self.tell(&format!("{count} clients ask, {} s", self.plan.seconds));
        stage.counts.store(true, Ordering::Release);
        let flooded = flood(clients, seconds).await?;
        stage.is_over.store(true, Ordering::Release);
        let kept = kept.await??;

        let rate = |count: u64| count as f64 / seconds.as_secs_f64();
        let answered = calm.iter().map(|tally| tally.answered.load(Ordering::Relaxed)).sum();
        let asked = Flood::ALL.iter().zip(flooded.iter()).map(|(what, tally)| Asked {
            what: what.word(),
            answered: tally.answered.load(Ordering::Relaxed),
            refused: tally.refused.load(Ordering::Relaxed),
            failed: tally.failed.load(Ordering::Relaxed),
        });
        let renewals = kept.in_time + kept.late + kept.refused + kept.unanswered;
        Ok(Overload {
            sessions: KEEPERS,
            ttl_ms: KEEPER_TTL_MS,
            clients: count,
            capacity_per_second: rate(answered),
            offered_per_second: rate(flooded.iter().map(Tally::all).sum()),
            asked: asked.collect(),
            renewals,
            renewals_in_time: kept.in_time,
            renewals_late: kept.late,
            renewals_refused: kept.refused,
            renewals_unanswered: kept.unanswered,
            in_time_percent: kept.in_time as f64 * 100.0 / renewals.max(1) as f64,
            slowest_renewal_ms: kept.slowest.as_secs_f64() * 1000.0,
        })
    }

    /// Where each client of a flood asks, and what.
    async fn flooders(&self, target: &Target, count: usize) -> Result<Vec<Flooder>, LoadError> {
        let mut flooders = Vec::with_capacity(count);
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
            flooders.push(Flooder { address, what, request });
        }
        Ok(flooders)
    }

    fn keeper(&self, target: &Target, number: usize) -> Result<Keeper, LoadError> {
        let remote = self.remote(target, number)?;
        let group = group_name(self.run_number, "kept", number)?;
        Ok(Keeper { remote, node: node(&format!("keeper-{number}"))?, group })
    }
}

fn group_name(run: u64, what: &str, number: usize) -> Result<Group, LoadError> {
    group(&format!("bench/{run}/over/{what}/{number}"))
}

/// A client that asks the same again and again.
#[derive(Clone, Debug)]
struct Flooder {
    address: Address,
    what: Flood,
    request: Vec<u8>,
}

impl Flooder {
    async fn ask_until(self, end: Moment, tallies: Tallies) {
        let tally = &tallies[self.what as usize];
        let mut wire = None;
        while regent_clock::now() < end {
            let status = ask(&mut wire, &self.address, &self.request).await;
            let is_broken = status.is_err();
            tally.note(status);
            if is_broken {
                tokio::time::sleep(CONNECT_AGAIN_AFTER).await;
            }
        }
    }
}

/// Asks once, on a connection that is made if there is none.
async fn ask(wire: &mut Option<Wire>, address: &Address, request: &[u8]) -> io::Result<u16> {
    let connected = match wire.take() {
        Some(connected) => connected,
        None => Wire::connect(address).await?,
    };
    let connected = wire.insert(connected);
    let status = connected.status(request).await;
    if status.is_err() {
        *wire = None;
    }
    status
}

/// All clients at once, for so long, on threads of their own.
async fn flood(clients: Vec<Flooder>, seconds: Duration) -> Result<Tallies, LoadError> {
    let tallies = Tallies::default();
    let counted = Arc::clone(&tallies);
    on_its_own_thread(move || async move {
        let end = regent_clock::now() + seconds;
        let mut asking = JoinSet::new();
        for client in clients {
            asking.spawn(client.ask_until(end, Arc::clone(&counted)));
        }
        while asking.join_next().await.is_some() {}
        Ok(())
    })
    .await??;
    Ok(tallies)
}

/// How far the measurement is.
#[derive(Debug, Default)]
struct Stage {
    /// Sessions that lead.
    ready: AtomicUsize,
    /// Whether renewals count from now on.
    counts: AtomicBool,
    is_over: AtomicBool,
}

/// A session that leads and renews.
#[derive(Clone, Debug)]
struct Keeper {
    remote: Remote,
    node: Node,
    group: Group,
}

impl Keeper {
    /// Leads, and renews from that moment on until it is over.
    async fn keep(self, number: usize, stage: Arc<Stage>) -> Result<Kept, LoadError> {
        let session = open(&self.remote, &self.node, KEEPER_TTL_MS).await?;
        let won = self.remote.campaign(&self.group, &bid(self.node, session)).await?;
        if !won.elected {
            return Err(LoadError::Wrong(format!("{} is led already", self.group)));
        }
        let address = self.remote.addresses()[0].clone();
        let connected = Wire::connect(&address).await.map_err(unasked)?;
        let request = connected.request(Operation::Heartbeat, None, Some(&heartbeat(session)));
        let (mut kept, mut wire) = (Kept::default(), Some(connected));
        stage.ready.fetch_add(1, Ordering::AcqRel);
        // All of them are spread over the time between two renewals.
        let spread = RENEW_EVERY * u32::try_from(number).unwrap_or(0) / KEEPERS as u32;
        let mut due_at = regent_clock::now() + spread;
        while !stage.is_over.load(Ordering::Acquire) {
            tokio::time::sleep(regent_clock::now().until(due_at)).await;
            let counts = stage.counts.load(Ordering::Acquire);
            let sent_at = regent_clock::now();
            let status = ask(&mut wire, &address, &request).await;
            let took = regent_clock::now().since(sent_at);
            due_at = (due_at + RENEW_EVERY).max(regent_clock::now());
            if !counts {
                continue;
            }
            kept.slowest = kept.slowest.max(took);
            match status {
                Ok(200) if took <= RENEW_EVERY => kept.in_time += 1,
                Ok(200) => kept.late += 1,
                Ok(_) => kept.refused += 1,
                Err(_) => kept.unanswered += 1,
            }
        }
        Ok(kept)
    }
}

async fn keep_all(keepers: Vec<Keeper>, stage: Arc<Stage>) -> Result<Kept, LoadError> {
    let mut keeping = JoinSet::new();
    for (number, keeper) in keepers.into_iter().enumerate() {
        keeping.spawn(keeper.keep(number, Arc::clone(&stage)));
    }
    let mut all = Kept::default();
    while let Some(kept) = keeping.join_next().await {
        let kept = kept??;
        all.in_time += kept.in_time;
        all.late += kept.late;
        all.refused += kept.refused;
        all.unanswered += kept.unanswered;
        all.slowest = all.slowest.max(kept.slowest);
    }
    Ok(all)
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
