//! As many operations as are answered: a closed loop, in which every client sends its next request
//! when the last one is answered.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use regent::fresh;
use regent::remote::Remote;
use regent_api::{
    CampaignRequest, CampaignResponse, HeartbeatRequest, OpenSessionRequest, Operation,
    RenewRequest, TenureRequest,
};
use regent_election::{Group, Node, SessionId, Term};
use regent_replica::limits::SNAPSHOT_WHEN_IDLE_FOR;
use serde::Serialize;

use crate::error::LoadError;
use crate::wire::Wire;
use crate::{Bench, ClientTarget, at_share};

/// A session of the benchmark lives this long unheard, so that none expires in a run.
pub(crate) const TTL_MS: u64 = 30 * 60 * 1000;

/// Clients that get ready at once.
pub(crate) const ENTERING_MAX: usize = 32;

/// A service that used less than this in so long a time has nothing left to do: a tenth of a core.
const CALM_CPU_US_MAX: u64 = 30_000;
const CALM_EVERY: Duration = Duration::from_millis(300);
/// How often that is looked at before the work begins all the same.
const CALM_TRIES_MAX: usize = 30;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    Campaign,
    /// Two requests: a campaign that wins, and the resignation. The group is the same again and again.
    Tenure,
    Renew,
    Heartbeat,
    Read,
    /// The least that a server can be asked over HTTP: a yardstick for the machine.
    Nothing,
}

impl Work {
    /// What a service is loaded with, in this order.
    const LOADS: [Self; 5] =
        [Self::Campaign, Self::Renew, Self::Heartbeat, Self::Read, Self::Nothing];
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Campaign => "campaign and win",
            Self::Tenure => "campaign and resign",
            Self::Renew => "renew one tenure",
            Self::Heartbeat => "heartbeat of a session",
            Self::Read => "read who leads",
            Self::Nothing => "nothing at all",
        })
    }
}

/// One row.
#[derive(Clone, Debug, Serialize)]
pub struct LoadRow {
    pub work: Work,
    pub to: ClientTarget,
    pub clients: usize,
    pub operations: u64,
    pub failures: u64,
    pub per_second: f64,
    pub p50_us: u64,
    pub p99_us: u64,
    /// CPU of all processes of the service together, per operation.
    pub server_cpu_us: Option<f64>,
}

/// A client with its session, the office it holds, and what it asks again and again.
pub(crate) struct Client {
    wire: Wire,
    pub(crate) node: Node,
    pub(crate) session: SessionId,
    group: Group,
    campaigns: u64,
    renew: Vec<u8>,
    heartbeat: Vec<u8>,
    read: Vec<u8>,
    nothing: Vec<u8>,
}

pub(crate) fn group(text: &str) -> Result<Group, LoadError> {
    Ok(Group::new(text)?)
}

pub(crate) fn node(text: &str) -> Result<Node, LoadError> {
    Ok(Node::new(text)?)
}

/// A bid with a session of one's own.
pub(crate) fn bid(node_id: Node, session: SessionId) -> CampaignRequest {
    CampaignRequest { session_id: Some(session), ..CampaignRequest::of(node_id) }
}

/// Opens a session that lives this long unheard.
pub(crate) async fn open(
    remote: &Remote,
    node: &Node,
    ttl_ms: u64,
) -> Result<SessionId, LoadError> {
    let session = fresh::session_id()?;
    let request = OpenSessionRequest {
        node_id: node.clone(),
        ttl_ms: Some(ttl_ms),
        session_id: Some(session),
    };
    remote.open_session(&request).await?;
    Ok(session)
}

/// A heartbeat without more.
pub(crate) const fn heartbeat(session_id: SessionId) -> HeartbeatRequest {
    HeartbeatRequest { session_id, sequence: None, disown: Vec::new(), beliefs: None }
}

impl Client {
    /// Opens a session and wins a group.
    async fn enter(remote: Remote, node: Node, group: Group) -> Result<Self, LoadError> {
        let session = open(&remote, &node, TTL_MS).await?;
        let won = remote.campaign(&group, &bid(node.clone(), session)).await?;
        if !won.elected {
            return Err(LoadError::Wrong(format!("{group} is led already")));
        }
        let wire = Wire::connect(&remote.addresses()[0]).await.map_err(unasked)?;
        Ok(Self::leading(wire, node, group, session, won.office.term))
    }

