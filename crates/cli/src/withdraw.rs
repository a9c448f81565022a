//! `regent withdraw`: leave the line, or the office.

use clap::Args;
use regent_api::WithdrawRequest;
use regent_election::Group;
use regent_operate::retry::given_up_once;

use crate::client::ClientArgs;
use crate::exit::Exit;
use crate::failure::CommandResult;
use crate::output::Screen;
use crate::secret::SessionArgs;

const EXAMPLES: &str = "\
Examples:
  regent withdraw billing --session-file web-1.session

A leader stops its work first: the next one starts the moment this is answered.";

/// Flags of `regent withdraw`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WithdrawArgs {
    /// The group
    group: Group,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Withdraws; done already if the session neither stands nor leads.
pub(crate) async fn run(args: WithdrawArgs) -> CommandResult {
    let mut known = args.session.require()?;
    let remote = args.client.remote()?;
    known.forget(&args.group)?;
    given_up_once(&remote, &args.group, async |request_id| {
        let request = WithdrawRequest { session_id: known.session, request_id };
        remote.withdraw(&args.group, &request).await
    })
    .await?;
    let done = regent_api::Done::YES;
    Screen::chosen().answer(&done, || format!("withdrew from {}", args.group))?;
    Ok(Exit::Done)
}
