//! `regent cluster add`, `promote`, `remove` and `transfer`: who is in the cluster, and who leads it.

use std::time::Duration;

use clap::Args;
use regent::remote::Remote;
use regent_api::{AddMemberRequest, ClusterMember, MemberKind};
use regent_operate::retry::{until_changed, until_ready};
use regent_replica::ReplicaId;
use regent_service::members;

use crate::client::ClientArgs;
use crate::confirm::confirm;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::Screen;

/// How long one server may take to answer. A change of members takes far less where the cluster is in order.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);

/// Flags of `regent cluster add`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent cluster add --id 4 --peer 10.0.0.4:7401 --client 10.0.0.4:7400
  regent cluster add --id 3 --peer 10.0.0.3:7401 --client 10.0.0.3:7400 --witness

Prepare and start the replica first (`regent cluster init --join`). It receives everything and
counts for nothing until `regent cluster promote`. A number is never used twice.")]
pub(crate) struct AddArgs {
    /// Its number: above that of every member
    #[arg(long, value_name = "N", value_parser = members::replica_id)]
    id: ReplicaId,
    /// Where other replicas reach it
    #[arg(long, value_name = "HOST:PORT", value_parser = members::address)]
    peer: String,
    /// Where clients reach it
    #[arg(long = "client", value_name = "HOST:PORT", value_parser = members::address)]
    clients: String,
    /// It shall vote and keep the log, but no state
    #[arg(long)]
    witness: bool,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Flags of `regent cluster promote`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent cluster promote 4
  regent cluster promote 4 --timeout 1m

Waits, for at most --timeout, until the learner has caught up, and follows the lead of the log if
it moves meanwhile.")]
pub(crate) struct PromoteArgs {
    /// Which learner
    #[arg(value_name = "N", value_parser = members::replica_id)]
    id: ReplicaId,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Flags of `regent cluster remove`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent cluster remove 3 --yes

A replica that leads hands the lead over first. One that was removed cannot come back: empty its
directory and let it join under another number.")]
pub(crate) struct RemoveArgs {
    /// Which replica
    #[arg(value_name = "N", value_parser = members::replica_id)]
    id: ReplicaId,
    /// Do not ask back
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Flags of `regent cluster transfer`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent cluster transfer
  regent cluster transfer --to 2

Hands the lead of the log over, before maintenance for instance; no leader of any group changes.
`regent serve` does so by itself when it is told to end.")]
pub(crate) struct TransferArgs {
    /// To which replica; left out, to the most advanced
    #[arg(long, value_name = "N", value_parser = members::replica_id)]
    to: Option<ReplicaId>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

impl AddArgs {
    /// What the cluster is asked.
    pub(super) fn request(&self) -> AddMemberRequest {
        AddMemberRequest {
            id: self.id.get(),
            peer_address: self.peer.clone(),
            client_address: self.clients.clone(),
            witness: self.witness,
        }
    }
}

/// Servers of which none has all of the time that a change has: one that stands still must not use it up.
fn short(client: &ClientArgs) -> Result<Remote, Failure> {
    Ok(client.remote()?.with_timeout(client.timeout.min(ANSWERS_WITHIN)))
}

/// Takes a replica in.
pub(crate) async fn add(args: AddArgs) -> CommandResult {
    let request = args.request();
    let remote = short(&args.client)?;
    let is_done = async || {
        let cluster = remote.cluster_by_leader().await?;
        Ok(cluster.members.iter().any(|member| {
            member.id == request.id
                && member.peer_address == request.peer_address
                && member.client_address == request.client_address
        }))
    };
    let add = async || remote.add_member(&request).await;
    let done = until_changed(args.client.timeout, add, is_done).await?;
    let id = args.id;
    let shown = || format!("replica {id} learns; let it vote with `regent cluster promote {id}`");
    Screen::chosen().answer(&done, shown)?;
    Ok(Exit::Done)
}

/// Makes a learner a voter.
pub(crate) async fn promote(args: PromoteArgs) -> CommandResult {
    let remote = short(&args.client)?;
    let id = args.id.get();
    let is_done = async || {
        let cluster = remote.cluster_by_leader().await?;
        let is_voter =
            |member: &ClusterMember| member.id == id && member.kind != MemberKind::Learner;
        Ok(cluster.members.iter().any(is_voter))
    };
    let promote = async || remote.promote_member(id).await;
    let done = until_changed(args.client.timeout, promote, is_done).await?;
    Screen::chosen().answer(&done, || format!("replica {} votes", args.id))?;
    Ok(Exit::Done)
}

/// Removes a replica.
pub(crate) async fn remove(args: RemoveArgs) -> CommandResult {
    let warning = format!("replica {} is removed for good; its number is not used again", args.id);
    confirm(args.yes, &warning)?;
    let remote = short(&args.client)?;
    let id = args.id.get();
    let is_done = async || {
        let cluster = remote.cluster_by_leader().await?;
        // One that was removed itself knows it last, and may not know it yet.
        Ok(cluster.replica != id && cluster.members.iter().all(|member| member.id != id))
    };
    let remove = async || remote.remove_member(id).await;
    let done = until_changed(args.client.timeout, remove, is_done).await?;
    Screen::chosen().answer(&done, || format!("replica {} is removed", args.id))?;
    Ok(Exit::Done)
}

/// Hands the lead of the log over.
pub(crate) async fn transfer(args: TransferArgs) -> CommandResult {
    let remote = args.client.remote()?;
    let to = args.to.map(ReplicaId::get);
    let done = until_ready(args.client.timeout, async || remote.transfer_cluster(to).await).await?;
    Screen::chosen().answer(&done, || match args.to {
        Some(to) => format!("the lead of the log is on its way to replica {to}"),
        None => "the lead of the log is on its way".to_owned(),
    })?;
    Ok(Exit::Done)
}
