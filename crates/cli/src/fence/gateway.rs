//! `regent fence gateway`: a reverse proxy before any HTTP storage, until it is told to end.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use regent::fencing::signed::{KeysError, Verifier};
use regent_election::error_text::plain;
use regent_election::fence::doorkeeper::DoorRules;
use regent_election::{Group, Resource, Term};
use regent_gateway::limits::WAITING_MAX;
use regent_gateway::mark::{MarkError, MarkFile};
use regent_gateway::{
    Gateway, GatewayCertificate, GatewayConfig, GatewayError, ReportTarget, Upstream,
};
use tokio::net::TcpListener;

use crate::client::ClientArgs;
use crate::confirm::confirm;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::Screen;
use crate::serve::{bind, on_hangup};
use crate::signals::Signals;
use crate::wall::wall_seconds;

const EXAMPLES: &str = "\
A request passes with a header Regent-Term that is not lower than the highest that ever came; with
--strict it must also be the term in office, which the service is asked for every time.
A stale term is answered 409 STALE_TERM with both numbers, no term 428, what cannot be known 503.
One gateway stands before one resource, and whatever writes there goes through it.

Examples:
  regent fence gateway --group billing --upstream http://127.0.0.1:9000 --data ./fence
  regent fence gateway --group billing --upstream http://127.0.0.1:9000 --data ./fence --strict
  regent fence gateway --group billing --data ./fence --reset-mark 8 --reason 'forged term'
  curl -X PUT -H 'Regent-Term: 7' -d paid http://127.0.0.1:7480/row";

/// Flags of `regent fence gateway`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GatewayArgs {
    /// The group whose terms are compared
    #[arg(long)]
    group: Group,
    /// Where requests are passed on to
    #[arg(long, value_name = "URL", required_unless_present = "reset_mark")]
    upstream: Option<String>,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7480")]
    listen: SocketAddr,
    /// Directory of the mark: the highest term that ever came; one gateway at a time
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Admit the term in office only, asking the service for it
    #[arg(long)]
    strict: bool,
    /// Tell the service under this name which terms passed, and which were refused
    #[arg(long, value_name = "RESOURCE")]
    report: Option<Resource>,
    /// Take terms from signed tokens (Regent-Token) only, verified by --keys
    #[arg(long, requires = "keys")]
    require_signed: bool,
    /// Public keys that sign terms: a file (`regent fence keys publish`), or the URL of a service
    #[arg(long, value_name = "FILE|URL", requires = "require_signed")]
    keys: Option<String>,
    /// The cluster that must have signed, if several share keys
    #[arg(long, value_name = "NAME", requires = "require_signed")]
    cluster: Option<String>,
    /// Let GET, HEAD and OPTIONS pass without a term
    #[arg(long)]
    allow_reads: bool,
    /// Pass the client's Host on instead of the upstream's
    #[arg(long)]
    keep_host: bool,
    /// Set the mark of a stopped gateway to this term and end; a lower one lets old leaders write again
    #[arg(long, value_name = "TERM", requires = "reason", help_heading = "Repair")]
    reset_mark: Option<u64>,
    /// Why the mark is set: kept beside it
    #[arg(long, value_name = "TEXT", requires = "reset_mark", help_heading = "Repair")]
    reason: Option<String>,
    /// Do not ask back
    #[arg(long, requires = "reset_mark", help_heading = "Repair")]
    yes: bool,
    /// The certificate that clients see: with it, they speak TLS only
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Where to tell metrics (/metrics) and health (/healthz)
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// How long a higher term waits for the answers to lower ones
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse,
        help_heading = "Times and bounds")]
    drain_timeout: Duration,
    /// How long after its connection is gone a request may still take effect upstream
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse,
        help_heading = "Times and bounds")]
    settle: Duration,
    /// How long a client may take for a head, or stay without asking
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse,
        help_heading = "Times and bounds")]
    head_timeout: Duration,
    /// How long a client may take for the next part of a body
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse,
        help_heading = "Times and bounds")]
    idle_timeout: Duration,
    /// How long the upstream may take for an answer, or for its next part
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse,
        help_heading = "Times and bounds")]
    answer_timeout: Duration,
    /// How long requests under way are waited for in the end
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse,
        help_heading = "Times and bounds")]
    shutdown_grace: Duration,
    /// Most clients at once
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, help_heading = "Times and bounds")]
    connections_max: usize,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Runs the gateway until a signal.
