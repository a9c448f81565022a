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
    CampaignRequest, OpenSessionRequest, Operation, RenewRequest, RenewSessionRequest,
};
use regent_election::{Group, Node, SessionId};
use regent_replica::limits::SNAPSHOT_WHEN_IDLE_FOR;
use serde::Serialize;

use super::wire::Wire;
use super::{Bench, To, at_share, broken};
use crate::exit::Exit;
use crate::failure::{Failure, plain};
use crate::output::remark;

/// A session of the benchmark lives this long unheard, so that none expires in a run.
pub(super) const TTL_MS: u64 = 30 * 60 * 1000;

/// Clients that get ready at once.
const ENTERING_MAX: usize = 32;

/// A service that used less than this in so long a time has nothing left to do: a tenth of a core.
const CALM_CPU_US_MAX: u64 = 30_000;
const CALM_EVERY: Duration = Duration::from_millis(300);
/// How often that is looked at before the work begins all the same.
const CALM_TRIES_MAX: usize = 30;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Work {
    Campaign,
    Renew,
    Heartbeat,
    Read,
    /// The least that a server can be asked over HTTP: a yardstick for the machine.
    Nothing,
}

impl Work {
    const ALL: [Self; 5] =
        [Self::Campaign, Self::Renew, Self::Heartbeat, Self::Read, Self::Nothing];
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Campaign => "campaign and win",
            Self::Renew => "renew one tenure",
            Self::Heartbeat => "renew a session",
            Self::Read => "read who leads",
            Self::Nothing => "nothing at all",
        })
    }
}

/// One row.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) work: Work,
    pub(super) to: To,
    pub(super) clients: usize,
    pub(super) operations: u64,
    pub(super) failures: u64,
    pub(super) per_second: f64,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    /// CPU of all processes of the service together, per operation.
    pub(super) server_cpu_us: Option<f64>,
}

/// A client with its session, the office it holds, and what it asks again and again.
pub(super) struct Client {
    wire: Wire,
    pub(super) node: Node,
    pub(super) session: SessionId,
    group: Group,
    campaigns: u64,
    renew: Vec<u8>,
    heartbeat: Vec<u8>,
    read: Vec<u8>,
    nothing: Vec<u8>,
}

pub(super) fn group(text: &str) -> Result<Group, Failure> {
    Group::new(text).map_err(|error| Failure::usage(error.to_string()))
}

pub(super) fn node(text: &str) -> Result<Node, Failure> {
    Node::new(text).map_err(|error| Failure::usage(error.to_string()))
}

/// A bid with a session of one's own.
pub(super) fn bid(node_id: Node, session: SessionId) -> CampaignRequest {
    CampaignRequest { session_id: Some(session), ..CampaignRequest::of(node_id) }
}

/// Opens a session that lives this long unheard.
pub(super) async fn open(remote: &Remote, node: &Node, ttl_ms: u64) -> Result<SessionId, Failure> {
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
pub(super) const fn beat(session_id: SessionId) -> RenewSessionRequest {
    RenewSessionRequest { session_id, sequence: None, disown: Vec::new(), beliefs: None }
}

impl Client {
    /// Opens a session and wins a group.
    async fn enter(remote: Remote, node: Node, group: Group) -> Result<Self, Failure> {
        let session = open(&remote, &node, TTL_MS).await?;
        let won = remote.campaign(&group, &bid(node.clone(), session)).await?;
        if !won.elected {
            return Err(Failure::usage(format!("{group} is led already")));
        }
        let term = won.office.term;
        let wire = Wire::connect(&remote.addresses()[0]).await.map_err(|error| unasked(&error))?;
        let renewal = RenewRequest { session_id: session, term, extend_by_ms: None };
        let renew = wire.request(Operation::Renew, Some(&group), Some(&renewal));
        let heartbeat = wire.request(Operation::RenewSession, None, Some(&beat(session)));
        let read = wire.request(Operation::Leader, Some(&group), None::<&()>);
        let nothing = wire.request(Operation::Healthz, None, None::<&()>);
        Ok(Self { wire, node, session, group, campaigns: 0, renew, heartbeat, read, nothing })
    }

    /// Asks once; whether the answer was the one that was to be had.
    pub(super) async fn once(&mut self, work: Work) -> io::Result<bool> {
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
            Work::Renew => self.wire.ask(&self.renew).await?,
            Work::Heartbeat => self.wire.ask(&self.heartbeat).await?,
            Work::Read => self.wire.ask(&self.read).await?,
            Work::Nothing => self.wire.ask(&self.nothing).await?,
        };
        Ok(answer.is_some())
    }
}

pub(super) fn unasked(error: &io::Error) -> Failure {
    Failure::new(Exit::Unavailable, format!("the service cannot be asked: {}", plain(error)))
}

impl Bench<'_> {
    /// Every kind of work with this many clients.
    pub(super) async fn load(&self, to: To, count: usize) -> Result<Vec<Row>, Failure> {
        let mut clients = self.enter(to, count).await?;
        let mut rows: Vec<Row> = Vec::new();
        for work in Work::ALL {
            if matches!(rows.last(), Some(Row { work: Work::Campaign, .. })) {
                tokio::time::sleep(SNAPSHOT_WHEN_IDLE_FOR).await;
            }
            self.calm_down().await?;
            remark(&format!("{count} clients: {work}, {} s", self.args.seconds));
            let (row, back) = self.work(work, to, clients).await?;
            clients = back;
            rows.push(row);
        }
        Ok(rows)
    }

    /// Waits until the service has done what the work before left it to do: the snapshot of a hundred
    /// thousand campaigns is no part of what a renewal costs.
    async fn calm_down(&self) -> Result<(), Failure> {
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
    pub(super) async fn enter(&self, to: To, count: usize) -> Result<Vec<Client>, Failure> {
        remark(&format!("{count} clients get ready"));
        let target = self.target(to).await?;
        let mut clients = Vec::with_capacity(count);
        let mut starting = tokio::task::JoinSet::<Result<Client, Failure>>::new();
        for number in 0..count {
            let remote = self.remote(&target, number)?;
            let word = to.word();
            let group = group(&format!("bench/{}/{word}/{count}/{number}", self.run_number))?;
            let node = node(&format!("bench-{number}"))?;
            // A few at a time: a listener takes only so many connections that it has not seen yet.
            while starting.len() >= ENTERING_MAX
                && let Some(client) = starting.join_next().await
            {
                clients.push(client.map_err(broken)??);
            }
            starting.spawn(Client::enter(remote, node, group));
        }
        while let Some(client) = starting.join_next().await {
            clients.push(client.map_err(broken)??);
        }
        Ok(clients)
    }

    /// One kind of work, for as long as a row takes.
    pub(super) async fn work(
        &self,
        work: Work,
        to: To,
        clients: Vec<Client>,
    ) -> Result<(Row, Vec<Client>), Failure> {
        let count = clients.len();
        let failures = Arc::new(AtomicU64::new(0));
        let cpu_before = self.processes.cpu_us()?;
        let start = regent_clock::now();
        let end = start + Duration::from_secs(self.args.seconds);
        let mut running = tokio::task::JoinSet::<Result<(Client, Vec<u64>), Failure>>::new();
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
                    if client.once(work).await.map_err(|error| unasked(&error))? {
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
            let (client, times) = done.map_err(broken)??;
            back.push(client);
            times_us.extend(times);
        }
        let elapsed = regent_clock::now().since(start).as_secs_f64();
        let cpu = self.processes.cpu_us()? - cpu_before;
        times_us.sort_unstable();
        let operations = times_us.len() as u64;
        let row = Row {
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
