//! `regent doctor split-brain`: who acts, who may, and the way back to one leader.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use regent::remote::Remote;
use regent_api::{BelieverBody, ClaimsQuery, Consistency, FencesQuery, LeaderResponse};
use regent_election::{Cause, Group};
use serde::{Serialize, Serializer};

use super::recovery;
use crate::client::ClientArgs;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::{Side, or_dash, remark, table};

/// Flags of `regent doctor split-brain`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Name every server: each tells what it has heard itself.
Without --recover nothing is changed. With it one group is walked through five steps, each of
which asks back: stop whoever leads it, compare what they did, reconcile, elect again, resume.
Interrupted, it goes on where it stopped when it is run again.

Exit code 0: nobody acts who must not. 77: somebody does. 69: not every server could be asked.

Examples:
  regent doctor split-brain --server http://a:7400,http://b:7400,http://c:7400
  regent doctor split-brain --group billing --output json
  regent doctor split-brain --group billing --recover
  regent doctor split-brain --group billing --recover --yes --reconcile ./merge-ledgers")]
pub(crate) struct SplitBrainArgs {
    /// Only this group
    #[arg(long)]
    pub(crate) group: Option<Group>,
    /// Walk the way back to one leader
    #[arg(long, requires = "group")]
    recover: bool,
    /// Do not ask back between the steps
    #[arg(long, requires = "recover")]
    pub(crate) yes: bool,
    /// A command that reconciles what was done; it is told in its environment who did it
    #[arg(long, value_name = "COMMAND", requires = "recover")]
    pub(crate) reconcile: Option<String>,
    /// Where the group's policy is kept meanwhile [default: ./regent-recovery-GROUP.json]
    #[arg(long, value_name = "FILE", requires = "recover")]
    pub(crate) save: Option<PathBuf>,
    /// How long a step may wait for others
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    pub(crate) wait: Duration,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Everything that was found.
#[derive(Debug, Serialize)]
struct Report {
    split_brain: bool,
    groups: Vec<Sight>,
    /// Servers that could not be asked, and why.
    unasked: Vec<(String, String)>,
}

/// One group, as all servers see it together.
#[derive(Debug, Serialize)]
pub(crate) struct Sight {
    #[serde(serialize_with = "text")]
    pub(crate) group: Group,
    /// What a quorum says.
    pub(crate) office: Option<LeaderResponse>,
    pub(crate) believers: Vec<Seen>,
    /// What its resources have admitted.
    pub(crate) fences: Vec<(String, u64)>,
    /// What its history says of it.
    pub(crate) findings: Vec<(&'static str, String)>,
}

fn text<S: Serializer>(group: &Group, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(group)
}

/// One that acts, and which server heard it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Seen {
    pub(crate) server: String,
    #[serde(flatten)]
    pub(crate) believer: BelieverBody,
}

impl Seen {
    /// Whether it was heard within its ttl: a process that was killed says nothing more.
    pub(crate) fn is_fresh(&self) -> bool {
        self.believer.heard_ms_ago < self.believer.ttl_ms
    }

    pub(crate) fn is_accused(&self) -> bool {
        self.believer.standing == "accused"
    }
}

impl Sight {
    /// Whether two that act have told different states.
    pub(crate) fn has_diverged(&self) -> bool {
        // Several servers may have heard one node at different times: its last word counts.
        let mut last = BTreeMap::new();
        for Seen { believer, .. } in &self.believers {
            let known = last.entry((&believer.node_id, believer.term)).or_insert(believer);
            if believer.heard_ms_ago < known.heard_ms_ago {
                *known = believer;
            }
        }
        let mut digests = last.values().filter_map(|believer| believer.digest.as_ref());
        let first = digests.next();
        digests.any(|digest| Some(digest) != first)
    }

    /// What it comes to, in a sentence.
    pub(crate) fn told(&self) -> String {
        let group = &self.group;
        let leads = match &self.office {
            None => "who leads could not be asked".to_owned(),
            Some(LeaderResponse { office, .. }) => match &office.leader {
                Some(leader) => format!("{leader} leads under term {}", office.term),
                None => format!("nobody leads; the last term was {}", office.term),
            },
        };
        let mut told = format!("{group}: {leads}");
        let wrong: BTreeMap<_, _> = self
            .believers
            .iter()
            .filter(|seen| seen.is_accused())
            .map(|seen| (&seen.believer.node_id, seen.believer.term))
            .collect();
        for (node, term) in wrong {
            told.push_str(&format!("; {node} acts under term {term} and must not"));
        }
        if self.has_diverged() {
            told.push_str("; their states differ");
        }
        told
    }
}

/// All servers, one by one.
pub(crate) struct Servers {
    all: Vec<(String, Remote)>,
    /// Any of them.
    pub(crate) any: Remote,
}

impl Servers {
    pub(crate) fn new(client: &ClientArgs) -> Result<Self, Failure> {
        let any = client.remote()?;
        let mut all = Vec::new();
        for url in client.urls() {
            let one = Remote::new(url)?.with_timeout(client.timeout);
            all.push((url.to_owned(), one));
        }
        Ok(Self { all, any })
    }

