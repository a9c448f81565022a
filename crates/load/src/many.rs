//! Very many groups: what they cost in memory, in a heartbeat, and when their leader crashes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use regent::remote::Remote;
use regent_api::{Consistency, GroupsQuery};
use regent_election::limits::GROUPS_PAGE_MAX;
use regent_election::{Node, SessionId};
use serde::Serialize;

use crate::closed_loop::{Client, TTL_MS, Work, bid, group, heartbeat, node, open};
use crate::error::LoadError;
use crate::{Bench, ClientTarget, Target};

/// Campaigns under way while groups are made.
const MAKERS: usize = 256;
/// Sessions that lead the groups of which the memory is measured.
const LEADERS: usize = 64;
/// The ttl of the leader of very many groups.
const CRASH_TTL_MS: u64 = 5000;
/// Groups of the wide session.
const WIDE: usize = 1000;
/// Clients that compare a narrow session with a wide one.
const WIDTH_CLIENTS: usize = 64;
/// How often it is looked whether a crash was succeeded.
const SUCCESSION_POLL_EVERY: Duration = Duration::from_millis(10);
/// How long the service has to settle after groups were made, so that its memory is that of idleness.
const SETTLE_FOR: Duration = Duration::from_secs(10);

/// What an idle group costs.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    pub groups: usize,
    pub seconds_to_make: f64,
    /// Of all processes together, before and after.
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Of one process.
    pub bytes_per_group_and_node: f64,
}

/// A heartbeat for one group against one for a thousand.
#[derive(Clone, Debug, Serialize)]
pub struct Width {
    pub groups: usize,
    pub narrow_cpu_us: Option<f64>,
    pub wide_cpu_us: Option<f64>,
    pub narrow_p50_us: u64,
    pub wide_p50_us: u64,
}

/// A crash of a leader of very many groups.
#[derive(Clone, Debug, Serialize)]
pub struct Succession {
    pub groups: usize,
    pub ttl_ms: u64,
    /// By how much later than one ttl after its last heartbeat left all groups had another leader.
    pub beyond_ttl_ms: u64,
    /// CPU of all processes of the service between the crash and its end.
    pub server_cpu_ms: Option<f64>,
    /// The slowest heartbeat of another session in that time.
    pub slowest_heartbeat_ms: f64,
}

