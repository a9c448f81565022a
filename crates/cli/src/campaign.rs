//! `regent campaign`: win a vacant office, wait for it, or hear who holds it.
//!
//! | flags | session | if it loses |
//! |---|---|---|
//! | none | made by the server | leaves nothing behind |
//! | `--wait` | made here, in memory | keeps its place in line while it waits, then leaves nothing behind |
//! | `--session-file`, `--session` | the caller's | stands until it withdraws or its session ends |
//! | `--keep` | made here | stands until it leads, leads until interrupted ([`crate::keep`]) |
//!
//! [`regent_operate::campaign`] says how a wait is sent and which answers are believed.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use regent::fresh;
use regent::remote::{Remote, SessionFile};
use regent_api::{CampaignRequest, CloseSessionRequest, Code};
use regent_election::{Group, Metadata, Node, Priority, SessionId};
use regent_operate::campaign::{self, CampaignOutcome, CampaignProgress, SafeAnswer, StandError};

use crate::client::ClientArgs;
use crate::duration::{millis, parse, show};
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::keep;
use crate::output::{Screen, facts, or_dash, remark, yes};
use crate::secret::{self, Holder, SessionArgs};
use crate::signals::Signals;

const EXAMPLES: &str = "\
Examples:
  regent campaign billing --node web-1                               # win or lose, at once
  regent campaign billing --node web-1 --session-file web-1.session  # to renew and resign later
  regent campaign billing --node web-1 --wait 30s                    # wait in line
  regent campaign billing --node web-1 --ttl 5s --keep               # lead until interrupted
  regent campaign billing --node web-1 --meta address=10.0.0.7:80 --meta zone=b

Exit codes: 0 elected, 1 another node leads. With --keep: 0 interrupted and resigned, 1 another
node leads after --wait, 69 the server or its store could not be asked, 76 leadership lost.";

/// Flags of `regent campaign`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CampaignArgs {
    /// The group
    pub(crate) group: Group,
    /// The candidate's name
    #[arg(long)]
    pub(crate) node: Node,
    /// How long the leadership lives unrenewed [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = parse)]
    pub(crate) ttl: Option<Duration>,
    /// How long to wait in line; with --keep, as long as it takes unless this says otherwise
    #[arg(long, value_name = "DURATION", value_parser = parse)]
    pub(crate) wait: Option<Duration>,
    /// The claim in the line: higher first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: Priority,
    /// What to tell the world as leader; repeat it for more
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = parse_meta)]
    meta: Vec<(String, String)>,
    /// Renew until interrupted, then resign
    #[arg(long, conflicts_with_all = ["session", "session_file"])]
    keep: bool,
    /// With --keep, follow the group to this host or URL too, or with * to any store [default: the hosts of --server]
    #[arg(
        long,
        value_name = "HOST|URL",
        env = "REGENT_FOLLOW_TO",
        value_delimiter = ' ',
        requires = "keep"
    )]
    pub(crate) follow_to: Vec<String>,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

pub(crate) fn parse_meta(text: &str) -> Result<(String, String), String> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| format!("{text:?} is no KEY=VALUE; like zone=b"))?;
    Ok((key.to_owned(), value.to_owned()))
}

impl CampaignArgs {
    /// What the candidate tells the world.
    pub(crate) fn metadata(&self) -> Result<Metadata, Failure> {
        Ok(Metadata::new(self.meta.iter().map(|(key, value)| (key, value)))?)
    }

    fn request(&self) -> Result<CampaignRequest, Failure> {
        Ok(CampaignRequest {
            ttl_ms: self.ttl.map(millis),
            priority: self.priority,
            metadata: self.metadata()?,
            ..CampaignRequest::of(self.node.clone())
        })
    }
}

/// Campaigns.
pub(crate) async fn run(args: CampaignArgs) -> CommandResult {
    if args.keep {
        return keep::run(args).await;
    }
    let remote = args.client.remote()?;
    match args.session.holder()? {
        Holder::Nobody if args.wait.is_none_or(|wait| wait.is_zero()) => {
            one_shot(&args, &remote).await
        }
        Holder::Nobody => wait_and_leave(&args, &remote).await,
        Holder::Given(session) => {
            let won = stand(&args, &remote, session).await?;
            report(&won, Secret::Known)
        }
        Holder::File(path) => with_file(&args, &remote, path).await,
    }
}

/// One request; the server makes a session, which is gone if this loses.
async fn one_shot(args: &CampaignArgs, remote: &Remote) -> CommandResult {
    let won = campaign::campaign_once(remote, &args.group, &args.request()?).await?;
    report(&won, Secret::Fresh)
}