    /// The same through the connection that it goes on with, for what only that shows.
    pub(crate) async fn enter_by(
        mut wire: Wire,
        node: Node,
        group: Group,
    ) -> Result<Self, LoadError> {
        let session = fresh::session_id()?;
        let opening = OpenSessionRequest {
            node_id: node.clone(),
            ttl_ms: Some(TTL_MS),
            session_id: Some(session),
        };
        let opening = wire.request(Operation::OpenSession, None, Some(&opening));
        if wire.ask(&opening).await.map_err(unasked)?.is_none() {
            return Err(LoadError::Wrong(format!("no session for {node}: {}", wire.told())));
        }
        let bid = bid(node.clone(), session);
        let campaign = wire.request(Operation::Campaign, Some(&group), Some(&bid));
        let won = wire.ask(&campaign).await.map_err(unasked)?.and_then(term_won);
        let Some(term) = won else {
            return Err(LoadError::Wrong(format!("{group} was not won: {}", wire.told())));
        };
        Ok(Self::leading(wire, node, group, session, term))
    }

    fn leading(wire: Wire, node: Node, group: Group, session: SessionId, term: Term) -> Self {
        let renewal = RenewRequest { session_id: session, term, extend_by_ms: None };
        let renew = wire.request(Operation::Renew, Some(&group), Some(&renewal));
        let heartbeat = wire.request(Operation::Heartbeat, None, Some(&heartbeat(session)));
        let read = wire.request(Operation::Leader, Some(&group), None::<&()>);
        let nothing = wire.request(Operation::Healthz, None, None::<&()>);
        Self { wire, node, session, group, campaigns: 0, renew, heartbeat, read, nothing }
    }

    /// Asks once; whether the answer was the one that was to be had.
    pub(crate) async fn once(&mut self, work: Work) -> io::Result<bool> {
        let answer = match work {
            Work::Campaign => {
                self.campaigns += 1;
                let name = format!("{}/{}", self.group, self.campaigns);
                let group = Group::new(&name).map_err(io::Error::other)?;
                let bid = bid(self.node.clone(), self.session);
                let request = self.wire.request(Operation::Campaign, Some(&group), Some(&bid));
                let answer = self.wire.ask(&request).await?;
                return Ok(answer.is_some_and(|body| body.starts_with(b"{\"elected\":true,")));
            }
            Work::Tenure => return self.tenure().await,
            Work::Renew => self.wire.ask(&self.renew).await?,
            Work::Heartbeat => self.wire.ask(&self.heartbeat).await?,
            Work::Read => self.wire.ask(&self.read).await?,
            Work::Nothing => self.wire.ask(&self.nothing).await?,
        };
        Ok(answer.is_some())
    }

    /// Wins a group beside its own, and gives it up.
    async fn tenure(&mut self) -> io::Result<bool> {
        let group = Group::new(&format!("{}/again", self.group)).map_err(io::Error::other)?;
        let bid = bid(self.node.clone(), self.session);
        let campaign = self.wire.request(Operation::Campaign, Some(&group), Some(&bid));
        let Some(term) = self.wire.ask(&campaign).await?.and_then(term_won) else {
            return Ok(false);
        };
        let leave = TenureRequest { session_id: self.session, term, request_id: None };
        let resign = self.wire.request(Operation::Resign, Some(&group), Some(&leave));
        Ok(self.wire.ask(&resign).await?.is_some())
    }
}

/// The term that a campaign has won, if it has.
fn term_won(body: &[u8]) -> Option<Term> {
    let answer: CampaignResponse = serde_json::from_slice(body).ok()?;
    answer.elected.then_some(answer.office.term)
}

pub(crate) fn unasked(source: io::Error) -> LoadError {
    LoadError::io("the service cannot be asked", source)
}

