//! `regent cluster`: our own store as an operator sees it. One verb, one file.

mod backup;
mod change;
mod founded;
mod init;
mod invite;
mod recover;
mod refused;
mod restore;
mod status;

use clap::Subcommand;

use crate::failure::CommandResult;
use crate::logs::LogArgs;

const EXAMPLES: &str = "\
Examples:
  regent cluster init --id 1 --members 1=a:7401/a:7400,2=b:7401/b:7400,3=c:7401/c:7400
  regent cluster status
  regent cluster transfer --to 2
  regent cluster remove 3 --yes
  regent cluster backup --to regent.backup";

/// Verbs of `regent cluster`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum ClusterVerb {
    /// Prepare the data directory of one replica
    Init(init::InitArgs),
    /// Show the replicas, who leads them and how far they are
    Status(status::StatusArgs),
    /// Take a replica in: it learns before it votes
    Add(change::AddArgs),
    /// Take a replica in and write one file with which its machine joins
    Invite(Box<invite::InviteArgs>),
    /// Prepare this machine to join by such a file
    Join(invite::JoinArgs),
    /// Let a replica that has learnt vote
    Promote(change::PromoteArgs),
    /// Remove a replica for good
    Remove(change::RemoveArgs),
    /// Hand the lead of the log to another replica
    Transfer(change::TransferArgs),
    /// Write everything that must outlive the machines into a file
    Backup(backup::BackupArgs),
    /// Make a cluster of a backup
    Restore(restore::RestoreArgs),
    /// Break glass: make a cluster of one surviving replica
    Recover(recover::RecoverArgs),
}

/// Runs one of the verbs.
pub(crate) async fn run(verb: ClusterVerb, log: &LogArgs) -> CommandResult {
    match verb {
        ClusterVerb::Init(args) => init::run(args, log),
        ClusterVerb::Status(args) => status::run(args).await,
        ClusterVerb::Add(args) => change::add(args).await,
        ClusterVerb::Invite(args) => invite::invite(*args).await,
        ClusterVerb::Join(args) => invite::join(args, log),
        ClusterVerb::Promote(args) => change::promote(args).await,
        ClusterVerb::Remove(args) => change::remove(args).await,
        ClusterVerb::Transfer(args) => change::transfer(args).await,
        ClusterVerb::Backup(args) => backup::run(args).await,
        ClusterVerb::Restore(args) => restore::run(args, log),
        ClusterVerb::Recover(args) => recover::run(args),
    }
}
