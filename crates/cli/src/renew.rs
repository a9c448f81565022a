//! `regent renew`: keep a leadership alive and prove it.

use std::time::Duration;

use clap::Args;
use regent_api::RenewRequest;
use regent_election::{Group, Term};
use regent_operate::campaign::{SafeAnswer, renew};

use crate::client::ClientArgs;
use crate::duration::{millis, parse, show};
use crate::exit::Exit;
use crate::failure::CommandResult;
use crate::output::Screen;
use crate::secret::SessionArgs;
use regent_election::term::parse_term;

const EXAMPLES: &str = "\
Examples:
  regent renew billing --session-file web-1.session
  REGENT_SESSION=… regent renew billing --term 7
  regent renew billing --session-file web-1.session --extend-by 30s

Anything but exit code 0 means: stop leading at once, or before the last renewal runs out.";

/// Flags of `regent renew`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RenewArgs {
    /// The group
    group: Group,
    /// The term that is held; a session file knows it
    #[arg(long, value_parser = parse_term)]
    term: Option<Term>,
    /// Change the session's ttl to this
    #[arg(long, value_name = "DURATION", value_parser = parse)]
    extend_by: Option<Duration>,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Renews once.
pub(crate) async fn run(args: RenewArgs) -> CommandResult {
    let (known, term) = args.session.require_term(&args.group, args.term)?;
    let extend_by_ms = args.extend_by.map(millis);
    let request = RenewRequest { session_id: known.session, term, extend_by_ms };
    let (heard, left) = renew(&args.client.remote()?, &args.group, &request).await?;
    Screen::chosen().answer(&SafeAnswer::new(&heard, left), || {
        format!("renewed {}, term {term}, valid for {} unless renewed", args.group, show(left))
    })?;
    Ok(Exit::Done)
}
