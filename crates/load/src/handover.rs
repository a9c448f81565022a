//! Planned changes of leader: how long nobody leads, and whether ever two do.
//!
//! Two participants per group, each with a session of its own through the library, hand one office to
//! and fro, once by `transfer` and once by `resign`, while other clients keep the service busy. Many
//! such pairs run at once.
//!
//! The observer is a record per group that the workers themselves enter and leave, and that knows
//! nothing of leases: a worker enters once its first check has passed, and leaves while its last one
//! still does. So a moment in which two are entered is a moment in which two led, and the time between
//! a leaving and the next entering is at least the time in which nobody did.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regent::remote::Remote;
use regent::{Leadership, Regent, TransferError};
use regent_election::{Group, Moment, Node};
use serde::Serialize;
use tokio::task::{JoinHandle, JoinSet};

use crate::closed_loop::{Client, Work, group, node, unasked};
use crate::error::LoadError;
use crate::{Bench, ClientTarget, Target, at_share};

/// The ttl of those that hand over: a standby hears of an offer within a third of it.
const HAND_OVER_TTL: Duration = Duration::from_secs(3);
/// Pairs that hand over at once.
const PAIRS_MAX: usize = 16;
/// Clients that keep the service busy meanwhile, and the pause each makes between two requests.
const LOAD_CLIENTS: usize = 8;
const LOAD_PAUSE: Duration = Duration::from_millis(5);
/// Every so many requests of such a client is one that must be written.
const WRITE_EVERY: u64 = 8;
/// How often it is looked whether the other one stands.
const HANDOVER_POLL_EVERY: Duration = Duration::from_millis(20);

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct HandOver {
    pub ttl_ms: u64,
    pub pairs: usize,
    pub transfers: Leaderless,
    pub resigns: Leaderless,
    /// Moments in which two were entered in one group's record.
    pub overlaps: u64,
    /// Hand-overs that did not come about at the first try, or not as planned; none of them is counted
    /// above.
    pub failures: u64,
    /// Requests of others that the service answered in every second of it.
    pub load_per_second: f64,
}

/// How long nobody led.
#[derive(Clone, Debug, Serialize)]
pub struct Leaderless {
    pub count: usize,
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
}

/// How an office is given to the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Transfer,
    Resign,
}

/// Who works in one group, by the word of the workers.
#[derive(Debug, Default)]
struct Record {
    working: u32,
    overlaps: u64,
    failures: u64,
    /// How and when the last one left.
    left: Option<(Kind, Moment)>,
    empty_us: Vec<(Kind, u64)>,
}

type Shared = Arc<Mutex<Record>>;

