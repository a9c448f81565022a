//! `regent tls`: an offline CA, and the certificates by which replicas know each other.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use regent_replica::ReplicaId;
use regent_service::{cluster_id, members};

use crate::failure::CommandResult;

const EXAMPLES: &str = "\
The CA stays in a directory of a machine that you trust, and never on a server. Every replica gets
its own certificate, its own key, and the CA's certificate.

Examples:
  regent tls init --dir ./peer-ca
  regent tls issue --dir ./peer-ca --replica 1 --cluster 2f6e63b8d1a04c57a3f4b0c9d8e7f601
  regent tls renew --dir ./peer-ca --replica 1";

/// Verbs of `regent tls`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum TlsVerb {
    /// Create a CA for the replicas of a cluster
    Init(InitArgs),
    /// Issue a certificate and a key for a replica
    Issue(IssueArgs),
    /// Issue another certificate for a replica that has one
    Renew(RenewArgs),
}

/// Flags of `regent tls init`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent tls init --dir ./peer-ca
  regent tls init --dir ./peer-ca --days 730")]
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

Examples:
  regent tls issue --dir ./peer-ca --replica 1 --cluster 2f6e63b8d1a04c57a3f4b0c9d8e7f601")]
pub(crate) struct IssueArgs {
    /// The directory of the CA
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The replica's number
    #[arg(long, value_name = "ID", value_parser = members::replica_id)]
    replica: ReplicaId,
    /// The cluster's id, in 32 hexadecimal digits
    #[arg(long, value_name = "CLUSTER", value_parser = cluster_id)]
    cluster: u128,
    /// For how many days the certificate is good
    #[arg(long, value_name = "N", default_value_t = 365)]
    days: u32,
}

/// Flags of `regent tls renew`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A running replica notices the new files by itself, within ten seconds or on SIGHUP.

Examples:
  regent tls renew --dir ./peer-ca --replica 1
  regent tls renew --dir ./peer-ca --replica 1 --days 90 --new-key")]
pub(crate) struct RenewArgs {
    /// The directory of the CA
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The replica's number
    #[arg(long, value_name = "ID", value_parser = members::replica_id)]
    replica: ReplicaId,
    /// For how many days the certificate is good
    #[arg(long, value_name = "N", default_value_t = 365)]
    days: u32,
    /// Make another key, too
    #[arg(long)]
    new_key: bool,
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
mod made {
    //! What the verbs make, and what they tell of it.

    use std::time::{Duration, UNIX_EPOCH};

    use regent_tls::authority::{self, Made};
    use regent_tls::{ReplicaName, TlsError};
    use serde::Serialize;

    use super::TlsVerb;
    use crate::exit::Exit;
    use crate::failure::{CommandResult, Failure};
    use crate::output::Screen;
    use crate::wall::wall_seconds;

    /// What was made, for people and programs.
    #[derive(Debug, Serialize)]
    struct Shown {
        certificate: String,
        key: String,
        ca: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        expires_at: String,
        #[serde(skip)]
        is_renewed: bool,
    }

    pub(super) fn run(verb: &TlsVerb) -> CommandResult {
        let now_s = wall_seconds()?;
        let made = match verb {
            TlsVerb::Init(args) => authority::init(&args.dir, args.days, now_s),
            TlsVerb::Issue(args) => {
                let name = ReplicaName { cluster: args.cluster, replica: args.replica.get() };
                authority::issue(&args.dir, name, args.days, now_s)
            }
            TlsVerb::Renew(args) => {
                let (dir, replica) = (&args.dir, args.replica.get());
                authority::renew(dir, replica, args.days, args.new_key, now_s)
            }
        };
        let made = made.map_err(failure)?;
        let is_renewed = matches!(verb, TlsVerb::Renew(_));
        let shown = Shown::of(&made, is_renewed);
        let screen = Screen::chosen();
        screen.answer(&shown, || shown.told(&made, now_s))?;
        Ok(Exit::Done)
    }

    impl Shown {
        fn of(made: &Made, is_renewed: bool) -> Self {
            let expires_at = UNIX_EPOCH + Duration::from_secs(made.expires_at_s);
            Self {
                certificate: made.certificate.display().to_string(),
                key: made.key.display().to_string(),
                ca: made.ca.display().to_string(),
                name: made.name.map(|name| name.to_string()),
                expires_at: humantime::format_rfc3339_seconds(expires_at).to_string(),
                is_renewed,
            }
        }

        fn told(&self, made: &Made, now_s: u64) -> String {
            let Self { certificate, key, ca, expires_at, .. } = self;
            let days = made.expires_at_s.saturating_sub(now_s) / (24 * 3600);
            let Some(name) = made.name else {
                return format!(
                    "{certificate}  certificate of the CA, good for {days} days (until {expires_at})\n\
                     {key}  key of the CA: keep it here, never on a server\n\n\
                     next, for every replica:\n  \
                     regent tls issue --dir DIR --replica ID --cluster CLUSTER"
                );
            };
            let (replica, is_renewed) = (name.replica, self.is_renewed);
            let about = format!(
                "{certificate}  certificate of {name}, good for {days} days (until {expires_at})"
            );
            let its_key = format!("{key}  its key: for replica {replica} only");
            match (is_renewed, made.is_key_new) {
                (false, _) => format!(
                    "{about}\n{its_key}\n\n\
                     copy both and {ca} to replica {replica}, the key readable by the server's user only; there:\n  \
                     regent serve --peer-cert replica-{replica}.crt --peer-key replica-{replica}.key --peer-ca ca.crt …"
                ),
                (true, true) => format!(
                    "{about}\n{its_key}\n\n\
                     copy both over the old ones of replica {replica}, which reads them within 10 s, or on SIGHUP"
                ),
                (true, false) => format!(
                    "{about}\n\n\
                     copy it over the old one of replica {replica}, which reads it within 10 s, or on SIGHUP"
                ),
            }
        }
    }

    fn failure(error: TlsError) -> Failure {
        let exit = match &error {
            TlsError::Exists { .. } | TlsError::OutlivesCa { .. } => Exit::Refused,
            TlsError::Days { .. } => Exit::Usage,
            TlsError::Cryptography(_) => Exit::Unavailable,
            TlsError::File { .. }
            | TlsError::Unfit(_)
            | TlsError::KeyIsOpen { .. }
            | TlsError::Malformed { .. }
            | TlsError::OtherName { .. }
            | TlsError::Refused { .. }
            | TlsError::Mismatch { .. } => Exit::Files,
        };
        Failure::new(exit, error.to_string())
    }
}
