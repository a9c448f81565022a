//! `/v1/cluster`: the replicas behind the store, if there are any.
//!
//! Only our own store has replicas, and this crate knows none: whoever starts the service hands in
//! a [`Cluster`] beside the store. Over any other store these routes say that it cannot do this.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use regent_api::{
    AddMemberRequest, BindingBody, CallerBody, ClusterResponse, Code, Done, Operation, Problem,
    PromoteMemberRequest, RemoveMemberRequest, TransferClusterRequest,
};

use crate::app::{Ask, Call};
use crate::audit::Pending;
use crate::backup::BackupFile;
use crate::quiet::{self, Quiet};
use crate::reply::{self, Reply};

static ASKED: Quiet = quiet::lines();

/// The replicas behind a store, for operators.
///
/// A refusal is a problem: the one who knows the replicas knows best what an operator may do next.
#[async_trait]
pub trait Cluster: fmt::Debug + Send + Sync + 'static {
    /// The cluster as this replica knows it, at once and whatever state it is in.
    async fn show(&self) -> ClusterResponse;

    /// How long ago a quorum last confirmed what this replica knows, to within two election time-outs, at once.
    fn confirmed_ago(&self) -> Duration;

    /// How long the work of this replica takes, at once.
    fn measured(&self) -> Measured;

    /// Takes a replica in as a learner.
    async fn add(&self, member: AddMemberRequest) -> Result<(), Problem>;

    /// Makes a learner a voter.
    async fn promote(&self, id: u64) -> Result<(), Problem>;

    /// Removes a replica.
    async fn remove(&self, id: u64) -> Result<(), Problem>;

    /// Hands the lead of the log over, to the one named or to the most advanced voter.
    async fn transfer(&self, to: Option<u64>) -> Result<(), Problem>;

    /// Everything that must outlive the machines, with a checksum. Holds no secret of any session.
    async fn backup(&self) -> Result<BackupFile, Problem>;
}

/// How long a replica's work takes, since it started.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Changes, from their arrival until they were applied.
    pub commits: Durations,
    /// Batches of the log, until they were durable.
    pub syncs: Durations,
    /// Sessions whose time is over and whose expiry is not yet applied.
    pub due_expiries: u64,
    /// What is free on the disk of its data; none if the disk does not say.
    pub disk_free_bytes: Option<u64>,
    /// The certificates of the replica.
    pub certificates: Vec<CertificateState>,
}

/// How a certificate in use is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateState {
    /// What it is for.
    pub what: &'static str,
    /// For how many more seconds it is good; negative after its end.
    pub left_s: i64,
    /// How often files that changed could not be used.
    pub reload_failures: u64,
}

/// Durations, counted by how long they were.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    /// Upper bounds in seconds, the last one infinite, and how many lie between each and the one
    /// before.
    pub buckets: Vec<(f64, u64)>,
    /// All of them together, in seconds.
    pub sum_s: f64,
}

pub(crate) async fn show(call: Call) -> Reply {
    reply::json(&act_show(&call).await?)
}

pub(crate) async fn act_show(ask: &Ask) -> Result<ClusterResponse, Problem> {
    let auth = Some(ask.app.config.auth.word().to_owned());
    let caller = match &ask.guard {
        None => None,
        Some(guarded) => Some(CallerBody {
            principal: guarded.caller().who.to_string(),
            bindings: guarded.bindings_of_caller().await?.iter().map(BindingBody::from).collect(),
        }),
    };
    Ok(ClusterResponse { auth, caller, ..cluster(ask)?.show().await })
}

pub(crate) async fn add(call: Call) -> Reply {
    let request = call.body()?;
    reply::json(&act_add(&call, request).await?)
}

pub(crate) async fn act_add(ask: &Ask, request: AddMemberRequest) -> Result<Done, Problem> {
    if let Some(untold) = ASKED.admit() {
        tracing::info!(replica = request.id, untold, "a member is to be added");
    }
    let what = format!("replica {} at {}", request.id, request.peer_address);
    let pending = Pending::beside_store(ask, Operation::AddMember, &what);
    changed(ask, pending, cluster(ask)?.add(request)).await
}

pub(crate) async fn promote(call: Call) -> Reply {
    let request = call.body()?;
    reply::json(&act_promote(&call, request).await?)
}

pub(crate) async fn act_promote(ask: &Ask, request: PromoteMemberRequest) -> Result<Done, Problem> {
    let PromoteMemberRequest { id } = request;
    if let Some(untold) = ASKED.admit() {
        tracing::info!(replica = id, untold, "a member is to be promoted");
    }
    let what = format!("replica {id}");
    let pending = Pending::beside_store(ask, Operation::PromoteMember, &what);
    changed(ask, pending, cluster(ask)?.promote(id)).await
}

pub(crate) async fn remove(call: Call) -> Reply {
    let request = call.body()?;
    reply::json(&act_remove(&call, request).await?)
}

pub(crate) async fn act_remove(ask: &Ask, request: RemoveMemberRequest) -> Result<Done, Problem> {
    let RemoveMemberRequest { id } = request;
    if let Some(untold) = ASKED.admit() {
        tracing::info!(replica = id, untold, "a member is to be removed");
    }
    let what = format!("replica {id}");
    let pending = Pending::beside_store(ask, Operation::RemoveMember, &what);
    changed(ask, pending, cluster(ask)?.remove(id)).await
}

pub(crate) async fn transfer(call: Call) -> Reply {
    let request = call.body()?;
    reply::json(&act_transfer(&call, request).await?)
}

pub(crate) async fn act_transfer(
    ask: &Ask,
    request: TransferClusterRequest,
) -> Result<Done, Problem> {
    let TransferClusterRequest { to } = request;
    if let Some(untold) = ASKED.admit() {
        tracing::info!(to, untold, "the lead of the log is to be handed over");
    }
    let what = to.map_or_else(|| "any replica".to_owned(), |to| format!("replica {to}"));
    let pending = Pending::beside_store(ask, Operation::TransferCluster, &what);
    changed(ask, pending, cluster(ask)?.transfer(to)).await
}

pub(crate) fn cluster(ask: &Ask) -> Result<&Arc<dyn Cluster>, Problem> {
    ask.app.cluster.as_ref().ok_or_else(|| {
        let name = ask.store().describe().name;
        Problem::new(
            Code::Unsupported,
            format!(
                "store {name} has no replicas; `regent serve` has them on its own store (replica:)"
            ),
        )
    })
}

/// A change that is not answered in time may have been made.
async fn changed(
    ask: &Ask,
    pending: Pending,
    asked: impl Future<Output = Result<(), Problem>>,
) -> Result<Done, Problem> {
    let timeout = ask.app.config.request_timeout;
    let done = tokio::time::timeout(timeout, asked).await.unwrap_or_else(|_| {
        Err(Problem::new(
            Code::Uncertain,
            format!(
                "the cluster did not answer within {} ms; it may have happened, look at the members before you decide anything",
                timeout.as_millis()
            ),
        ))
    });
    pending.settle(&done);
    done.map(|()| Done::YES)
}
