//! `regent campaign`: win a vacant office, wait for it, or hear who holds it.
//!
//! | flags | session | if it loses |
//! |---|---|---|
//! | none | made by the server | leaves nothing behind |
//! | `--wait` | made here, in memory | keeps its place in line while it waits, then leaves nothing behind |
//! | `--session-file`, `--session` | the caller's | stands until it withdraws or its session ends |
//! | `--keep` | made here | stands until it leads, leads until interrupted ([`crate::keep`]) |
//!
//! A wait is sent in slices of a third of the ttl: each is a sign of life, so the session outlives
//! any wait, and an answer is never older than its lease by much. An answer that did come too late
//! is not believed.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use regent::fresh;
use regent::remote::{Remote, RemoteError, SessionFile};
use regent_api::limits::WAIT_MS_MAX;
use regent_api::{CampaignRequest, CampaignResponse, CloseSessionRequest, Code, RenewRequest};
use regent_election::timing::{Budget, Drift};
use regent_election::{Group, Metadata, Moment, Node, Priority, SessionId};

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

Exit codes: 0 elected, 1 lost. With --keep: 0 interrupted and resigned, 1 not elected within
--wait, 76 leadership lost.";

/// Pause before a campaign that was answered early, or not at all, is sent again.
const PAUSE: Duration = Duration::from_millis(200);

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
            report(&args, &won, Secret::Known)
        }
        Holder::File(path) => with_file(&args, &remote, path).await,
    }
}

/// One request; the server makes a session, which is gone if this loses.
async fn one_shot(args: &CampaignArgs, remote: &Remote) -> CommandResult {
    let request = args.request()?;
    let sent_at = regent_clock::now();
    let answer = remote.campaign(&args.group, &request).await?;
    let won = Won { left: believe(&answer, sent_at)?, answer };
    report(args, &won, Secret::Fresh)
}

/// Waits in line with a session that nobody else knows, and closes it if that was for nothing.
async fn wait_and_leave(args: &CampaignArgs, remote: &Remote) -> CommandResult {
    let session = fresh::session_id()?;
    let mut signals = Signals::listen()
        .map_err(|error| Failure::new(Exit::Unavailable, format!("signals: {error}")))?;
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
    report(args, &ended?, Secret::Fresh)
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
    report(args, &won, Secret::In(path))
}

/// A fresh secret, in its file before it is sent: one that was sent and then lost would stand in
/// line with nobody to withdraw it.
fn make_record(path: &std::path::Path) -> Result<SessionFile, Failure> {
    let record = SessionFile::of(fresh::session_id()?);
    record.write(path)?;
    Ok(record)
}

/// Campaigns with a session of its own until elected or until the wait is over.
///
/// The first request does not wait: its answer tells the ttl of a session that was open before, and
/// with it how long a slice may be.
async fn stand(args: &CampaignArgs, remote: &Remote, session: SessionId) -> Result<Won, Failure> {
    let mut request = CampaignRequest { session_id: Some(session), ..args.request()? };
    let until = regent_clock::now() + args.wait.unwrap_or_default();
    loop {
        let sent_at = regent_clock::now();
        let failure = match remote.campaign(&args.group, &request).await {
            Ok(answer) => {
                let answered_at = regent_clock::now();
                let waited_out = answered_at >= until;
                if answer.elected || waited_out {
                    let left = believe(&answer, sent_at)?;
                    return refresh(remote, session, Won { answer, left }).await;
                }
                let slice_ms = (answer.ttl_ms / 3).min(WAIT_MS_MAX);
                let is_early = answered_at < sent_at + asked(&request);
                let left = answered_at.until(until);
                request.wait_ms = Some(slice_ms.min(millis(left)).max(1));
                if !is_early {
                    continue;
                }
                None
            }
            // The same session campaigning again is the same candidate, so both may be repeated.
            Err(error @ (RemoteError::Unavailable { .. } | RemoteError::Uncertain { .. })) => {
                Some(error)
            }
            Err(error) => return Err(error.into()),
        };
        let pause = failure.as_ref().and_then(RemoteError::retry_after).unwrap_or(PAUSE);
        if let Some(error) = failure {
            if regent_clock::now() + pause >= until {
                return Err(error.into());
            }
            tracing::info!(%error, "campaigning again");
        }
        tokio::time::sleep(pause).await;
    }
}

fn asked(request: &CampaignRequest) -> Duration {
    Duration::from_millis(request.wait_ms.unwrap_or(0))
}

/// What became of it, and how long a lease that was won is safe.
struct Won {
    answer: CampaignResponse,
    left: Duration,
}

/// How long the lease is safe, counted from the send. An election whose lease may be over already is
/// refused: the process slept, or the answer did.
fn believe(answer: &CampaignResponse, sent_at: Moment) -> Result<Duration, Failure> {
    if !answer.elected {
        return Ok(Duration::ZERO);
    }
    let valid_for = valid_for(answer.ttl_ms);
    let took = regent_clock::now().since(sent_at);
    if took < valid_for {
        return Ok(valid_for - took);
    }
    let (took, valid_for) = (show(took), show(valid_for));
    Err(Failure::new(
        Exit::Lost,
        format!(
            "elected, but the answer took {took} and the lease was safe for {valid_for}; campaign again"
        ),
    ))
}

/// Renews a lease that was won late in a wait, since being elected adds no time to it. A renewal
/// that fails leaves what is left, unless it is refused.
async fn refresh(remote: &Remote, session_id: SessionId, won: Won) -> Result<Won, Failure> {
    let Won { answer, left } = won;
    if !answer.elected || left * 10 > valid_for(answer.ttl_ms) * 9 {
        return Ok(Won { answer, left });
    }
    let request = RenewRequest { session_id, term: answer.office.term, extend_by_ms: None };
    let sent_at = regent_clock::now();
    let left = match remote.renew(&answer.office.group, &request).await {
        Ok(heard) => {
            believe(&CampaignResponse { ttl_ms: heard.ttl_ms, ..answer.clone() }, sent_at)?
        }
        Err(error @ RemoteError::Refused(_)) => return Err(error.into()),
        Err(error) => {
            remark(&format!("{error}; renew soon"));
            left.saturating_sub(regent_clock::now().since(sent_at))
        }
    };
    Ok(Won { answer, left })
}

/// What is safe of a ttl on this machine's clock, counted from the send.
fn valid_for(ttl_ms: u64) -> Duration {
    Drift::from_ppm(regent_clock::drift_ppm())
        .and_then(|drift| Budget::new(ttl_ms, drift))
        .map_or(Duration::ZERO, |budget| budget.valid_for())
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

fn report(args: &CampaignArgs, won: &Won, secret: Secret) -> CommandResult {
    let answer = &won.answer;
    let screen: Screen = args.client.screen();
    screen.answer(answer, || {
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
