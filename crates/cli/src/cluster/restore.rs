//! `regent cluster restore`: a cluster from a backup, after everything else was lost.
//!
//! Whatever was granted after the backup is not in it, so every term leaps ahead of anything that can
//! have been granted, the cluster gets another id, and nothing is granted until the longest lease of
//! the earlier life is over (semantics 23).
//!
//! How far terms leap depends on the clock, and all founding members must leap equally. So the first
//! machine reads its clock, and the others are given what it read (`--as-of`), but only for as long as
//! the restored cluster cannot have granted anything: later, the same command would be a second
//! restore of the same backup, with the same terms.

use std::path::PathBuf;

use clap::Args;
use regent_election::Term;
use regent_replica::disk::Founding;
use regent_replica::{Backup, ReplicaId};

use super::founding::{self, Founded};
use super::members;
use super::port::wall_s;
use crate::config::{Key, Origin};
use crate::duration::show_ms;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::logs::LogArgs;
use crate::output::{Output, Screen, json, remark};
use crate::settings::FoundingArgs;

/// Longest time between the restore of the first replica and that of the last, in seconds.
const TOGETHER_S_MAX: u64 = 3600;

/// Flags of `regent cluster restore`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent cluster restore --from regent.backup --id 1 --members 1=a:7401/a:7400 --data-dir ./data
  regent cluster restore --from b --id 1 --members 1=a:7401/a:7400,2=b:7401/b:7400,3=c:7401/c:7400

Terms leap ahead of all that were ever granted, and nothing is granted until the longest lease
of the earlier life is over. Stop what is left of the old cluster first: two clusters elect two
leaders. The first machine prints what to run on the others. --term-floor is for terms known from
elsewhere, from a fence for instance. If the longest ttl was raised after the backup was taken,
say so with --ttl-max: leases as long as that may still run.")]
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
    #[arg(long, value_name = "HEX", value_parser = founding::cluster_id, requires = "as_of")]
    cluster_id: Option<u128>,
    /// The clock that the first machine printed
    #[arg(long, value_name = "SECONDS", requires = "cluster_id")]
    as_of: Option<u64>,
    #[command(flatten)]
    founding: FoundingArgs,
    /// For people or for programs
    #[arg(long, short, env = "REGENT_OUTPUT", value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// A term from text.
pub(super) fn term(text: &str) -> Result<Term, String> {
    let term = text.parse().ok().and_then(Term::new);
    term.ok_or_else(|| format!("{text:?} is no term; it is a whole number below 2^53"))
}

/// Founds one replica of the restored cluster.
pub(crate) fn run(args: RestoreArgs, log: &LogArgs) -> Outcome {
    let effective = args.founding.effective(log)?;
    let settings = effective.settings()?;
    let members = members::parse(&args.members, &args.witness)
        .map_err(|why| Failure::usage(format!("--members: {why}")))?;
    if !members.contains_key(&args.id) {
        return Err(Failure::usage(format!("--id {} is not in the list of --members", args.id)));
    }
    let bytes = std::fs::read(&args.from).map_err(|error| Failure::file(&args.from, &error))?;
    let backup = Backup::decode(&bytes)
        .map_err(|error| Failure::new(Exit::Files, format!("{}: {error}", args.from.display())))?;
    // A ceiling that was raised after the backup was taken is not in it.
    let said_ms = match effective.origin(Key::TtlMax) {
        Origin::Default => None,
        Origin::Flag(_) | Origin::Variable(_) | Origin::Line(..) => {
            Some(settings.store_settings.ttl_ms_ceiling)
        }
    };
    let backup = backup
        .with_ttls_up_to(said_ms.unwrap_or(0))
        .map_err(|refusal| Failure::new(Exit::Config, refusal.to_string()))?;
    let (now_s, earlier) = (wall_s(), backup.cluster);
    let as_of_s = args.as_of.unwrap_or(now_s);
    let whole = backup
        .restored(members, as_of_s, args.term_floor)
        .map_err(|error| Failure::new(Exit::Refused, error.to_string()))?;
    let hold_ms = whole.state.settings().ttl_ms_ceiling;
    check_together(as_of_s, now_s, hold_ms)?;
    let cluster = founding::id_for(&whole, args.cluster_id)?;
    let is_witness = whole.members.get(&args.id).is_some_and(|member| member.is_witness);
    let kept = if is_witness { whole.clone().without_state() } else { whole.clone() };
    let first = Founding::restored(kept);
    founding::found(&settings.data_dir, cluster, args.id, &first, settings.replica.disk)?;
    let founded = Founded::new(cluster, args.id, &settings.data_dir, &whole);
    for warning in &founded.warnings {
        remark(&format!("warning: {warning}"));
    }
    let screen = Screen { output: args.output };
    match args.output {
        Output::Json => {
            let told = serde_json::json!({
                "founded": founded, "earlier_cluster_id": format!("{earlier:032x}"),
                "as_of": as_of_s, "hold_ms": hold_ms,
            });
            screen.line(&json(&told))?;
        }
        Output::Text => {
            let mut text = founded.facts();
            if args.cluster_id.is_none() && founded.voters > 1 {
                let longest = said_ms.map(|ms| format!(" --ttl-max {ms}ms")).unwrap_or_default();
                let within = show_ms(together_s(hold_ms) * 1000);
                text.push_str(&format!("\n\non the other machines, within {within}:"));
                for id in founded.others() {
                    text.push_str(&format!(
                        "\n  regent cluster restore --from {} --id {id} --members {}{} --term-floor {} --cluster-id {} --as-of {as_of_s}{longest}",
                        args.from.display(),
                        founded.members,
                        founded.witness_flag(),
                        args.term_floor.get(),
                        founded.cluster_id
                    ));
                }
            }
            text.push_str(&format!(
                "\n\nthe restored cluster grants nothing for {} after it starts: leases of the earlier one may still run",
                show_ms(hold_ms)
            ));
            screen.line(&text)?;
        }
    }
    Ok(Exit::Done)
}

/// For how long the same restore may be done on further machines, in seconds.
fn together_s(hold_ms: u64) -> u64 {
    TOGETHER_S_MAX.min(hold_ms / 1000)
}

/// Refuses what would be a second restore with the terms of the first. Within the hold, the first
/// one cannot have granted any.
fn check_together(as_of_s: u64, now_s: u64, hold_ms: u64) -> Result<(), Failure> {
    let apart_s = now_s.abs_diff(as_of_s);
    let may_s = together_s(hold_ms);
    if apart_s <= may_s {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Refused,
        format!(
            "the restore began {apart_s} s away from this clock, and all replicas must be restored within {may_s} s, before the first of them may grant a term: begin again on an empty directory without --as-of, or let this replica join (`regent cluster init --join`)"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_restore_ends_before_the_restored_cluster_may_grant_anything() {
        assert!(check_together(1000, 1000, 0).is_ok());
        assert!(check_together(1000, 1010, 10_000).is_ok());
        assert!(check_together(1000, 1011, 10_000).is_err());
        assert!(check_together(1011, 1000, 10_000).is_err());
        assert!(check_together(0, 3600, u64::MAX).is_ok());
        assert!(check_together(0, 3601, u64::MAX).is_err());
    }
}