/// Waits in line with a session that nobody else knows, and closes it if that was for nothing.
async fn wait_and_leave(args: &CampaignArgs, remote: &Remote) -> CommandResult {
    let session = fresh::session_id()?;
    let mut signals = Signals::listen()?;
    let ended = tokio::select! {
        ended = stand(args, remote, session) => ended,
        name = signals.next() => {
            Err(Failure::new(Exit::Interrupted, format!("{name} while waiting in line")))
        }
    };
    if !ended.as_ref().is_ok_and(|won| won.answer.elected) {
        let close = CloseSessionRequest { session_id: session };
        if let Err(error) = remote.close_session(&close).await {
            let ttl = show(args.ttl.unwrap_or(DEFAULT_TTL));
            remark(&format!("{error}; if it stood in line, its place is free after {ttl}"));
        }
    }
    report(&ended?, Secret::Fresh)
}

/// The ttl of a session that names none.
const DEFAULT_TTL: Duration = Duration::from_millis(regent_election::limits::TTL_MS_DEFAULT);

/// Uses the session in a file, or makes both. A session that has ended is replaced: its id is of no
/// use any more, and whatever it held is lost already.
async fn with_file(args: &CampaignArgs, remote: &Remote, path: PathBuf) -> CommandResult {
    let known = secret::read(&path)?;
    let mut record = match known.clone() {
        Some(record) => record,
        None => make_record(&path)?,
    };
    let mut ended = stand(args, remote, record.session).await;
    let is_over = |failure: &Failure| {
        failure.problem.as_ref().is_some_and(|problem| problem.code == Code::SessionExpired)
    };
    if known.is_some() && ended.as_ref().err().is_some_and(is_over) {
        remark(&format!("the session in {} has ended; opening another one", path.display()));
        record = make_record(&path)?;
        ended = stand(args, remote, record.session).await;
    }
    let won = ended?;
    if won.answer.elected {
        record.terms.insert(args.group.clone(), won.answer.office.term);
        record.write(&path)?;
    }
    report(&won, Secret::In(path))
}

/// A fresh secret, in its file before it is sent: one that was sent and then lost would stand in
/// line with nobody to withdraw it.
fn make_record(path: &std::path::Path) -> Result<SessionFile, Failure> {
    let record = SessionFile::of(fresh::session_id()?);
    record.write(path)?;
    Ok(record)
}

/// Campaigns with a session of its own until elected or until the wait is over.
async fn stand(
    args: &CampaignArgs,
    remote: &Remote,
    session: SessionId,
) -> Result<CampaignOutcome, Failure> {
    let mut tell = |progress: CampaignProgress<'_>| match progress {
        CampaignProgress::Retries(error) => tracing::info!(%error, "campaigning again"),
        CampaignProgress::NotRenewed(error) => remark(&format!("{error}; renew soon")),
    };
    let (request, wait) = (args.request()?, args.wait.unwrap_or_default());
    Ok(campaign::stand(remote, &args.group, request, session, wait, &mut tell).await?)
}

impl From<StandError> for Failure {
    fn from(error: StandError) -> Self {
        match error {
            StandError::Remote(error) => error.into(),
            StandError::TooLate { took, valid_for } => {
                let (took, valid_for) = (show(took), show(valid_for));
                let why = format!(
                    "the lease was safe for {valid_for}, but the answer took {took}: do not lead on it, campaign again"
                );
                Self::new(Exit::Lost, why)
            }
        }
    }
}

/// Who knows the session's secret.
enum Secret {
    /// Only this answer.
    Fresh,
    /// The caller.
    Known,
    /// A file.
    In(PathBuf),
}

fn report(won: &CampaignOutcome, secret: Secret) -> CommandResult {
    let answer = &won.answer;
    Screen::chosen().answer(&SafeAnswer::new(answer, won.left), || {
        let office = &answer.office;
        let mut shown = vec![
            ("elected", yes(answer.elected)),
            ("group", office.group.to_string()),
            ("leader", or_dash(office.leader.as_ref())),
            ("term", office.term.to_string()),
        ];
        if answer.elected {
            shown.push(("valid for", format!("{} unless renewed", show(won.left))));
        } else if answer.standing {
            shown.push(("in line", "yes, while the session lives".to_owned()));
        } else if let Some(retry_after_ms) = answer.retry_after_ms {
            shown.push(("retry in", show(Duration::from_millis(retry_after_ms))));
        }
        match (secret, answer.session_id) {
            (Secret::In(path), _) => shown.push(("session", format!("in {}", path.display()))),
            (Secret::Fresh, Some(session)) => {
                shown.push(("session", format!("{} (keep it secret)", session.reveal())));
            }
            (Secret::Known, _) | (Secret::Fresh, None) => {}
        }
        facts(shown)
    })?;
    Ok(if answer.elected { Exit::Done } else { Exit::No })
}