impl Bench<'_> {
    /// What that many groups cost in memory.
    pub(crate) async fn memory(&self, groups: usize) -> Result<Memory, LoadError> {
        let target = self.target(ClientTarget::Spread).await?;
        let name = format!("bench/{}/m", self.run_number);
        let mut leaders = Vec::new();
        for number in 0..LEADERS {
            let remote = self.remote(&target, number)?;
            let node = node(&format!("bench-{number}"))?;
            let session = open(&remote, &node, TTL_MS).await?;
            leaders.push((node, session));
        }
        let bytes_before = self.processes.memory_bytes()?;
        self.tell(&format!("{groups} groups are made"));
        let start = regent_clock::now();
        self.stand(&target, &name, groups, &leaders).await?;
        let seconds_to_make = regent_clock::now().since(start).as_secs_f64();
        tokio::time::sleep(SETTLE_FOR).await;
        let bytes_after = self.processes.memory_bytes()?;
        let grown = bytes_after.saturating_sub(bytes_before) as f64;
        let each = grown / groups as f64 / self.processes.count().max(1) as f64;
        Ok(Memory {
            groups,
            seconds_to_make,
            bytes_before,
            bytes_after,
            bytes_per_group_and_node: each,
        })
    }

    /// Campaigns in `count` groups, the sessions taking turns.
    async fn stand(
        &self,
        target: &Target,
        name: &str,
        count: usize,
        sessions: &[(Node, SessionId)],
    ) -> Result<(), LoadError> {
        let next = Arc::new(AtomicUsize::new(0));
        let mut making = tokio::task::JoinSet::new();
        for number in 0..MAKERS {
            let remote = self.remote(target, number)?;
            let (next, name) = (Arc::clone(&next), name.to_owned());
            let sessions = sessions.to_vec();
            making.spawn(async move {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        return Ok::<(), LoadError>(());
                    }
                    let (node, session) = sessions[at % sessions.len()].clone();
                    let group = group(&format!("{name}/{at}"))?;
                    remote.campaign(&group, &bid(node, session)).await?;
                }
            });
        }
        while let Some(done) = making.join_next().await {
            done??;
        }
        Ok(())
    }

    /// Compares heartbeats of sessions with one group and with a thousand.
    pub(crate) async fn width(&self) -> Result<Width, LoadError> {
        let clients = self.enter(ClientTarget::Spread, WIDTH_CLIENTS).await?;
        self.tell("heartbeats of sessions with one group");
        let (narrow, clients) = self.work(Work::Heartbeat, ClientTarget::Spread, clients).await?;
        self.tell(&format!("{WIDTH_CLIENTS} sessions win {WIDE} groups each"));
        let sessions: Vec<_> = clients.iter().map(Client::who).collect();
        let name = format!("bench/{}/w", self.run_number);
        let more = (WIDE - 1) * WIDTH_CLIENTS;
        self.stand(&self.target(ClientTarget::Spread).await?, &name, more, &sessions).await?;
        self.tell(&format!("heartbeats of sessions with {WIDE} groups"));
        let (wide, _) = self.work(Work::Heartbeat, ClientTarget::Spread, clients).await?;
        Ok(Width {
            groups: WIDE,
            narrow_cpu_us: narrow.server_cpu_us,
            wide_cpu_us: wide.server_cpu_us,
            narrow_p50_us: narrow.p50_us,
            wide_p50_us: wide.p50_us,
        })
    }

    /// Lets the leader of very many groups crash.
    pub(crate) async fn succession(&self) -> Result<Succession, LoadError> {
        let groups = self.plan.groups.first().copied().unwrap_or(1);
        let target = self.target(ClientTarget::Spread).await?;
        let (old, new) = (node("bench-old")?, node("bench-new")?);
        let (leader, standby) = (self.remote(&target, 0)?, self.remote(&target, 1)?);
        let holder = open(&leader, &old, CRASH_TTL_MS).await?;
        let waiter = open(&standby, &new, TTL_MS).await?;
        let name = format!("bench/{}/s", self.run_number);
        let kept = tokio::spawn(keep_alive(leader.clone(), holder));
        self.tell(&format!("one session wins {groups} groups"));
        self.stand(&target, &name, groups, &[(old.clone(), holder)]).await?;
        self.tell("another stands by in all of them");
        self.stand(&target, &name, groups, &[(new.clone(), waiter)]).await?;
        kept.abort();
        let _ = kept.await;

        self.tell("the first one crashes");
        let cpu_before = self.processes.cpu_us()?;
        let last_at = regent_clock::now();
        leader.heartbeat(&heartbeat(holder)).await?;
        let due_at = last_at + Duration::from_millis(CRASH_TTL_MS);
        let last = group(&format!("{name}/{}", groups - 1))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let watched = tokio::spawn(slowest(standby.clone(), waiter, Arc::clone(&is_over)));
        let led_at = loop {
            tokio::time::sleep(SUCCESSION_POLL_EVERY).await;
            // One entry changes all groups, and a read sees all of it or nothing.
            let office = leader.leader(&last, Consistency::Linearizable).await?.office;
            if office.leader.as_ref() == Some(&new) {
                break regent_clock::now();
            }
        };
        is_over.store(true, Ordering::Relaxed);
        let slowest = watched.await??;
        let cpu_us = self.processes.cpu_us()? - cpu_before;
        self.check_all(&leader, &name, &new, groups).await?;
        Ok(Succession {
            groups,
            ttl_ms: CRASH_TTL_MS,
            beyond_ttl_ms: led_at.since(due_at).as_millis() as u64,
            server_cpu_ms: (!self.processes.are_unknown()).then(|| cpu_us as f64 / 1000.0),
            slowest_heartbeat_ms: slowest.as_secs_f64() * 1000.0,
        })
    }

    /// Every group must have that leader.
    async fn check_all(
        &self,
        remote: &Remote,
        name: &str,
        leader: &Node,
        groups: usize,
    ) -> Result<(), LoadError> {
        let mut query = GroupsQuery {
            prefix: format!("{name}/"),
            after: None,
            count: u32::try_from(GROUPS_PAGE_MAX).ok(),
        };
        let mut led = 0;
        loop {
            let page = remote.list_groups(&query).await?;
            led +=
                page.groups.iter().filter(|office| office.leader.as_ref() == Some(leader)).count();
            match page.next {
                Some(next) => query.after = Some(next),
                None if led == groups => return Ok(()),
                None => {
                    let why = format!("{led} of {groups} groups were succeeded");
                    return Err(LoadError::Wrong(why));
                }
            }
        }
    }
}

impl Client {
    fn who(&self) -> (Node, SessionId) {
        (self.node.clone(), self.session)
    }
}

/// Renews a session until aborted.
async fn keep_alive(remote: Remote, session: SessionId) {
    loop {
        let _ = remote.heartbeat(&heartbeat(session)).await;
        tokio::time::sleep(Duration::from_millis(CRASH_TTL_MS / 5)).await;
    }
}

/// Renews a session until it is over; how long the slowest answer took.
async fn slowest(
    remote: Remote,
    session: SessionId,
    is_over: Arc<AtomicBool>,
) -> Result<Duration, LoadError> {
    let mut slowest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let sent_at = regent_clock::now();
        remote.heartbeat(&heartbeat(session)).await?;
        slowest = slowest.max(regent_clock::now().since(sent_at));
        tokio::time::sleep(SUCCESSION_POLL_EVERY).await;
    }
    Ok(slowest)
}
