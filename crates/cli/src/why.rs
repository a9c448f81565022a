//! `regent why`: why a group is led as it is.

use clap::Args;
use regent_election::Group;
use regent_operate::unknown_group::explained;
use regent_operate::why::explain;

use crate::client::ClientArgs;
use crate::exit::Exit;
use crate::failure::CommandResult;
use crate::output::Screen;

/// Flags of `regent why`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent why billing
  regent why billing --output json

It explains the last change that the store keeps; `regent history` lists all of those, and `regent
record` what a replica has recorded.")]
pub(crate) struct WhyArgs {
    /// The group
    group: Group,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Explains the last change.
pub(crate) async fn run(args: WhyArgs) -> CommandResult {
    let remote = args.client.remote()?;
    let history = explained(&remote, &args.group, remote.history(&args.group).await).await?;
    let explanation = explain(&history);
    Screen::chosen().answer(&explanation, || match &explanation {
        Some(explanation) => explanation.lines(),
        None => format!("nothing has happened in {} yet", args.group),
    })?;
    Ok(Exit::Done)
}
