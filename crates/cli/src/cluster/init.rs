//! `regent cluster init`: prepares the data directory of one replica.

use clap::Args;
use regent_replica::ReplicaId;
use regent_service::{bootstrap, cluster_id, join_steps, members, prepare_to_join};

use super::founded::shown;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::logs::LogArgs;
use crate::output::{Output, Screen, json, remark};
use crate::settings::FoundingArgs;

const EXAMPLES: &str = "\
Examples:
  regent cluster init --id 1 --members 1=a:7401/a:7400,2=b:7401/b:7400,3=c:7401/c:7400
  regent cluster init --id 1 --members 1=a:7401/a:7400 --data-dir ./data
  regent cluster init --id 3 --members 1=a:7401/a:7400,2=b:7401/b:7400,3=c:7401/c:7400 --witness 3
  regent cluster init --join --id 4 --cluster-id 0123456789abcdef0123456789abcdef

A member is NUMBER=HOST:PORT/HOST:PORT: where the others reach it, and where clients do.
The first machine draws the cluster's id; give the one it prints to the others with --cluster-id.
A replica that lost its disk must not be founded again: it has forgotten for whom it voted. Remove
it from the cluster and let it join under another number.";

/// Flags of `regent cluster init`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InitArgs {
    /// Which replica this machine runs
    #[arg(long, value_name = "N", value_parser = members::replica_id)]
    id: ReplicaId,
    /// All founding members, the same list on every machine
    #[arg(long, value_name = "LIST", required_unless_present = "join", conflicts_with = "join")]
    members: Option<String>,
    /// A member that votes and keeps the log, but no state
    #[arg(long, value_name = "N", value_parser = members::replica_id, value_delimiter = ',',
        conflicts_with = "join")]
    witness: Vec<ReplicaId>,
    /// The id that the first machine printed
    #[arg(long, value_name = "HEX", value_parser = cluster_id, required_if_eq("join", "true"))]
    cluster_id: Option<u128>,
    /// Prepare a replica that joins a cluster: it learns before it votes
    #[arg(long)]
    join: bool,
    #[command(flatten)]
    founding: FoundingArgs,
}

/// Founds one replica.
pub(crate) fn run(args: InitArgs, log: &LogArgs) -> CommandResult {
    let settings = args.founding.resolve(log)?;
    let directory = &settings.data_dir;
    let screen = Screen::chosen();
    if args.join {
        let cluster = args.cluster_id.expect("the parser demands it of those who join");
        prepare_to_join(directory, cluster, args.id, settings.replica.disk)?;
        let told = serde_json::json!({
            "cluster_id": format!("{cluster:032x}"),
            "replica": args.id.get(),
            "data_dir": directory.display().to_string(),
        });
        let shown = || join_steps(args.id, &directory.display().to_string());
        screen.answer(&told, shown)?;
        return Ok(Exit::Done);
    }
    let list = args.members.as_deref().expect("the parser demands it of those who do not join");
    let members = members::parse(list, &args.witness)
        .map_err(|why| Failure::usage(format!("--members: {why}")))?;
    if !members.contains_key(&args.id) {
        return Err(Failure::usage(format!("--id {} is not in the list of --members", args.id)));
    }
    let (id, disk) = (args.id, settings.replica.disk);
    let founded =
        bootstrap(directory, id, &members, settings.store_settings, args.cluster_id, disk)?;
    for warning in &founded.warnings {
        remark(&format!("warning: {warning}"));
    }
    match Output::chosen() {
        Output::Json => screen.line(&json(&founded))?,
        Output::Text => {
            let steps = founded.next_steps(args.cluster_id.is_none(), &members);
            screen.line(&format!("{}{steps}", shown(&founded)))?;
        }
    }
    Ok(Exit::Done)
}