pub(crate) async fn run(args: GatewayArgs) -> CommandResult {
    if let (Some(term), Some(reason)) = (args.reset_mark, &args.reason) {
        return reset_mark(&args, term, reason);
    }
    let url = args.upstream.clone().unwrap_or_default();
    let upstream: Upstream =
        url.parse().map_err(|error| Failure::usage(format!("--upstream: {error}")))?;
    let signed = match &args.keys {
        Some(keys) => Some(verifier(keys, &args).await?),
        None => None,
    };
    let [reload, _] = on_hangup(args.tls_cert.is_some())?;
    let files = args.tls_cert.clone().zip(args.tls_key.clone());
    let tls = files.map(|(certificate, key)| GatewayCertificate { certificate, key, reload });
    let config = GatewayConfig {
        signed,
        tls,
        group: args.group.clone(),
        upstream: Some(upstream),
        data: args.data.clone(),
        strict: if args.strict { Some(args.client.remote()?) } else { None },
        report: match &args.report {
            None => None,
            Some(resource) => {
                Some(ReportTarget { remote: args.client.remote()?, resource: resource.clone() })
            }
        },
        rules: DoorRules {
            drain_for: args.drain_timeout,
            settle_for: args.settle,
            waiting_max: WAITING_MAX,
        },
        allows_reads: args.allow_reads,
        keeps_host: args.keep_host,
        connections_max: args.connections_max,
        head_timeout: args.head_timeout,
        idle_timeout: args.idle_timeout,
        answer_timeout: args.answer_timeout,
        shutdown_grace: args.shutdown_grace,
    };
    let mut signals = Signals::listen()?;
    let gateway = Gateway::open(config).map_err(refused)?;
    let (listener, address) = listen("--listen", args.listen)?;
    let metrics = match args.metrics {
        Some(wanted) => Some(listen("--metrics", wanted)?),
        None => None,
    };
    greet(&args, address, metrics.as_ref().map(|(_, address)| *address), gateway.mark().get());
    let metrics = metrics.map(|(listener, _)| listener);
    let start = |ending| gateway.serve(listener, metrics, ending);
    let ended = signals.serve(start, std::future::pending()).await?;
    ended.map(|()| Exit::Done).map_err(refused)
}

/// Sets the mark of a gateway that does not run.
fn reset_mark(args: &GatewayArgs, term: u64, reason: &str) -> CommandResult {
    let term = Term::new(term)
        .ok_or_else(|| Failure::usage(format!("--reset-mark: {term} is above every term")))?;
    confirm(
        args.yes,
        &format!(
            "every leader of {} with term {term} or above will be able to write; one that was replaced long ago, too, if its term is that high. Name the term in office (regent leader {} --verbose), and stop leaders of lower terms first",
            args.group, args.group
        ),
    )?;
    let was = MarkFile::reset(&args.data, &args.group, term, reason, wall_seconds()?)
        .map_err(|error| refused(GatewayError::Mark(error)))?;
    tracing::warn!(group = %args.group, from = was.get(), to = term.get(), reason, "the mark was set by an operator");
    let screen = Screen::chosen();
    let told = serde_json::json!({ "group": args.group.as_str(), "from": was.get(), "to": term.get(), "reason": reason });
    screen.answer(&told, || format!("the mark of {} was {was} and is {term}", args.group))?;
    Ok(Exit::Done)
}

/// Who judges tokens, by keys that are there: without them there is no gateway.
async fn verifier(keys: &str, args: &GatewayArgs) -> Result<Verifier, Failure> {
    let is_url = keys.starts_with("http://") || keys.starts_with("https://");
    let group = args.group.clone();
    let verifier =
        if is_url { Verifier::fetching(keys, group).await } else { Verifier::reading(keys, group) };
    let verifier = verifier.map_err(|error| {
        let exit = match &error {
            KeysError::Io { .. } | KeysError::Empty { .. } => Exit::Files,
            KeysError::Address { .. } => Exit::Usage,
            KeysError::Fetch { .. } => Exit::Unavailable,
        };
        Failure::new(exit, format!("--keys: {error}"))
    })?;
    Ok(match &args.cluster {
        Some(cluster) => verifier.of_cluster(cluster),
        None => verifier,
    })
}

fn refused(error: GatewayError) -> Failure {
    let exit = match &error {
        GatewayError::Mark(MarkError::InUse { .. }) | GatewayError::Thread(_) => Exit::Unavailable,
        GatewayError::Mark(
            MarkError::Io { .. }
            | MarkError::File(_)
            | MarkError::Damaged { .. }
            | MarkError::Missing { .. },
        )
        | GatewayError::Tls(_) => Exit::Files,
        GatewayError::Mark(MarkError::Reason | MarkError::NoTerm) => Exit::Usage,
        GatewayError::Mark(MarkError::OtherGroup { .. } | MarkError::Unused { .. })
        | GatewayError::Zero { .. }
        | GatewayError::TooMany { .. }
        | GatewayError::NoUpstream => Exit::Config,
    };
    Failure::new(exit, error.to_string())
}

fn listen(flag: &str, wanted: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    bind(wanted).map_err(|error| {
        Failure::new(Exit::Unavailable, format!("{flag} {wanted}: {}", plain(&error)))
    })
}

/// A few lines for whoever started it. Nothing depends on their being read.
fn greet(args: &GatewayArgs, address: SocketAddr, metrics: Option<SocketAddr>, mark: u64) {
    let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
    let metrics = metrics
        .map(|address| format!("metrics at {scheme}://{address}/metrics\n"))
        .unwrap_or_default();
    let rule = if args.strict { "the term in office" } else { "terms that never fall" };
    let lines = format!(
        "the gateway of {} listens on {scheme}://{address}\n\
         passes {rule} on to {}; the highest so far is {mark}\n{metrics}",
        args.group,
        args.upstream.as_deref().unwrap_or_default(),
    );
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(lines.as_bytes()).and_then(|()| stdout.flush());
}
