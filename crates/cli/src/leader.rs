//! `regent leader`: who leads, and nothing else.

use clap::Args;
use regent_api::Consistency;
use regent_election::Group;
use regent_operate::unknown_group::{is_blank, must_exist};

use crate::client::ClientArgs;
use crate::exit::Exit;
use crate::failure::CommandResult;
use crate::output::{Output, Screen, facts, remark};
use regent_operate::show::office_facts;

const EXAMPLES: &str = "\
Examples:
  regent leader billing
  regent leader billing --verbose
  if [ \"$(regent leader billing)\" = \"$(hostname)\" ]; then echo we lead; fi";

/// Flags of `regent leader`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LeaderArgs {
    /// The group
    group: Group,
    /// Show the term, the state and the leader's metadata too
    #[arg(long, short)]
    verbose: bool,
    /// Take whatever the server knows, which may be old
    #[arg(long)]
    stale: bool,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Prints the leader. Nobody is an answer too: nothing is printed and the exit code is 1.
pub(crate) async fn run(args: LeaderArgs) -> CommandResult {
    let consistency = if args.stale { Consistency::Stale } else { Consistency::Linearizable };
    let remote = args.client.remote()?;
    let answer = remote.leader(&args.group, consistency).await?;
    if is_blank(&answer.office) {
        must_exist(&remote, &args.group).await?;
    }
    let leader = answer.office.leader.as_ref();
    match (args.verbose, leader) {
        (true, _) => {
            let unknown = answer.valid_for_unknown.iter();
            let mut about = office_facts(&answer.office);
            about.extend(unknown.map(|why| ("valid for", format!("unknown: {why}"))));
            Screen::chosen().answer(&answer, || facts(about))?;
        }
        (false, Some(leader)) => Screen::chosen().answer(&answer, || leader.to_string())?,
        (false, None) if Output::chosen() == Output::Json => {
            Screen::chosen().line(&crate::output::json(&answer))?;
        }
        (false, None) => {}
    }
    if let Some(to) = &answer.office.moved_to {
        remark(&format!("{} has moved to {to}; ask there", args.group));
    }
    Ok(if leader.is_some() { Exit::Done } else { Exit::No })
}
