//! `regent tls`: an offline CA, and the certificates by which replicas, servers and clients are known.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use regent_election::{Account, Node};
use regent_replica::ReplicaId;
use regent_service::{cluster_id, members};

use crate::failure::CommandResult;

const EXAMPLES: &str = "\
The CA stays in a directory of a machine that you trust, and never on a server. Everybody gets a
certificate and a key of their own, and the CA's certificate.

Examples:
  regent tls init --dir ./ca
  regent tls issue --dir ./ca --replica 1 --cluster 2f6e63b8d1a04c57a3f4b0c9d8e7f601
  regent tls issue --dir ./ca --server regent.example.org,10.0.0.1
  regent tls issue --dir ./ca --node web-1 --cluster 2f6e63b8d1a04c57a3f4b0c9d8e7f601
  regent tls renew --dir ./ca --node web-1
  regent tls revoke --dir ./ca --node web-1";

/// Verbs of `regent tls`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum TlsVerb {
    /// Create a CA
    Init(InitArgs),
    /// Issue a certificate and a key for a replica, a server or a client
    Issue(IssueArgs),
    /// Issue another certificate for somebody who has one
    Renew(RenewArgs),
    /// Revoke a certificate: write it into the list that servers read
    Revoke(RevokeArgs),
}

/// For whom a certificate is: exactly one of these.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("whose").required(true))]
struct Whose {
    /// A replica, by its number
    #[arg(long, value_name = "ID", value_parser = members::replica_id, group = "whose")]
    replica: Option<ReplicaId>,
    /// A server, by the DNS names and addresses that clients use; the first one names the files
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', group = "whose")]
    server: Vec<String>,
    /// A client that stands for leadership: the principal node:NAME
    #[arg(long, value_name = "NAME", group = "whose")]
    node: Option<Node>,
    /// A person, or a client that does not stand: the principal user:NAME
    #[arg(long, value_name = "NAME", group = "whose")]
    user: Option<Account>,
}

/// Flags of `regent tls init`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent tls init --dir ./ca
  regent tls init --dir ./ca --days 730")]
pub(crate) struct InitArgs {
    /// The directory of the CA; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// For how many days the CA is good
    #[arg(long, value_name = "N", default_value_t = 3650)]
    days: u32,
}

/// Flags of `regent tls issue`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The cluster's id is what `regent cluster init` prints and `regent cluster status` shows.
A server's certificate needs none.

Examples:
  regent tls issue --dir ./ca --replica 1 --cluster 2f6e63b8d1a04c57a3f4b0c9d8e7f601
  regent tls issue --dir ./ca --server regent.example.org,10.0.0.1
  regent tls issue --dir ./ca --node web-1 --cluster 2f6e63b8d1a04c57a3f4b0c9d8e7f601")]
pub(crate) struct IssueArgs {
    /// The directory of the CA
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    whose: Whose,
    /// The cluster's id, in 32 hexadecimal digits
    #[arg(long, value_name = "CLUSTER", value_parser = cluster_id, required_unless_present = "server")]
    cluster: Option<u128>,
    /// For how many days the certificate is good
    #[arg(long, value_name = "N", default_value_t = 365)]
    days: u32,
}

/// Flags of `regent tls renew`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A running server notices the new files by itself, within ten seconds or on SIGHUP; a client uses
them for its next connection.

Examples:
  regent tls renew --dir ./ca --replica 1
  regent tls renew --dir ./ca --server regent.example.org --days 90 --new-key")]
pub(crate) struct RenewArgs {
    /// The directory of the CA
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    whose: Whose,
    /// For how many days the certificate is good
    #[arg(long, value_name = "N", default_value_t = 365)]
    days: u32,
    /// Make another key, too
    #[arg(long)]
    new_key: bool,
}

/// Flags of `regent tls revoke`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Copy ca.crl to every server (tls_crl, peer_crl), which reads it within ten seconds or on SIGHUP.

Examples:
  regent tls revoke --dir ./ca --node web-1")]
pub(crate) struct RevokeArgs {
    /// The directory of the CA
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    whose: Whose,
}

/// Runs the verb.
#[cfg(not(feature = "tls"))]
pub(crate) fn run(_verb: &TlsVerb) -> CommandResult {
    let why = "this build has no TLS; build with --features tls";
    Err(crate::failure::Failure::new(crate::exit::Exit::Config, why))
}

/// Runs the verb.
#[cfg(feature = "tls")]
pub(crate) fn run(verb: &TlsVerb) -> CommandResult {
    made::run(verb)
}

