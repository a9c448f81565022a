//! `regent cluster invite` and `join`: another machine joins without anybody handling certificates.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::change::AddArgs;
use crate::duration;
use crate::failure::CommandResult;
use crate::logs::LogArgs;
use crate::settings::FoundingArgs;

/// Flags of `regent cluster invite`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent cluster invite --id 4 --peer d:7401 --client d:7400 --dir ./peer-ca --to 4.invitation

Run it where the CA is. The cluster takes the replica in as a learner, the CA issues its
certificate, and one file (mode 0600) has all that its machine needs. Copy it there, run
`regent cluster join FILE`, and delete it: it holds a key.")]
pub(crate) struct InviteArgs {
    #[command(flatten)]
    guest: AddArgs,
    /// The directory of the CA of the peer links
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// For how many days the certificate is good
    #[arg(long, value_name = "N", default_value_t = 365)]
    days: u32,
    /// How long the invitation may be used
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration::parse)]
    expires_in: Duration,
    /// The file to write; there must be none yet
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
}

/// Flags of `regent cluster join`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent cluster join 4.invitation
  regent cluster join 4.invitation --data-dir /var/lib/regent --listen 0.0.0.0:7400

Unpacks the files into `joined` in the data directory and prepares the replica. Then start it as
this prints, and let it vote with `regent cluster promote`.")]
pub(crate) struct JoinArgs {
    /// What `regent cluster invite` wrote
    file: PathBuf,
    /// Where to listen to clients [default: the address of the invitation]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where to listen to peers [default: the address of the invitation]
    #[arg(long, value_name = "ADDRESS")]
    peer_listen: Option<SocketAddr>,
    #[command(flatten)]
    founding: FoundingArgs,
}

#[cfg(not(feature = "tls"))]
fn no_tls() -> CommandResult {
    let why = "this build has no TLS; build with --features tls";
    Err(crate::failure::Failure::new(crate::exit::Exit::Config, why))
}

/// Invites a replica.
#[cfg(not(feature = "tls"))]
pub(crate) async fn invite(_: InviteArgs) -> CommandResult {
    no_tls()
}

/// Joins by an invitation.
#[cfg(not(feature = "tls"))]
pub(crate) fn join(_: JoinArgs, _: &LogArgs) -> CommandResult {
    no_tls()
}

#[cfg(feature = "tls")]
pub(crate) use invited::{invite, join};

#[cfg(feature = "tls")]
mod invited {
    use regent_operate::retry::until_ready;
    use regent_service::{
        self as service, GoodFor, Invitation, InvitationError, InvitationFile, ListenAt,
    };
    use serde_json::json;

    use super::{CommandResult, InviteArgs, JoinArgs, LogArgs};
    use crate::exit::Exit;
    use crate::failure::Failure;
    use crate::output::{Screen, remark};
    use crate::wall::wall_seconds;

    /// Invites a replica.
    pub(crate) async fn invite(args: InviteArgs) -> CommandResult {
        let (days, seconds, since_s) = (args.days, args.expires_in.as_secs(), wall_seconds()?);
        let good_for = GoodFor { days, seconds, since_s };
        let place = InvitationFile::create(args.to.clone())?;
        let (guest, client) = (args.guest.request(), args.guest.client);
        let remote = client.remote()?;
        let cluster = remote.cluster_by_leader().await?;
        service::may_invite(&cluster, &guest, &args.dir, good_for)?;
        until_ready(client.timeout, async || remote.add_member(&guest).await).await?;
        let invitation = Invitation::issue(&cluster, &guest, &args.dir, good_for)?;
        place.write(&invitation)?;
        let (id, file) = (guest.id, args.to.display().to_string());
        let told = json!({ "replica": id, "cluster_id": invitation.cluster_id, "file": file });
        Screen::chosen().answer(&told, || {
            format!(
                "{file}  invites replica {id}: a secret, delete it when it was used\n\n\
                 on its machine:\n  regent cluster join {file}\nand here, once it runs:\n  regent cluster promote {id}"
            )
        })?;
        Ok(Exit::Done)
    }

    /// Joins by an invitation.
    pub(crate) fn join(args: JoinArgs, log: &LogArgs) -> CommandResult {
        let settings = args.founding.resolve(log)?;
        let invitation = Invitation::read(&args.file)?;
        let listen = ListenAt { clients: args.listen, peers: args.peer_listen };
        let disk = settings.replica.disk;
        let config = service::join(&invitation, &settings.data_dir, listen, disk, wall_seconds()?)?;
        let (id, config) = (invitation.replica, config.display().to_string());
        let told = json!({ "replica": id, "cluster_id": invitation.cluster_id, "config": config });
        Screen::chosen().answer(&told, || {
            format!("replica {id} is ready to join\nnext:\n  regent serve --config {config}")
        })?;
        remark(&format!("delete {}: it holds a key", args.file.display()));
        Ok(Exit::Done)
    }

    impl From<InvitationError> for Failure {
        fn from(error: InvitationError) -> Self {
            let message = error.to_string();
            match error {
                InvitationError::Replica(error) => error.into(),
                InvitationError::Tls(error) => crate::tls::failure(error),
                InvitationError::Member { .. } | InvitationError::Over { .. } => {
                    Self::new(Exit::Refused, message)
                }
                InvitationError::Server(_) => Self::new(Exit::Uncertain, message),
                InvitationError::Listen { .. } | InvitationError::Late => {
                    Self::new(Exit::Usage, message)
                }
                InvitationError::Occupied { .. } => Self::new(Exit::Config, message),
                InvitationError::Malformed { .. }
                | InvitationError::File(_)
                | InvitationError::Io { .. } => Self::new(Exit::Files, message),
            }
        }
    }
}
