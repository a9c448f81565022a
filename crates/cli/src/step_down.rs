//! `regent step-down`: an operator ends a leadership.

use clap::Args;
use regent_api::StepDownRequest;
use regent_election::{Group, Node, Reason};
use regent_operate::retry::exactly_once;

use crate::client::ClientArgs;
use crate::confirm::confirm;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::Screen;
use regent_operate::show::stepped_down;

const EXAMPLES: &str = "\
Examples:
  regent step-down billing --reason 'kernel update on web-1'
  regent step-down billing --reason 'moving to the new zone' --to web-2
  regent step-down billing --reason 'web-1 hangs and does not stop' --immediate --yes

Without --immediate the leader is told and has one ttl to stop, so nobody overlaps. With it the
office is free at once: the old leader may go on acting for a while, and only fencing protects.";

/// Flags of `regent step-down`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StepDownArgs {
    /// The group
    group: Group,
    /// Why, in a few words; the history keeps it
    #[arg(long)]
    reason: String,
    /// The standby that shall follow
    #[arg(long, value_name = "NODE")]
    to: Option<Node>,
    /// Break glass: do not wait for the leader to stop
    #[arg(long)]
    immediate: bool,
    /// Do not ask back
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Ends a tenure, exactly once.
pub(crate) async fn run(args: StepDownArgs) -> CommandResult {
    let reason = Reason::new(&args.reason)?;
    if reason.as_str().trim().is_empty() {
        return Err(Failure::usage("--reason must say something: the history keeps it"));
    }
    if args.immediate {
        let warning = format!(
            "the leader of {} may go on acting after the next one has begun, and only fencing protects",
            args.group
        );
        confirm(args.yes, &warning)?;
    }
    let remote = args.client.remote()?;
    let ended = exactly_once(&remote, &args.group, async |request| {
        let request = StepDownRequest {
            reason: reason.clone(),
            to: args.to.clone(),
            immediate: args.immediate,
            request_id: Some(request),
        };
        remote.step_down(&args.group, &request).await
    })
    .await?;
    Screen::chosen().answer(&ended, || stepped_down(args.group.as_str(), ended))?;
    Ok(Exit::Done)
}