impl Bench<'_> {
    /// Every kind of work with this many clients.
    pub(crate) async fn load(
        &self,
        to: ClientTarget,
        count: usize,
    ) -> Result<Vec<LoadRow>, LoadError> {
        let mut clients = self.enter(to, count).await?;
        let mut rows: Vec<LoadRow> = Vec::new();
        for work in Work::LOADS {
            if matches!(rows.last(), Some(LoadRow { work: Work::Campaign, .. })) {
                tokio::time::sleep(SNAPSHOT_WHEN_IDLE_FOR).await;
            }
            self.calm_down().await?;
            self.tell(&format!("{count} clients: {work}, {} s", self.plan.seconds));
            let (row, back) = self.work(work, to, clients).await?;
            clients = back;
            rows.push(row);
        }
        Ok(rows)
    }

    /// Waits until the service has done what the work before left it to do: the snapshot of a hundred
    /// thousand campaigns is no part of what a renewal costs.
    pub(crate) async fn calm_down(&self) -> Result<(), LoadError> {
        for _ in 0..CALM_TRIES_MAX {
            let cpu_before = self.processes.cpu_us()?;
            tokio::time::sleep(CALM_EVERY).await;
            if self.processes.cpu_us()? - cpu_before < CALM_CPU_US_MAX {
                break;
            }
        }
        Ok(())
    }

    /// Opens a session for every client and lets each lead one group.
    pub(crate) async fn enter(
        &self,
        to: ClientTarget,
        count: usize,
    ) -> Result<Vec<Client>, LoadError> {
        self.tell(&format!("{count} clients get ready"));
        let target = self.target(to).await?;
        let mut clients = Vec::with_capacity(count);
        let mut starting = tokio::task::JoinSet::<Result<Client, LoadError>>::new();
        for number in 0..count {
            let remote = self.remote(&target, number)?;
            let word = to.word();
            let group = group(&format!("bench/{}/{word}/{count}/{number}", self.run_number))?;
            let node = node(&format!("bench-{number}"))?;
            // A few at a time: a listener takes only so many connections that it has not seen yet.
            while starting.len() >= ENTERING_MAX
                && let Some(client) = starting.join_next().await
            {
                clients.push(client??);
            }
            starting.spawn(Client::enter(remote, node, group));
        }
        while let Some(client) = starting.join_next().await {
            clients.push(client??);
        }
        Ok(clients)
    }

    /// One kind of work, for as long as a row takes.
    pub(crate) async fn work(
        &self,
        work: Work,
        to: ClientTarget,
        clients: Vec<Client>,
    ) -> Result<(LoadRow, Vec<Client>), LoadError> {
        let count = clients.len();
        let failures = Arc::new(AtomicU64::new(0));
        let cpu_before = self.processes.cpu_us()?;
        let start = regent_clock::now();
        let end = start + Duration::from_secs(self.plan.seconds);
        let mut running = tokio::task::JoinSet::<Result<(Client, Vec<u64>), LoadError>>::new();
        for mut client in clients {
            let failures = Arc::clone(&failures);
            let row = async move {
                let mut times_us = Vec::new();
                loop {
                    let sent_at = regent_clock::now();
                    if sent_at >= end {
                        return Ok((client, times_us));
                    }
                    // A connection that breaks ends the row: figures of fewer clients than it says
                    // would be worth nothing.
                    if client.once(work).await.map_err(unasked)? {
                        let took = regent_clock::now().since(sent_at);
                        times_us.push(took.as_micros() as u64);
                    } else {
                        failures.fetch_add(1, Ordering::Relaxed);
                    }
                }
            };
            running.spawn(row);
        }
        let mut back = Vec::with_capacity(count);
        let mut times_us = Vec::new();
        while let Some(done) = running.join_next().await {
            let (client, times) = done??;
            back.push(client);
            times_us.extend(times);
        }
        let elapsed = regent_clock::now().since(start).as_secs_f64();
        let cpu = self.processes.cpu_us()? - cpu_before;
        times_us.sort_unstable();
        let operations = times_us.len() as u64;
        let row = LoadRow {
            work,
            to,
            clients: count,
            operations,
            failures: failures.load(Ordering::Relaxed),
            per_second: operations as f64 / elapsed,
            p50_us: at_share(&times_us, 0.50),
            p99_us: at_share(&times_us, 0.99),
            server_cpu_us: (!self.processes.are_unknown() && operations > 0)
                .then(|| cpu as f64 / operations as f64),
        };
        Ok((row, back))
    }
}