    /// Who acts, as all servers have heard it, and which of them could not be asked.
    pub(crate) async fn believers(
        &self,
        group: Option<&Group>,
    ) -> (BTreeMap<Group, Vec<Seen>>, Vec<(String, String)>) {
        let (mut found, mut unasked) = (BTreeMap::<Group, Vec<Seen>>::new(), Vec::new());
        for (server, remote) in &self.all {
            let mut query =
                ClaimsQuery { group: group.cloned(), disputed: group.is_none(), after: None };
            loop {
                match remote.claims(&query).await {
                    Err(error) => {
                        unasked.push((server.clone(), error.to_string()));
                        break;
                    }
                    Ok(page) => {
                        for claimed in page.groups {
                            let seen = |believer| Seen { server: server.clone(), believer };
                            let believers = claimed.believers.into_iter().map(seen);
                            found.entry(claimed.group).or_default().extend(believers);
                        }
                        query.after = page.next;
                    }
                }
                if query.after.is_none() {
                    break;
                }
            }
        }
        (found, unasked)
    }

    /// Everything about one group.
    pub(crate) async fn sight(&self, group: Group, believers: Vec<Seen>) -> Sight {
        let office = self.any.leader(&group, Consistency::Linearizable).await.ok();
        let fences = self.any.list_fences(&group, &FencesQuery::default()).await;
        let fences = fences.map(|page| page.fences).unwrap_or_default();
        let fences = fences.iter().map(|it| (it.resource.to_string(), it.term.get())).collect();
        let history = self.any.history(&group).await.map(|history| history.changes);
        let findings = history.unwrap_or_default().into_iter();
        let findings = findings
            .filter(|change| change.cause.is_finding())
            .map(|change| (Cause::word(change.cause), change.reason.unwrap_or_default()))
            .collect();
        Sight { group, office, believers, fences, findings }
    }
}

/// Runs the verb.
pub(crate) async fn run(args: SplitBrainArgs) -> Outcome {
    let servers = Servers::new(&args.client)?;
    let (found, unasked) = servers.believers(args.group.as_ref()).await;
    for (server, why) in &unasked {
        remark(&format!("{server} could not be asked: {why}"));
    }
    if args.recover {
        if !unasked.is_empty() {
            let why = "whoever is heard only by a server that cannot be asked would be missed";
            return Err(Failure::new(Exit::Unavailable, why));
        }
        let before = found.into_values().flatten().collect();
        return recovery::walk(&args, &servers, before).await;
    }
    let mut groups = Vec::new();
    for (group, believers) in found {
        groups.push(servers.sight(group, believers).await);
    }
    let accused = |sight: &Sight| sight.believers.iter().any(Seen::is_accused);
    let report = Report { split_brain: groups.iter().any(accused), groups, unasked };
    args.client.screen().answer(&report, || show(&report))?;
    Ok(match (report.split_brain, report.unasked.is_empty()) {
        (true, _) => Exit::Refused,
        (false, false) => Exit::Unavailable,
        (false, true) => Exit::Done,
    })
}

/// A table of who acts in one group.
pub(crate) fn believers(sights: &[&Sight]) -> String {
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

fn show(report: &Report) -> String {
    if report.groups.is_empty() {
        return "nobody acts who must not, as far as these servers have heard".to_owned();
    }
    let sights: Vec<&Sight> = report.groups.iter().collect();
    let mut text = believers(&sights);
    for sight in sights {
        text.push_str("\n\n");
        text.push_str(&sight.told());
        for (resource, term) in &sight.fences {
            text.push_str(&format!("\n  resource {resource} has admitted term {term}"));
        }
        for (finding, reason) in &sight.findings {
            text.push_str(&format!("\n  history: {finding}: {reason}"));
        }
        if sight.believers.iter().any(Seen::is_accused) {
            let group = &sight.group;
            text.push_str(&format!(
                "\n  the way out: regent doctor split-brain --group {group} --recover"
            ));
        }
    }
    text
}
