//! `regent cluster recover`: break glass, when the quorum is gone for good.

use std::path::PathBuf;

use clap::Args;
use regent_election::Term;
use regent_service::{Recovery, Survivor};

use super::founded::shown;
use super::restore::term;
use crate::duration::show_ms;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Output, Screen, json, remark};

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
}

/// Founds a cluster of one from what one replica remembers.
pub(crate) fn run(args: RecoverArgs) -> CommandResult {
    if !args.yes_i_lost_the_quorum {
        return Err(Failure::usage(
            "whatever this replica has not heard of is lost for good, and should the others return, two clusters elect two leaders; if the quorum is lost and the others are destroyed, add --yes-i-lost-the-quorum",
        ));
    }
    if args.into == args.data_dir {
        return Err(Failure::usage("--into must name another, empty directory"));
    }
    let survivor = Survivor::read(&args.data_dir)?;
    remark("WARNING: break glass: a cluster of one is made of what one replica remembers");
    let unproved = survivor.unproved;
    if unproved > 0 {
        remark(&format!(
            "WARNING: {unproved} changes at its end were not known to be committed; they are kept, since some may have been acknowledged"
        ));
    }
    let Recovery { founded, hold_ms } = survivor.found(&args.into, args.term_floor)?;
    let screen = Screen::chosen();
    match Output::chosen() {
        Output::Json => screen.line(&json(&serde_json::json!({
            "founded": founded, "hold_ms": hold_ms, "unproved_changes": unproved,
        })))?,
        Output::Text => screen.line(&format!(
            "{}\n\nserve it from {}; it grants nothing for {} after it starts: leases of the lost cluster may still run\nthen let others join: `regent cluster init --join`, `regent cluster add`",
            shown(&founded),
            args.into.display(),
            show_ms(hold_ms)
        ))?,
    }
    Ok(Exit::Done)
}
