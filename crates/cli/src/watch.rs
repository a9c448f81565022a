//! `regent watch`: one line per change of who leads, through any number of broken connections.

use clap::Args;
use regent::remote::{RemoteError, Scope, Watched};
use regent_api::WatchEvent;
use regent_election::{Cursor, Group};
use regent_operate::unknown_group::must_exist;
use regent_operate::watch_lines::{Received, lines};

use crate::client::ClientArgs;
use crate::duration::show;
use crate::exit::Exit;
use crate::failure::CommandResult;
use crate::output::{Output, Screen, json, remark};
use crate::wall::stamp;

const EXAMPLES: &str = "\
Examples:
  regent watch billing
  regent watch billing invoices
  regent watch --prefix team-a/
  regent watch                                      # every group
  regent watch billing --output json | while read -r event; do …; done

It resumes by itself after a broken connection: every change comes once and in order, or a gap
says that some are forgotten. The times are when this command heard of it; `regent history` has
the store's own.";

/// Flags of `regent watch`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WatchArgs {
    /// The groups; none means all
    #[arg(conflicts_with = "prefix", value_name = "GROUP")]
    groups: Vec<Group>,
    /// Every group whose name opens with this
    #[arg(long)]
    prefix: Option<String>,
    /// Begin after this place, taken from the `cursor` of an answer
    #[arg(long)]
    cursor: Option<Cursor>,
    /// End after this many changes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Prints until it is interrupted, or until `--count` changes were seen.
pub(crate) async fn run(args: WatchArgs) -> CommandResult {
    let scope = match (args.groups.as_slice(), args.prefix) {
        ([], prefix) => Scope::Prefix(prefix.unwrap_or_default()),
        ([group], _) => Scope::Group(group.clone()),
        (groups, _) => Scope::Groups(groups.to_vec()),
    };
    let (screen, remote) = (Screen::chosen(), args.client.remote()?);
    for group in &args.groups {
        // A watch may well come before the first campaign, which creates the group.
        if let Err(RemoteError::Refused(unknown)) = must_exist(&remote, group).await {
            let meant = unknown.facts.did_you_mean.map(|name| format!(" (did you mean {name}?)"));
            let meant = meant.unwrap_or_default();
            remark(&format!(
                "there is no group {group} yet{meant}; waiting for its first campaign"
            ));
        }
    }
    let mut watch = remote.watch(scope, args.cursor);
    let mut left = args.count;
    while left != Some(0) {
        match watch.next().await? {
            Watched::Event(event) => {
                match screen.output {
                    Output::Json => screen.line(&json(&Received::new(&event, stamp())))?,
                    Output::Text => {
                        for line in lines(&event) {
                            screen.line(&format!("{}  {line}", stamp()))?;
                        }
                    }
                }
                if matches!(*event, WatchEvent::LeaderChanged(_)) {
                    left = left.map(|left| left - 1);
                }
            }
            Watched::Interrupted { why, retry_in } => {
                remark(&format!("{why}; watching again in {}", show(retry_in)));
            }
        }
    }
    Ok(Exit::Done)
}
