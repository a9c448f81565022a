//! `regent resign`: give a leadership up.

use clap::Args;
use regent_api::TenureRequest;
use regent_election::{Group, Term};
use regent_operate::retry::given_up_once;

use crate::client::ClientArgs;
use crate::exit::Exit;
use crate::failure::CommandResult;
use crate::output::Screen;
use crate::secret::SessionArgs;
use regent_election::term::parse_term;

const EXAMPLES: &str = "\
Examples:
  regent resign billing --session-file web-1.session
  REGENT_SESSION=… regent resign billing --term 7

Stop the work first: the next leader starts the moment this is answered.";

/// Flags of `regent resign`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ResignArgs {
    /// The group
    group: Group,
    /// The term that is held; a session file knows it
    #[arg(long, value_parser = parse_term)]
    term: Option<Term>,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Resigns. The term leaves the session file before it is sent: from then on nobody may act on it,
/// whatever the answer.
pub(crate) async fn run(args: ResignArgs) -> CommandResult {
    let (mut known, term) = args.session.require_term(&args.group, args.term)?;
    let remote = args.client.remote()?;
    known.forget(&args.group)?;
    given_up_once(&remote, &args.group, async |request_id| {
        let request = TenureRequest { session_id: known.session, term, request_id };
        remote.resign(&args.group, &request).await
    })
    .await?;
    let done = regent_api::Done::YES;
    Screen::chosen().answer(&done, || format!("resigned {}, term {term}", args.group))?;
    Ok(Exit::Done)
}
