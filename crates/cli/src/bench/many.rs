//! Very many groups: what they cost in memory, in a heartbeat, and when their leader crashes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use regent::remote::Remote;
use regent_api::{Consistency, GroupsQuery};
use regent_election::limits::GROUPS_PAGE_MAX;
use regent_election::{Node, SessionId};
use serde::Serialize;

use super::load::{Client, TTL_MS, Work, beat, bid, group, node, open};
use super::{Bench, Target, To, broken};
use crate::failure::Failure;
use crate::output::remark;

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
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long the service has to settle after groups were made, so that its memory is that of idleness.
const SETTLE_FOR: Duration = Duration::from_secs(10);

/// What an idle group costs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Memory {
    pub(super) groups: usize,
    pub(super) seconds_to_make: f64,
    /// Of all processes together, before and after.
    pub(super) bytes_before: u64,
    pub(super) bytes_after: u64,
    /// Of one process.
    pub(super) bytes_per_group_and_node: f64,
}

/// A heartbeat for one group against one for a thousand.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Width {
    pub(super) groups: usize,
    pub(super) narrow_cpu_us: Option<f64>,
    pub(super) wide_cpu_us: Option<f64>,
    pub(super) narrow_p50_us: u64,
    pub(super) wide_p50_us: u64,
}

/// A crash of a leader of very many groups.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Succession {
    pub(super) groups: usize,
    pub(super) ttl_ms: u64,
    /// By how much later than one ttl after its last heartbeat left all groups had another leader.
    pub(super) beyond_ttl_ms: u64,
    /// CPU of all processes of the service between the crash and its end.
    pub(super) server_cpu_ms: Option<f64>,
    /// The slowest heartbeat of another session in that time.
    pub(super) slowest_heartbeat_ms: f64,
}

impl Bench<'_> {
    /// What that many groups cost in memory.
    pub(super) async fn memory(&self, groups: usize) -> Result<Memory, Failure> {
        let target = self.target(To::Spread).await?;
        let name = format!("bench/{}/m", self.run_number);
        let mut leaders = Vec::new();
        for number in 0..LEADERS {
            let remote = self.remote(&target, number)?;
            let node = node(&format!("bench-{number}"))?;
            let session = open(&remote, &node, TTL_MS).await?;
            leaders.push((node, session));
        }
        let bytes_before = self.processes.memory_bytes()?;
        remark(&format!("{groups} groups are made"));
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
    ) -> Result<(), Failure> {
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
                        return Ok::<(), Failure>(());
                    }
                    let (node, session) = sessions[at % sessions.len()].clone();
                    let group = group(&format!("{name}/{at}"))?;
                    remote.campaign(&group, &bid(node, session)).await?;
                }
            });
        }
        while let Some(done) = making.join_next().await {
            done.map_err(broken)??;
        }
        Ok(())
    }

    /// Compares heartbeats of sessions with one group and with a thousand.
    pub(super) async fn width(&self) -> Result<Width, Failure> {
        let clients = self.enter(To::Spread, WIDTH_CLIENTS).await?;
        remark("heartbeats of sessions with one group");
        let (narrow, clients) = self.work(Work::Heartbeat, To::Spread, clients).await?;
        remark(&format!("{WIDTH_CLIENTS} sessions win {WIDE} groups each"));
        let sessions: Vec<_> = clients.iter().map(Client::who).collect();
        let name = format!("bench/{}/w", self.run_number);
        let more = (WIDE - 1) * WIDTH_CLIENTS;
        self.stand(&self.target(To::Spread).await?, &name, more, &sessions).await?;
        remark(&format!("heartbeats of sessions with {WIDE} groups"));
        let (wide, _) = self.work(Work::Heartbeat, To::Spread, clients).await?;
        Ok(Width {
            groups: WIDE,
            narrow_cpu_us: narrow.server_cpu_us,
            wide_cpu_us: wide.server_cpu_us,
            narrow_p50_us: narrow.p50_us,
            wide_p50_us: wide.p50_us,
        })
    }

    /// Lets the leader of very many groups crash.
    pub(super) async fn succession(&self) -> Result<Succession, Failure> {
        let groups = self.args.groups.first().copied().unwrap_or(1);
        let target = self.target(To::Spread).await?;
        let (old, new) = (node("bench-old")?, node("bench-new")?);
        let (leader, standby) = (self.remote(&target, 0)?, self.remote(&target, 1)?);
        let holder = open(&leader, &old, CRASH_TTL_MS).await?;
        let waiter = open(&standby, &new, TTL_MS).await?;
        let name = format!("bench/{}/s", self.run_number);
        let kept = tokio::spawn(keep_alive(leader.clone(), holder));
        remark(&format!("one session wins {groups} groups"));
        self.stand(&target, &name, groups, &[(old.clone(), holder)]).await?;
        remark("another stands by in all of them");
        self.stand(&target, &name, groups, &[(new.clone(), waiter)]).await?;
        kept.abort();
        let _ = kept.await;

        remark("the first one crashes");
        let cpu_before = self.processes.cpu_us()?;
        let last_at = regent_clock::now();
        leader.renew_session(&beat(holder)).await?;
        let due_at = last_at + Duration::from_millis(CRASH_TTL_MS);
        let last = group(&format!("{name}/{}", groups - 1))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let watched = tokio::spawn(slowest(standby.clone(), waiter, Arc::clone(&is_over)));
        let led_at = loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // One entry changes all groups, and a read sees all of it or nothing.
            let office = leader.leader(&last, Consistency::Linearizable).await?.office;
            if office.leader.as_ref() == Some(&new) {
                break regent_clock::now();
            }
        };
        is_over.store(true, Ordering::Relaxed);
        let slowest = watched.await.map_err(broken)??;
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
    ) -> Result<(), Failure> {
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
                    return Err(Failure::usage(why));
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
        let _ = remote.renew_session(&beat(session)).await;
        tokio::time::sleep(Duration::from_millis(CRASH_TTL_MS / 5)).await;
    }
}

/// Renews a session until it is over; how long the slowest answer took.
async fn slowest(
    remote: Remote,
    session: SessionId,
    is_over: Arc<AtomicBool>,
) -> Result<Duration, Failure> {
    let mut slowest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let sent_at = regent_clock::now();
        remote.renew_session(&beat(session)).await?;
        slowest = slowest.max(regent_clock::now().since(sent_at));
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(slowest)
}
