//! `regent resign`: give a leadership up.

use clap::Args;
use regent_api::{Consistency, TenureRequest};
use regent_election::{Group, Term};
use regent_operate::retry::exactly_once;

use crate::client::{ClientArgs, is_shut_out};
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
    let bare = TenureRequest { session_id: known.session, term, request_id: None };
    // With a credential that is over nothing can be read any more, and so no request be named. Resigning a term twice
    // resigns it once.
    let read = remote.leader(&args.group, Consistency::Linearizable).await;
    if matches!(&read, Err(error) if is_shut_out(error)) {
        remote.resign(&args.group, &bare).await?;
        let done = regent_api::Done::YES;
        Screen::chosen().answer(&done, || format!("resigned {}, term {term}", args.group))?;
        return Ok(Exit::Done);
    }
    exactly_once(&remote, &args.group, async |request| {
        let request = TenureRequest { session_id: known.session, term, request_id: Some(request) };
        remote.resign(&args.group, &request).await
    })
    .await?;
    let done = regent_api::Done::YES;
    Screen::chosen().answer(&done, || format!("resigned {}, term {term}", args.group))?;
    Ok(Exit::Done)
}
