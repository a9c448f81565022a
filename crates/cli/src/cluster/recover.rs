//! `regent cluster recover`: break glass, when the quorum is gone for good.
//!
//! What one surviving replica remembers becomes a cluster of one with another id, like a restored
//! backup: terms leap, sessions are gone, nothing is granted while old leases may run. Whatever the
//! survivor had not heard of is lost, which is why no cluster does this by itself.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use regent_election::Term;
use regent_replica::disk::{Disk, Founding, Opened, Options};
use regent_replica::replicated::{Payload, payload};
use regent_replica::{Backup, Members};

use super::founding::{self, Founded};
use super::port::wall_s;
use super::restore::term;
use crate::duration::show_ms;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Screen, json, remark};
use crate::replica::{files, refused};

/// Flags of `regent cluster recover`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent cluster recover --data-dir ./data --into ./recovered --yes-i-lost-the-quorum

For when so many replicas are lost for good that the rest can never decide again. Prefer a replica
that comes back, even late. Destroy the others first: should they return with their data, two
clusters would elect two leaders. The surviving directory is read and kept as it is.")]
pub(crate) struct RecoverArgs {
    /// The directory of the surviving replica, which must not run
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// An empty directory for the recovered cluster of one
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Terms start above this one at least
    #[arg(long, value_name = "TERM", default_value = "0", hide_default_value = true,
        value_parser = term)]
    term_floor: Term,
    /// The quorum is lost for good, and the other replicas are destroyed
    #[arg(long)]
    yes_i_lost_the_quorum: bool,
    /// For people or for programs
    #[arg(long, short, env = "REGENT_OUTPUT", value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// Founds a cluster of one from what one replica remembers.
pub(crate) fn run(args: RecoverArgs) -> Outcome {
    if !args.yes_i_lost_the_quorum {
        return Err(Failure::usage(
            "whatever this replica has not heard of is lost for good, and should the others return, two clusters elect two leaders; if the quorum is lost and the others are destroyed, add --yes-i-lost-the-quorum",
        ));
    }
    if args.into == args.data_dir {
        return Err(Failure::usage("--into must name another, empty directory"));
    }
    let survived = read(&args)?;
    remark("WARNING: break glass: a cluster of one is made of what one replica remembers");
    let Survived { backup, own, unproved, replica } = survived;
    if unproved > 0 {
        remark(&format!(
            "WARNING: {unproved} changes at its end were not known to be committed; they are kept, since some may have been acknowledged"
        ));
    }
    let whole = backup
        .restored(own, wall_s(), args.term_floor)
        .map_err(|error| Failure::new(Exit::Refused, error.to_string()))?;
    let cluster = founding::id_for(&whole, None)?;
    let first = Founding::restored(whole.clone());
    founding::found(&args.into, cluster, replica, &first, Options::default())?;
    let founded = Founded::new(cluster, replica, &args.into, &whole);
    let hold_ms = whole.state.settings().ttl_ms_ceiling;
    let screen = Screen { output: args.output };
    match args.output {
        Output::Json => screen.line(&json(&serde_json::json!({
            "founded": founded, "hold_ms": hold_ms, "unproved_changes": unproved,
        })))?,
        Output::Text => screen.line(&format!(
            "{}\n\nserve it from {}; it grants nothing for {} after it starts: leases of the lost cluster may still run\nthen let others join: `regent cluster init --join`, `regent cluster add`",
            founded.facts(),
            args.into.display(),
            show_ms(hold_ms)
        ))?,
    }
    Ok(Exit::Done)
}

struct Survived {
    backup: Backup,
    /// This replica as the only member.
    own: Members,
    replica: regent_replica::ReplicaId,
    /// Changes that were not known to be committed.
    unproved: usize,
}

fn read(args: &RecoverArgs) -> Result<Survived, Failure> {
    if !args.data_dir.is_dir() {
        let why = format!("{} is no directory", args.data_dir.display());
        return Err(Failure::new(Exit::Files, why));
    }
    let opened = Disk::open(Arc::new(files(&args.data_dir)?), Options::default());
    let Opened { identity, recovered, .. } = opened.map_err(|error| refused(&error))?;
    let mut whole = recovered.whole;
    let (mut index, mut wall_ms) = (recovered.place.index, 0);
    for entry in &recovered.entries {
        let nonsense = |error| {
            Failure::new(Exit::Files, format!("entry {} makes no sense: {error}", entry.index))
        };
        if let Payload::Proposal(_, proposal) = payload(entry).map_err(nonsense)? {
            wall_ms = proposal.wall_ms.max(wall_ms);
        }
        whole.replay(entry).map_err(nonsense)?;
        index = entry.index;
    }
    let unproved = index.saturating_sub(recovered.hard_state.commit.max(recovered.place.index));
    let Some(own) = whole.members.get(&identity.replica).cloned() else {
        let why = "this replica had not joined its cluster yet; it remembers nothing";
        return Err(Failure::new(Exit::Refused, why));
    };
    if own.is_witness {
        let why = "this replica is a witness: it kept no state to recover from";
        return Err(Failure::new(Exit::Refused, why));
    }
    Ok(Survived {
        own: Members::from([(identity.replica, own)]),
        replica: identity.replica,
        unproved: usize::try_from(unproved).unwrap_or(usize::MAX),
        backup: Backup::of(identity.cluster, index, wall_ms / 1000, whole),
    })
}
