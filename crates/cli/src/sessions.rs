//! `regent session`: the unit of liveness, by hand.

use std::time::Duration;

use clap::{Args, Subcommand};
use regent::fresh;
use regent::remote::SessionFile;
use regent_api::{CloseSessionRequest, HeartbeatRequest, OpenSessionRequest, ShowSessionRequest};
use regent_election::Node;

use crate::client::ClientArgs;
use crate::duration::{millis, parse, show_ms};
use crate::exit::Exit;
use crate::failure::CommandResult;
use crate::output::Screen;
use crate::secret::{self, Holder, SessionArgs};
use regent_operate::show::session;

const EXAMPLES: &str = "\
Examples:
  regent session open --node web-1 --ttl 10s --session-file web-1.session
  regent session heartbeat --session-file web-1.session
  regent session show --session-file web-1.session
  regent session close --session-file web-1.session";

/// Verbs of `regent session`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum SessionVerb {
    /// Open a session
    Open(OpenArgs),
    /// Keep a session and everything it leads alive
    Heartbeat(OneArgs),
    /// Show what a session leads and where it stands
    Show(OneArgs),
    /// End a session: it resigns everything it leads
    Close(OneArgs),
}

/// Flags of `regent session open`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent session open --node web-1 --ttl 10s --session-file web-1.session")]
pub(crate) struct OpenArgs {
    /// The participant's name
    #[arg(long)]
    node: Node,
    /// How long the session lives unheard [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = parse)]
    ttl: Option<Duration>,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Flags of the verbs about an open session.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent session show --session-file web-1.session
  REGENT_SESSION=… regent session heartbeat")]
pub(crate) struct OneArgs {
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Runs one of the verbs.
pub(crate) async fn run(verb: SessionVerb) -> CommandResult {
    match verb {
        SessionVerb::Open(args) => open(args).await,
        SessionVerb::Heartbeat(args) => heartbeat(args).await,
        SessionVerb::Show(args) => show(args).await,
        SessionVerb::Close(args) => close(args).await,
    }
}

async fn open(args: OpenArgs) -> CommandResult {
    let remote = args.client.remote()?;
    let (secret, shown) = match args.session.holder()? {
        Holder::Nobody => (fresh::session_id()?, None),
        Holder::Given(secret) => (secret, Some("the one given".to_owned())),
        Holder::File(path) => {
            let shown = Some(format!("in {}", path.display()));
            match secret::read(&path)? {
                Some(record) => (record.session, shown),
                None => {
                    // The file comes first: a secret that was sent and then lost would keep its
                    // session open with nobody to end it.
                    let record = SessionFile::of(fresh::session_id()?);
                    record.write(&path)?;
                    (record.session, shown)
                }
            }
        }
    };
    let request = OpenSessionRequest {
        node_id: args.node,
        ttl_ms: args.ttl.map(millis),
        session_id: Some(secret),
    };
    let answer = remote.open_session(&request).await?;
    Screen::chosen().answer(&answer, || {
        let name = shown.unwrap_or_else(|| format!("{} (keep it secret)", secret.reveal()));
        session(&answer, Some(name))
    })?;
    Ok(Exit::Done)
}

async fn heartbeat(args: OneArgs) -> CommandResult {
    let session_id = args.session.require()?.session;
    let request =
        HeartbeatRequest { session_id, sequence: None, disown: Vec::new(), beliefs: None };
    let heard = args.client.remote()?.heartbeat(&request).await?;
    Screen::chosen().answer(&heard, || {
        format!("alive for {} from when this was sent", show_ms(heard.ttl_ms))
    })?;
    Ok(Exit::Done)
}

async fn show(args: OneArgs) -> CommandResult {
    let session_id = args.session.require()?.session;
    let answer = args.client.remote()?.show_session(&ShowSessionRequest { session_id }).await?;
    Screen::chosen().answer(&answer, || session(&answer, None))?;
    Ok(Exit::Done)
}

/// Closing also removes the session file.
async fn close(args: OneArgs) -> CommandResult {
    let known = args.session.require()?;
    let request = CloseSessionRequest { session_id: known.session };
    args.client.remote()?.close_session(&request).await?;
    known.remove_file()?;
    Screen::chosen().answer(&regent_api::Done::YES, || "closed".to_owned())?;
    Ok(Exit::Done)
}
