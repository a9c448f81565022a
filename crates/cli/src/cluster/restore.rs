//! `regent cluster restore`: a cluster from a backup, after everything else was lost.

use std::path::PathBuf;

use clap::Args;
use regent_election::Term;
use regent_replica::{Backup, ReplicaId};
use regent_service::{Restore, RestoredBy, cluster_id, members};

use super::founded::shown;
use crate::config::{Key, Origin};
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::logs::LogArgs;
use crate::output::{Output, Screen, json, remark};
use crate::settings::FoundingArgs;

/// Flags of `regent cluster restore`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent cluster restore --from regent.backup --id 1 --members 1=a:7401/a:7400 --data-dir ./data
  regent cluster restore --from b --id 1 --members 1=a:7401/a:7400,2=b:7401/b:7400,3=c:7401/c:7400

Terms leap ahead of all that were ever granted, and nothing is granted until the longest lease
of the earlier life is over. Stop what is left of the old cluster first: two clusters elect two
leaders. The first machine prints what to run on the others. --term-floor is for terms known from
elsewhere, from a fence for instance.

The wait is the longest ttl that the settings in the backup allow, an hour by default. --ttl-max
names the longest ttl that was really used: the wait is then as long as that, shorter or longer
than by the backup. If a lease was longer after all, two leaders are possible until it is over.
ttl_max in a settings file only makes the wait longer.")]
pub(crate) struct RestoreArgs {
    /// The backup
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Which replica this machine runs
    #[arg(long, value_name = "N", value_parser = members::replica_id)]
    id: ReplicaId,
    /// All founding members, the same list on every machine
    #[arg(long, value_name = "LIST")]
    members: String,
    /// A member that votes and keeps the log, but no state
    #[arg(long, value_name = "N", value_parser = members::replica_id, value_delimiter = ',')]
    witness: Vec<ReplicaId>,
    /// Terms start above this one at least
    #[arg(long, value_name = "TERM", default_value = "0", hide_default_value = true,
        value_parser = term)]
    term_floor: Term,
    /// The id that the first machine printed
    #[arg(long, value_name = "HEX", value_parser = cluster_id, requires = "as_of")]
    cluster_id: Option<u128>,
    /// The clock that the first machine printed
    #[arg(long, value_name = "SECONDS", requires = "cluster_id")]
    as_of: Option<u64>,
    #[command(flatten)]
    founding: FoundingArgs,
}

/// A term from text.
pub(super) fn term(text: &str) -> Result<Term, String> {
    let term = text.parse().ok().and_then(Term::new);
    term.ok_or_else(|| format!("{text:?} is no term; it is a whole number below 2^53"))
}

/// Founds one replica of the restored cluster.
pub(crate) fn run(args: RestoreArgs, log: &LogArgs) -> CommandResult {
    let effective = args.founding.clone().effective(log)?;
    let settings = effective.settings()?;
    let members = members::parse(&args.members, &args.witness)
        .map_err(|why| Failure::usage(format!("--members: {why}")))?;
    if !members.contains_key(&args.id) {
        return Err(Failure::usage(format!("--id {} is not in the list of --members", args.id)));
    }
    let bytes = std::fs::read(&args.from).map_err(|error| Failure::file(&args.from, &error))?;
    let backup = Backup::decode(&bytes)
        .map_err(|error| Failure::new(Exit::Files, format!("{}: {error}", args.from.display())))?;
    let ttl_ms = settings.store_settings.ttl_ms_ceiling;
    let (ttl_ms_max, may_shorten) = match effective.origin(Key::TtlMax) {
        Origin::Default => (None, false),
        Origin::Flag(_) => (Some(ttl_ms), true),
        Origin::Variable(_) | Origin::Line(..) => (Some(ttl_ms), false),
    };
    let restore = Restore {
        backup,
        replica: args.id,
        members,
        term_floor: args.term_floor,
        ttl_ms_max,
        may_shorten,
        of_first: args.cluster_id.zip(args.as_of),
    };
    let restored = restore.found(&settings.data_dir, settings.replica.disk)?;
    for warning in &restored.founded.warnings {
        remark(&format!("warning: {warning}"));
    }
    let screen = Screen::chosen();
    match Output::chosen() {
        Output::Json => screen.line(&json(&serde_json::json!({
            "founded": restored.founded,
            "earlier_cluster_id": format!("{:032x}", restored.earlier_cluster),
            "as_of": restored.as_of_s,
            "hold_ms": restored.hold_ms,
            "hold_ms_of_backup": restored.hold_ms_of_backup,
        })))?,
        Output::Text => {
            let steps = restored.next_steps(RestoredBy {
                from: &args.from.display().to_string(),
                term_floor: args.term_floor,
                is_first: args.cluster_id.is_none(),
            });
            screen.line(&format!("{}{steps}", shown(&restored.founded)))?;
        }
    }
    Ok(Exit::Done)
}