#[cfg(feature = "tls")]
pub(crate) use made::failure;

#[cfg(feature = "tls")]
mod made {
    //! What the verbs make, and what they tell of it.

    use std::path::Path;
    use std::time::{Duration, UNIX_EPOCH};

    use regent_tls::authority::{self, Host, Owner, Subject};
    use regent_tls::{ReplicaName, TlsError};
    use serde_json::json;

    use super::{TlsVerb, Whose};
    use crate::exit::Exit;
    use crate::failure::{CommandResult, Failure};
    use crate::output::Screen;
    use crate::wall::wall_seconds;

    pub(super) fn run(verb: &TlsVerb) -> CommandResult {
        let now_s = wall_seconds()?;
        let screen = Screen::chosen();
        let (made, is_renewed) = match verb {
            TlsVerb::Init(args) => (authority::init(&args.dir, args.days, now_s), false),
            TlsVerb::Issue(args) => {
                let subject = args.whose.subject(args.cluster.unwrap_or_default())?;
                (authority::issue(&args.dir, &subject, args.days, now_s), false)
            }
            TlsVerb::Renew(args) => {
                let owner = args.whose.owner()?;
                (authority::renew(&args.dir, &owner, args.days, args.new_key, now_s), true)
            }
            TlsVerb::Revoke(args) => {
                let owner = args.whose.owner()?;
                let revoked = authority::revoke(&args.dir, &owner, now_s).map_err(failure)?;
                let (name, crl) = (revoked.subject.to_string(), shown(&revoked.crl));
                let count = revoked.count;
                screen.answer(&json!({ "name": name, "crl": crl, "count": count }), || {
                    format!(
                        "revoked {name}\n{crl}  what was revoked, {count} in all\n\n\
                         copy it to every server, whose settings tls_crl (clients) or peer_crl (replicas) name it; it is read within 10 s, or on SIGHUP"
                    )
                })?;
                return Ok(Exit::Done);
            }
        };
        let made = made.map_err(failure)?;
        let expires_at = UNIX_EPOCH + Duration::from_secs(made.expires_at_s);
        let expires_at = humantime::format_rfc3339_seconds(expires_at).to_string();
        let mut object = json!({
            "certificate": shown(&made.certificate),
            "key": shown(&made.key),
            "ca": shown(&made.ca),
            "expires_at": expires_at,
        });
        if let Some(subject) = &made.subject {
            object["name"] = subject.to_string().into();
        }
        screen.answer(&object, || made.guide(is_renewed, now_s, &expires_at))?;
        Ok(Exit::Done)
    }

    impl Whose {
        fn subject(&self, cluster: u128) -> Result<Subject, Failure> {
            Ok(match self.owner()? {
                Owner::Replica(replica) => Subject::Replica(ReplicaName { cluster, replica }),
                Owner::Server(_) => Subject::Server(self.hosts()?),
                Owner::Node(name) => Subject::Node { cluster, name },
                Owner::User(name) => Subject::User { cluster, name },
            })
        }

        fn owner(&self) -> Result<Owner, Failure> {
            match (self.replica, &self.node, &self.user) {
                (Some(replica), ..) => Ok(Owner::Replica(replica.get())),
                (None, Some(node), _) => Ok(Owner::Node(node.clone())),
                (None, None, Some(user)) => Ok(Owner::User(user.clone())),
                (None, None, None) => {
                    let first = self.hosts()?.into_iter().next();
                    first.map(Owner::Server).ok_or_else(|| Failure::usage("--server: no host"))
                }
            }
        }

        fn hosts(&self) -> Result<Vec<Host>, Failure> {
            self.server.iter().map(|host| host.parse().map_err(failure)).collect()
        }
    }

    fn shown(path: &Path) -> String {
        path.display().to_string()
    }

    pub(crate) fn failure(error: TlsError) -> Failure {
        let exit = match &error {
            TlsError::Exists { .. } | TlsError::OutlivesCa { .. } => Exit::Refused,
            TlsError::Days { .. } | TlsError::Host { .. } => Exit::Usage,
            TlsError::Cryptography(_) => Exit::Unavailable,
            TlsError::File { .. }
            | TlsError::Unfit(_)
            | TlsError::Unknown { .. }
            | TlsError::KeyIsOpen { .. }
            | TlsError::Malformed { .. }
            | TlsError::OtherName { .. }
            | TlsError::Refused { .. }
            | TlsError::Mismatch { .. } => Exit::Files,
        };
        Failure::new(exit, error.to_string())
    }
}
