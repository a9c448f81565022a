//! Crashes: how long after a silent leader's ttl somebody else leads.
//!
//! The time counts from when the leader's last heartbeat left, since that is when it stopped being
//! heard as far as it knows itself; so the way there is part of the figure. It ends when the standby
//! has the answer that says it leads.

use std::time::Duration;

use regent::remote::Remote;
use regent_api::CampaignRequest;
use serde::Serialize;

use crate::closed_loop::{TTL_MS, bid, group, heartbeat, node, open};
use crate::error::LoadError;
use crate::{Bench, ClientTarget, at_share};

/// The ttl of those that crash.
const CRASH_TTL_MS: u64 = 1000;
/// Between the starts of two trials, so that they do not all fall due together.
const EVERY: Duration = Duration::from_millis(17);

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Failover {
    pub trials: usize,
    pub ttl_ms: u64,
    /// By how much the standby led later than one ttl after the last heartbeat left.
    pub beyond_ttl_p50_us: u64,
    pub beyond_ttl_p99_us: u64,
    pub beyond_ttl_max_us: u64,
}

impl Bench<'_> {
    pub(crate) async fn failover(&self) -> Result<Failover, LoadError> {
        let trials = self.plan.trials;
        self.tell(&format!("{trials} leaders crash"));
        let target = self.target(ClientTarget::Spread).await?;
        let mut running = tokio::task::JoinSet::new();
        for number in 0..trials {
            let (one, other) = (self.remote(&target, number)?, self.remote(&target, number + 1)?);
            let name = format!("bench/{}/failover/{number}", self.run_number);
            running.spawn(async move {
                tokio::time::sleep(EVERY * u32::try_from(number).unwrap_or(u32::MAX)).await;
                trial(one, other, &name).await
            });
        }
        let mut beyond_us = Vec::with_capacity(trials);
        while let Some(done) = running.join_next().await {
            beyond_us.push(done??);
        }
        beyond_us.sort_unstable();
        Ok(Failover {
            trials,
            ttl_ms: CRASH_TTL_MS,
            beyond_ttl_p50_us: at_share(&beyond_us, 0.50),
            beyond_ttl_p99_us: at_share(&beyond_us, 0.99),
            beyond_ttl_max_us: at_share(&beyond_us, 1.0),
        })
    }
}

/// One crash: by how much later than its ttl it was succeeded, in microseconds.
async fn trial(leader: Remote, standby: Remote, name: &str) -> Result<u64, LoadError> {
    let group = group(name)?;
    let (old, new) = (node("bench-old")?, node("bench-new")?);
    let holder = open(&leader, &old, CRASH_TTL_MS).await?;
    let waiter = open(&standby, &new, TTL_MS).await?;
    leader.campaign(&group, &bid(old, holder)).await?;
    let request = CampaignRequest { wait_ms: Some(10 * CRASH_TTL_MS), ..bid(new, waiter) };
    let waiting = {
        let group = group.clone();
        tokio::spawn(async move {
            let won = standby.campaign(&group, &request).await;
            (won, regent_clock::now())
        })
    };
    // The standby stands in line by the time of the last heartbeat, or is counted as late.
    tokio::time::sleep(Duration::from_millis(CRASH_TTL_MS / 4)).await;
    let last_at = regent_clock::now();
    leader.heartbeat(&heartbeat(holder)).await?;
    let (won, led_at) = waiting.await?;
    if !won?.elected {
        return Err(LoadError::Wrong(format!("{group} was not succeeded within ten ttls")));
    }
    let due_at = last_at + Duration::from_millis(CRASH_TTL_MS);
    // Sooner than the ttl would break the first promise there is.
    if led_at < due_at {
        return Err(LoadError::Wrong(format!("{group} was succeeded before its ttl was over")));
    }
    Ok(led_at.since(due_at).as_micros() as u64)
}
