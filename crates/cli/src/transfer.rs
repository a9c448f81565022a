//! `regent transfer`: hand a leadership to a named standby.

use clap::Args;
use regent_api::HandOverRequest;
use regent_election::{Group, Node, Term};
use regent_operate::retry::exactly_once;

use crate::client::ClientArgs;
use crate::exit::Exit;
use crate::failure::CommandResult;
use crate::output::Screen;
use crate::secret::SessionArgs;
use regent_election::term::parse_term;

const EXAMPLES: &str = "\
Examples:
  regent transfer billing --to web-2 --session-file web-1.session
  REGENT_SESSION=… regent transfer billing --to web-2 --term 7

Stop the work first: the successor starts the moment this is answered. If it is refused because
the successor does not stand there, nothing has changed and you still lead.";

/// Flags of `regent transfer`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TransferArgs {
    /// The group
    group: Group,
    /// The node that shall lead; it must stand in the group
    #[arg(long, value_name = "NODE")]
    to: Node,
    /// The term that is held; a session file knows it
    #[arg(long, value_parser = parse_term)]
    term: Option<Term>,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Hands over. A refusal leaves everything as it was, so the session file keeps the term until the
/// hand-over is done; if the outcome is uncertain the caller has stopped anyway.
pub(crate) async fn run(args: TransferArgs) -> CommandResult {
    let (mut known, term) = args.session.require_term(&args.group, args.term)?;
    let remote = args.client.remote()?;
    exactly_once(&remote, &args.group, async |request| {
        let request = HandOverRequest {
            session_id: known.session,
            term,
            to: args.to.clone(),
            request_id: Some(request),
        };
        remote.transfer(&args.group, &request).await
    })
    .await?;
    known.forget(&args.group)?;
    let done = regent_api::Done::YES;
    Screen::chosen().answer(&done, || {
        format!("handed {} over to {}; term {term} is over", args.group, args.to)
    })?;
    Ok(Exit::Done)
}
