//! `regent doctor split-brain`: who acts, who may, and the way back to one leader.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use regent::remote::{AddressError, Remote};
use regent_election::Group;
use regent_operate::split_brain::{CombinedView, Servers, SplitBrainReport, survey};

use super::recovery;
use crate::client::ClientArgs;
use crate::duration;
use crate::exit::Exit;
use crate::failure::CommandResult;
use crate::output::{Screen, Side, or_dash, remark, table};

/// Flags of `regent doctor split-brain`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Name every server: each tells what it has heard itself.
Without --recover nothing is changed. With it one group is walked through five steps, each of
which asks back: stop its leaders, compare what they did, reconcile, elect again, resume.
After an interruption, run it again: it continues where it stopped.

Exit code 0: no split brain. 77: a node acts that must not. 69: a server could not be asked.

Examples:
  regent doctor split-brain --server http://a:7400,http://b:7400,http://c:7400
  regent doctor split-brain --group billing --output json
  regent doctor split-brain --group billing --recover
  regent doctor split-brain --group billing --recover --yes --reconcile ./merge-ledgers")]
pub(crate) struct SplitBrainArgs {
    /// Only this group
    #[arg(long)]
    pub(crate) group: Option<Group>,
    /// Recover to one leader, step by step
    #[arg(long, requires = "group")]
    recover: bool,
    /// Do not ask back between the steps
    #[arg(long, requires = "recover")]
    pub(crate) yes: bool,
    /// A command that reconciles conflicting writes; its environment names the leaders
    #[arg(long, value_name = "COMMAND", requires = "recover")]
    pub(crate) reconcile: Option<String>,
    /// Where an earlier version kept the group's policy [default: ./regent-recovery-GROUP.json]
    #[arg(long, value_name = "FILE", requires = "recover")]
    pub(crate) save: Option<PathBuf>,
    /// How long a step may wait for others
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    pub(crate) wait: Duration,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Runs the verb.
pub(crate) async fn run(args: SplitBrainArgs) -> CommandResult {
    let any = args.client.remote()?;
    let each = any.addresses().iter().map(|address| {
        let one = Remote::at(vec![address.clone()])?.with_timeout(args.client.timeout);
        Ok::<_, AddressError>((address.to_string(), one))
    });
    let each = each.collect::<Result<_, _>>()?;
    let servers = Servers::new(any, each);
    if args.recover {
        return recovery::run(&args, &servers).await;
    }
    let report = survey(&servers, args.group.as_ref()).await;
    for (server, why) in &report.unasked {
        remark(&unasked(server, why));
    }
    Screen::chosen().answer(&report, || show(&report))?;
    Ok(match (report.split_brain, report.unasked.is_empty()) {
        (true, _) => Exit::Refused,
        (false, false) => Exit::Unavailable,
        (false, true) => Exit::Done,
    })
}

pub(super) fn unasked(server: &str, why: &str) -> String {
    format!("{server} could not be asked: {why}")
}

/// A table of who acts in one group.
pub(crate) fn believers(sights: &[&CombinedView]) -> String {
    let head = [
        ("group", Side::Left),
        ("node", Side::Left),
        ("term", Side::Right),
        ("standing", Side::Left),
        ("left", Side::Right),
        ("heard", Side::Right),
        ("state", Side::Left),
        ("by", Side::Left),
    ];
    let mut rows = Vec::new();
    for sight in sights {
        for seen in &sight.believers {
            let believer = &seen.believer;
            let standing = match &believer.fault {
                None => believer.standing.clone(),
                Some(fault) => format!("{}: {}", believer.standing, fault.replace('_', " ")),
            };
            let ago = Duration::from_millis(believer.heard_ms_ago);
            rows.push(vec![
                sight.group.to_string(),
                believer.node_id.to_string(),
                believer.term.to_string(),
                standing,
                duration::show(Duration::from_millis(believer.left_ms)),
                format!("{} ago", duration::show(ago)),
                or_dash(believer.digest.as_ref()),
                seen.server.clone(),
            ]);
        }
    }
    table(&head, rows)
}

fn show(report: &SplitBrainReport) -> String {
    if report.groups.is_empty() {
        return "No split brain detected by these servers.".to_owned();
    }
    let sights: Vec<&CombinedView> = report.groups.iter().collect();
    let mut text = believers(&sights);
    for sight in sights {
        text.push_str("\n\n");
        text.push_str(&sight.told());
    }
    text
}
