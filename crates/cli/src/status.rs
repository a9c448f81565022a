//! `regent status`: what is wrong and what to do, on one screen; and `regent version`.

use clap::Args;
use regent_operate::status::{self, ServerVersion, Severity, StatusReport};

use crate::client::ClientArgs;
use crate::exit::Exit;
use crate::failure::CommandResult;
use crate::output::{Screen, Side, facts, table};

/// Flags of `regent status`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent status
  regent status --server http://a:7400,http://b:7400,http://c:7400 --timeout 2s
  regent status --output json || page-somebody

Name all servers, and it says which of them do not answer.

Exit codes: 0 nothing is wrong, 1 something is wrong and elections go on, 69 nobody can be
elected: no server answers, there is no quorum, or the groups cannot be read. 77 the servers
refuse to tell.")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Flags of `regent version`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent version
  regent version --server http://a:7400,http://b:7400

Exit code 69 says that no server answered; the version of the command is printed all the same.")]
pub(crate) struct VersionArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Looks at everything once.
pub(crate) async fn run(args: StatusArgs) -> CommandResult {
    let report = status::look(&args.client.remote()?, args.client.timeout).await;
    Screen::chosen().answer(&report, || shown(&report))?;
    Ok(match report.worst() {
        None => Exit::Done,
        Some(Severity::Warning) => Exit::No,
        Some(Severity::Refused) => Exit::Refused,
        Some(Severity::Down) => Exit::Unavailable,
    })
}

/// Prints the versions of the command and of every server named.
pub(crate) async fn version(args: VersionArgs) -> CommandResult {
    let own = env!("CARGO_PKG_VERSION");
    let servers = status::servers(&args.client.remote()?, args.client.timeout).await;
    let answer = serde_json::json!({ "command": own, "servers": servers });
    Screen::chosen().answer(&answer, || {
        let mut lines = vec![("command", own.to_owned())];
        lines.extend(servers.iter().map(|server| ("server", named(server))));
        facts(lines)
    })?;
    let answers = servers.iter().any(|server| server.version.is_some());
    Ok(if answers { Exit::Done } else { Exit::Unavailable })
}

fn named(server: &ServerVersion) -> String {
    let version = server.version.as_deref().unwrap_or("does not answer");
    format!("{}  {version}", server.address)
}

fn shown(report: &StatusReport) -> String {
    let verdict = match report.worst() {
        None => "nothing is wrong",
        Some(Severity::Warning) => "something is wrong; elections go on",
        Some(Severity::Refused) => "unknown: the servers do not tell you everything",
        Some(Severity::Down) => "DOWN: nobody can be elected, or nothing is known",
    };
    let mut lines = vec![("status", verdict.to_owned())];
    lines.extend(report.servers.iter().map(|server| ("server", named(server))));
    let unknown = || "unknown".to_owned();
    lines.push(("cluster", report.cluster.clone().unwrap_or_else(unknown)));
    let groups = report.groups.map_or_else(unknown, |groups| {
        let more = if groups.is_part { ", and more" } else { "" };
        let (led, vacant, changing) = (groups.led, groups.vacant, groups.changing);
        format!("{led} led, {vacant} vacant, {changing} changing{more}")
    });
    lines.push(("groups", groups));
    let mut text = facts(lines);
    if !report.findings.is_empty() {
        let rows = report.findings.iter().map(|it| vec![it.what.clone(), it.todo.clone()]);
        text.push_str("\n\n");
        text.push_str(&table(&[("wrong", Side::Left), ("do", Side::Left)], rows.collect()));
    }
    text
}
