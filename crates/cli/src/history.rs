//! `regent history`: the last changes of a group, and why they came about.

use clap::Args;
use regent_election::Group;
use regent_operate::unknown_group::explained;

use crate::client::ClientArgs;
use crate::exit::Exit;
use crate::failure::CommandResult;
use crate::output::{Screen, Side, or_dash, table};

const EXAMPLES: &str = "\
Examples:
  regent history billing
  regent history billing --output json

The times are notes of the store's own wall clock; order is by revision.";

/// Flags of `regent history`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HistoryArgs {
    /// The group
    group: Group,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Prints the changes, oldest first.
pub(crate) async fn run(args: HistoryArgs) -> CommandResult {
    let remote = args.client.remote()?;
    let answer = explained(&remote, &args.group, remote.history(&args.group).await).await?;
    Screen::chosen().answer(&answer, || {
        if answer.changes.is_empty() {
            return format!("nothing has happened in {} yet", args.group);
        }
        let rows = answer.changes.iter().map(|change| {
            vec![
                change.revision.to_string(),
                or_dash(change.at.as_ref()),
                change.term.to_string(),
                or_dash(change.leader.as_ref()),
                change.cause.to_string(),
                or_dash(change.reason.as_ref()),
            ]
        });
        let head = [
            ("revision", Side::Right),
            ("at", Side::Left),
            ("term", Side::Right),
            ("leader", Side::Left),
            ("cause", Side::Left),
            ("reason", Side::Left),
        ];
        table(&head, rows.collect())
    })?;
    Ok(Exit::Done)
}