fn with<T>(record: &Shared, act: impl FnOnce(&mut Record) -> T) -> T {
    act(&mut record.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A worker begins: it has been elected and its check has passed.
fn enter(record: &Shared, leadership: &Leadership) {
    if leadership.check().is_err() {
        // Elected and lost before it could act: nothing to enter, and nothing measured.
        return with(record, |record| {
            record.failures += 1;
            record.left = None;
        });
    }
    with(record, |record| {
        record.overlaps += u64::from(record.working > 0);
        record.working += 1;
        if let Some((kind, left_at)) = record.left.take() {
            let empty = regent_clock::now().since(left_at);
            record.empty_us.push((kind, empty.as_micros() as u64));
        }
    });
}

/// A worker ends, while it still leads.
fn leave(record: &Shared, kind: Kind, leadership: &Leadership) {
    let is_leading = leadership.check().is_ok();
    with(record, |record| {
        record.working = record.working.saturating_sub(1);
        record.left = is_leading.then(|| (kind, regent_clock::now()));
        record.failures += u64::from(!is_leading);
    });
}

/// Two participants that stand in one group.
struct Pair {
    group: Group,
    players: [(Node, Regent); 2],
    remote: Remote,
    record: Shared,
}

impl Pair {
    /// Stands as one of the two. The task ends when that one leads and has entered.
    fn stand(&self, who: usize) -> JoinHandle<Result<Leadership, LoadError>> {
        let campaign = self.players[who].1.campaign(&self.group).into_future();
        let record = Arc::clone(&self.record);
        tokio::spawn(async move {
            let leadership = campaign
                .await
                .map_err(|error| LoadError::Unavailable(format!("a campaign failed: {error}")))?;
            enter(&record, &leadership);
            Ok(leadership)
        })
    }

    /// Waits until somebody stands behind the leader: without one, a resignation leaves the office
    /// empty, which is no hand-over.
    async fn has_standby(&self) -> Result<(), LoadError> {
        while self.remote.show_group(&self.group).await?.standbys_count == 0 {
            tokio::time::sleep(HANDOVER_POLL_EVERY).await;
        }
        Ok(())
    }

    /// Hands the office to and fro.
    async fn run(self, kinds: Vec<Kind>) -> Result<Shared, LoadError> {
        let mut leader = 0;
        let mut leadership = self.stand(leader).await??;
        for kind in kinds {
            let other = 1 - leader;
            let next = self.stand(other);
            self.has_standby().await?;
            match kind {
                Kind::Transfer => self.transfer(leadership, other).await,
                Kind::Resign => {
                    leave(&self.record, kind, &leadership);
                    if leadership.resign().await.is_err() {
                        with(&self.record, |record| record.failures += 1);
                    }
                }
            }
            leadership = next.await??;
            leader = other;
        }
        leave(&self.record, Kind::Resign, &leadership);
        Ok(self.record)
    }

    /// Hands the office over while a worker works under it: told to stop, the worker leaves.
    async fn transfer(&self, leadership: Leadership, other: usize) {
        let (record, worker) = (Arc::clone(&self.record), leadership.clone());
        let working = tokio::spawn(async move {
            worker.lost().await;
            leave(&record, Kind::Transfer, &worker);
        });
        let mut leadership = leadership;
        loop {
            match leadership.transfer(self.players[other].0.clone()).await {
                Ok(()) => break,
                Err(
                    TransferError::Refused { leadership: back, .. }
                    | TransferError::NotWarm { leadership: back, .. },
                ) => {
                    with(&self.record, |record| record.failures += 1);
                    leadership = *back;
                }
                Err(
                    TransferError::Resigned { .. }
                    | TransferError::Lost(_)
                    | TransferError::Untold(_),
                ) => {
                    with(&self.record, |record| {
                        record.failures += 1;
                        record.left = None;
                    });
                    break;
                }
            }
        }
        let _ = working.await;
    }
}

impl Bench<'_> {
    pub(crate) async fn handover(&self) -> Result<HandOver, LoadError> {
        let (transfers, resigns) = (self.plan.transfers, self.plan.resigns);
        let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut load = JoinSet::new();
        for client in self.enter(ClientTarget::Spread, LOAD_CLIENTS).await? {
            load.spawn(keep_busy(client, Arc::clone(&is_over), Arc::clone(&answered)));
        }
        self.tell(&format!("{transfers} transfers and {resigns} resignations"));
        let pairs = PAIRS_MAX.min(transfers.max(resigns));
        let began_at = regent_clock::now();
        let mut running = JoinSet::new();
        for number in 0..pairs {
            let share = |count: usize| count / pairs + usize::from(number < count % pairs);
            running.spawn(self.pair(number).await?.run(kinds(share(transfers), share(resigns))));
        }
        let (mut overlaps, mut failures, mut empty_us) = (0, 0, Vec::new());
        while let Some(done) = running.join_next().await {
            let record = done??;
            with(&record, |record| {
                overlaps += record.overlaps;
                failures += record.failures;
                empty_us.append(&mut record.empty_us);
            });
        }
        let elapsed = regent_clock::now().since(began_at);
        is_over.store(true, Ordering::Relaxed);
        while let Some(done) = load.join_next().await {
            done??;
        }
        if overlaps > 0 {
            // Two at once would break the first promise there is.
            return Err(LoadError::Wrong(format!("two led one group at once, {overlaps} times")));
        }
        Ok(HandOver {
            ttl_ms: HAND_OVER_TTL.as_millis() as u64,
            pairs,
            transfers: Leaderless::of(&empty_us, Kind::Transfer),
            resigns: Leaderless::of(&empty_us, Kind::Resign),
            overlaps,
            failures,
            load_per_second: answered.load(Ordering::Relaxed) as f64 / elapsed.as_secs_f64(),
        })
    }

    async fn pair(&self, number: usize) -> Result<Pair, LoadError> {
        let group = group(&format!("bench/{}/handover/{number}", self.run_number))?;
        let player = async |side: usize| {
            let name = node(&format!("bench-{number}-{side}"))?;
            let mut urls = self.urls.clone();
            urls.rotate_left((number + side) % self.urls.len());
            let connect = Regent::at(urls.join(",")).node(name.as_str()).ttl(HAND_OVER_TTL);
            let regent = connect
                .connect()
                .await
                .map_err(|error| LoadError::Unavailable(error.to_string()))?;
            Ok::<_, LoadError>((name, regent))
        };
        Ok(Pair {
            group,
            players: [player(0).await?, player(1).await?],
            remote: self.remote(&Target::All, number)?,
            record: Shared::default(),
        })
    }
}

/// Both kinds in turn, and then whatever is left of one.
fn kinds(transfers: usize, resigns: usize) -> Vec<Kind> {
    let (mut kinds, both) = (Vec::with_capacity(transfers + resigns), transfers.min(resigns));
    for _ in 0..both {
        kinds.extend([Kind::Transfer, Kind::Resign]);
    }
    kinds.extend(std::iter::repeat_n(Kind::Transfer, transfers - both));
    kinds.extend(std::iter::repeat_n(Kind::Resign, resigns - both));
    kinds
}

/// Asks again and again until it is over: mostly renewals and reads, now and then a write.
async fn keep_busy(
    mut client: Client,
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
) -> Result<(), LoadError> {
    let mut asked = 0_u64;
    while !is_over.load(Ordering::Relaxed) {
        asked += 1;
        let work = match asked % WRITE_EVERY {
            0 => Work::Campaign,
            1 | 4 => Work::Read,
            2 | 5 => Work::Heartbeat,
            _ => Work::Renew,
        };
        let is_answered = client.once(work).await.map_err(unasked)?;
        answered.fetch_add(u64::from(is_answered), Ordering::Relaxed);
        tokio::time::sleep(LOAD_PAUSE).await;
    }
    Ok(())
}

impl Leaderless {
    fn of(empty_us: &[(Kind, u64)], kind: Kind) -> Self {
        let mut times: Vec<u64> =
            empty_us.iter().filter(|(of, _)| *of == kind).map(|(_, us)| *us).collect();
        times.sort_unstable();
        Self {
            count: times.len(),
            p50_us: at_share(&times, 0.50),
            p99_us: at_share(&times, 0.99),
            max_us: at_share(&times, 1.0),
        }
    }
}
