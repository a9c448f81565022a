//! Sessions that lead and renew while others flood the service, and whether they keep their leases.
//!
//! They renew as the library does: on a connection that is kept, every third of a ttl, with its time-outs and pauses
//! ([`Budget`]). In one point they are worse off: an attempt that times out is given up with its connection, where the
//! library still takes an answer that comes later.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use regent::remote::{Address, Remote};
use regent_api::Operation;
use regent_election::{Budget, Group, Moment, Node};
use tokio::task::JoinSet;

use crate::closed_loop::{bid, heartbeat, open, unasked};
use crate::error::LoadError;
use crate::wire::Wire;

/// How far the measurement is.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    /// Sessions that lead.
    pub(crate) ready: AtomicUsize,
    /// Whether renewals count from now on.
    pub(crate) counts: AtomicBool,
    pub(crate) is_over: AtomicBool,
}

/// What became of renewals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// Acknowledged while the lease still ran, and how long each took from when it was due.
    pub(crate) in_time_us: Vec<u64>,
    /// The others: each is a lease that ended.
    pub(crate) lost: u64,
    /// Attempts that were refused, and those that got no answer in time; each was followed by another.
    pub(crate) refused: u64,
    pub(crate) unanswered: u64,
}

/// A session that leads and renews.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    pub(crate) remote: Remote,
    pub(crate) node: Node,
    pub(crate) group: Group,
    pub(crate) budget: Budget,
}

/// What one attempt came to.
enum Attempt {
    Acknowledged,
    Refused,
    Unanswered,
    /// The service does not know the session any more.
    Gone,
}

impl Keeper {
    /// Leads, and renews from that moment on until it is over. All of them are spread over the time between renewals.
    async fn keep(self, share: f64, stage: Arc<Stage>) -> Result<Kept, LoadError> {
        let budget = self.budget;
        let session = open(&self.remote, &self.node, budget.ttl_ms()).await?;
        let won = self.remote.campaign(&self.group, &bid(self.node, session)).await?;
        if !won.elected {
            return Err(LoadError::Wrong(format!("{} is led already", self.group)));
        }
        let address = self.remote.addresses()[0].clone();
        let wire = Wire::connect(&address).await.map_err(unasked)?;
        let request = wire.request(Operation::Heartbeat, None, Some(&heartbeat(session)));
        let mut link = Link { address, request, wire: Some(wire) };
        let mut kept = Kept::default();
        stage.ready.fetch_add(1, Ordering::AcqRel);
        let mut acknowledged_at = regent_clock::now();
        let mut due_at = acknowledged_at + budget.renew_every().mul_f64(share);
        let mut is_gone = false;
        while !stage.is_over.load(Ordering::Acquire) {
            tokio::time::sleep(regent_clock::now().until(due_at)).await;
            let counts = stage.counts.load(Ordering::Acquire);
            let lease_until = acknowledged_at + budget.act_for();
            let mut sent_at = regent_clock::now();
            while !is_gone {
                sent_at = regent_clock::now();
                match link.attempt(&budget).await {
                    Attempt::Acknowledged => {
                        acknowledged_at = sent_at;
                        break;
                    }
                    Attempt::Gone => is_gone = true,
                    Attempt::Refused => {
                        kept.refused += u64::from(counts);
                        tokio::time::sleep(budget.retry_pause()).await;
                    }
                    Attempt::Unanswered => kept.unanswered += u64::from(counts),
                }
                if stage.is_over.load(Ordering::Acquire) {
                    break;
                }
            }
            let now = regent_clock::now();
            if counts && !is_gone && now < lease_until {
                kept.in_time_us.push(took_us(due_at, now));
            } else if counts {
                kept.lost += 1;
            }
            due_at = if is_gone {
                due_at + budget.renew_every()
            } else {
                sent_at + budget.renew_every()
            };
        }
        Ok(kept)
    }
}

fn took_us(due_at: Moment, now: Moment) -> u64 {
    u64::try_from(now.since(due_at).as_micros()).unwrap_or(u64::MAX)
}

/// The connection of a session.
struct Link {
    address: Address,
    request: Vec<u8>,
    wire: Option<Wire>,
}

impl Link {
    async fn attempt(&mut self, budget: &Budget) -> Attempt {
        let asked = tokio::time::timeout(budget.request_timeout(), self.ask()).await;
        match asked {
            Ok(Ok((wire, status))) => {
                self.wire = Some(wire);
                match status {
                    200 => Attempt::Acknowledged,
                    410 => Attempt::Gone,
                    _ => Attempt::Refused,
                }
            }
            Ok(Err(_)) => {
                tokio::time::sleep(budget.retry_pause()).await;
                Attempt::Unanswered
            }
            Err(_) => Attempt::Unanswered,
        }
    }

    /// Asks once, on a connection that is made if there is none.
    async fn ask(&mut self) -> io::Result<(Wire, u16)> {
        let mut wire = match self.wire.take() {
            Some(wire) => wire,
            None => Wire::connect(&self.address).await?,
        };
        let status = wire.status(&self.request).await?;
        Ok((wire, status))
    }
}

/// All sessions at once, until it is over.
pub(crate) async fn keep_all(keepers: Vec<Keeper>, stage: Arc<Stage>) -> Result<Kept, LoadError> {
    let count = keepers.len() as f64;
    let mut keeping = JoinSet::new();
    for (number, keeper) in keepers.into_iter().enumerate() {
        keeping.spawn(keeper.keep(number as f64 / count, Arc::clone(&stage)));
    }
    let mut all = Kept::default();
    while let Some(kept) = keeping.join_next().await {
        let kept = kept??;
        all.in_time_us.extend(kept.in_time_us);
        all.lost += kept.lost;
        all.refused += kept.refused;
        all.unanswered += kept.unanswered;
    }
    all.in_time_us.sort_unstable();
    Ok(all)
}
