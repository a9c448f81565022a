//! What is wrong with a service at this moment, and what to do about it: `regent status` on one screen.
//!
//! It asks every server that is named for its version, one of them for the cluster and for the groups, and the groups that
//! nobody leads for their line. What could not be asked is a finding, and never "nothing wrong".

use std::time::Duration;

use regent::remote::{Remote, RemoteError};
use regent_api::{ClusterResponse, Code, GroupsQuery, MemberKind, Office};
use regent_election::Group;
use regent_election::limits::GROUPS_PAGE_MAX;
use regent_election::store::OfficeState;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::way_out::way_out;

/// Pages of groups that are read. Counts of more are marked as a part.
const PAGES_MAX: usize = 32;
/// Groups without a leader whose line is read.
const VACANT_MAX: usize = 20;

/// A server that was named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerVersion {
    pub address: String,
    /// Its version; none if it does not answer.
    pub version: Option<String>,
    /// Why it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How bad it is; scripts know it by the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Elections go on; somebody should look.
    Warning,
    /// The caller may not see it, so it may be well or not.
    Refused,
    /// Nobody can be elected, or nothing is known.
    Down,
}

/// Something that is wrong, and the way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatusFinding {
    pub severity: Severity,
    pub what: String,
    /// What to do.
    pub todo: String,
}

/// How many groups there are, by how their office stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupCounts {
    pub led: usize,
    /// Nobody leads, or nobody may yet.
    pub vacant: usize,
    /// The leader was told to stop, or the next one has not accepted yet.
    pub changing: usize,
    /// Whether there are more than were counted.
    pub is_part: bool,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct StatusReport {
    pub servers: Vec<ServerVersion>,
    /// The cluster in words; none if no server says.
    pub cluster: Option<String>,
    /// None if they are not known.
    pub groups: Option<GroupCounts>,
    /// Worst first.
    pub findings: Vec<StatusFinding>,
}

impl StatusReport {
    /// The worst that was found; none if all is well.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    fn find(&mut self, severity: Severity, what: impl Into<String>, todo: impl Into<String>) {
        self.findings.push(StatusFinding { severity, what: what.into(), todo: todo.into() });
    }
}

/// The version of every server that `remote` names, in their order; each has `within` to answer.
pub async fn servers(remote: &Remote, within: Duration) -> Vec<ServerVersion> {
    let mut asked = JoinSet::new();
    for (place, address) in remote.addresses().iter().cloned().enumerate() {
        asked.spawn(async move {
            let name = address.to_string();
            let said = match Remote::at(vec![address]) {
                Ok(one) => one.with_timeout(within).health().await.map_err(|it| it.to_string()),
                Err(error) => Err(error.to_string()),
            };
            let (version, error) = match said {
                Ok(said) => (Some(said.version), None),
                Err(why) => (None, Some(why)),
            };
            (place, ServerVersion { address: name, version, error })
        });
    }
    let mut said = asked.join_all().await;
    said.sort_by_key(|(place, _)| *place);
    said.into_iter().map(|(_, server)| server).collect()
}

/// Looks at everything; nothing that fails ends it.
pub async fn look(remote: &Remote, within: Duration) -> StatusReport {
    let servers = servers(remote, within).await;
    let mut report = StatusReport { servers, cluster: None, groups: None, findings: Vec::new() };
    judge_servers(&mut report);
    if report.servers.iter().any(|server| server.version.is_some()) {
        look_at_cluster(remote, &mut report).await;
        look_at_groups(remote, &mut report).await;
    }
    report.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    report
}

fn judge_servers(report: &mut StatusReport) {
    let silent: Vec<_> =
        report.servers.iter().filter(|server| server.version.is_none()).cloned().collect();
    let are_all = silent.len() == report.servers.len();
    for server in silent {
        let why = server.error.unwrap_or_default();
        let what = if why.contains(&server.address) {
            why
        } else {
            format!("{} does not answer: {why}", server.address)
        };
        let (severity, todo) = if are_all {
            (Severity::Down, "start it with `regent serve`, or name another one with --server")
        } else {
            (Severity::Warning, "start it again, or look at its log")
        };
        report.find(severity, what, todo);
    }
    let mut versions: Vec<_> =
        report.servers.iter().filter_map(|server| server.version.clone()).collect();
    versions.sort();
    versions.dedup();
    if versions.len() > 1 {
        let what = format!("the servers run different versions: {}", versions.join(", "));
        report.find(Severity::Warning, what, "finish the upgrade");
    }
}

async fn look_at_cluster(remote: &Remote, report: &mut StatusReport) {
    match remote.cluster_by_leader().await {
        Ok(cluster) => judge_cluster(&cluster, report),
        // A store of somebody else's: whether it serves is all that a server knows.
        Err(error) if error.code() == Some(Code::Unsupported) => match remote.ready().await {
            Ok(ready) => report.cluster = Some(format!("{}, {}", ready.store, ready.level)),
            Err(error) => cannot_ask(report, "the store", &error),
        },
        Err(error) => cannot_ask(report, "the cluster", &error),
    }
}

fn judge_cluster(cluster: &ClusterResponse, report: &mut StatusReport) {
    report.cluster = Some(cluster.health());
    if cluster.removed {
        let todo = "ask one of its members, and stop this one";
        report.find(Severity::Down, cluster.health(), todo);
        return;
    }
    let silent: Vec<_> =
        cluster.members.iter().filter(|member| member.state() == Some("silent")).collect();
    if !cluster.can_decide() {
        let what = format!("{}: nobody can be elected or renewed", cluster.health());
        let todo = "start the silent replicas again (`regent cluster status` names them)";
        report.find(Severity::Down, what, todo);
    } else if cluster.failures_survived == 0 && cluster.voters > 1 {
        let todo = "bring the others back before anything else fails";
        report.find(Severity::Warning, cluster.health(), todo);
    }
    for member in silent {
        let (id, address) = (member.id, &member.peer_address);
        let todo = match member.kind {
            MemberKind::Voter => {
                format!("start it again; if it is gone for good, `regent cluster remove {id}`")
            }
            MemberKind::Learner | MemberKind::Witness => "start it again".to_owned(),
        };
        report.find(Severity::Warning, format!("replica {id} at {address} is silent"), todo);
    }
    if let Some(left_ms) = cluster.grants_paused_for_ms {
        let what = format!("restored from a backup: grants nothing for another {left_ms} ms");
        report.find(Severity::Down, what, "wait: leases from before may still run");
    }
    for warning in &cluster.warnings {
        report.find(Severity::Warning, warning.clone(), "see `regent cluster status`");
    }
}

async fn look_at_groups(remote: &Remote, report: &mut StatusReport) {
    let count = u32::try_from(GROUPS_PAGE_MAX).ok();
    let mut query = GroupsQuery { prefix: String::new(), after: None, count };
    let (mut counts, mut vacant) = (GroupCounts::default(), Vec::new());
    for page_number in 1..=PAGES_MAX {
        let page = match remote.list_groups(&query).await {
            Ok(page) => page,
            Err(error) => return cannot_ask(report, "the groups", &error),
        };
        page.groups.iter().for_each(|office| count_in(office, &mut counts, &mut vacant));
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
        counts.is_part = page_number == PAGES_MAX;
    }
    report.groups = Some(counts);
    for group in vacant {
        // Vacant and wanted is a fault; vacant alone is a choice.
        let Ok(shown) = remote.show_group(&group).await else { continue };
        if shown.office.leader.is_none() && shown.standbys_count > 0 {
            let what = format!("nobody leads {group}, and {} stand in line", shown.standbys_count);
            let todo = format!("see `regent group show {group}` and `regent history {group}`");
            report.find(Severity::Warning, what, todo);
        }
    }
}

fn count_in(office: &Office, counts: &mut GroupCounts, vacant: &mut Vec<Group>) {
    match office.state {
        OfficeState::Leading => counts.led += 1,
        OfficeState::Elected | OfficeState::Ending => counts.changing += 1,
        OfficeState::Vacant | OfficeState::Delayed => {
            counts.vacant += 1;
            if vacant.len() < VACANT_MAX && office.moved_to.is_none() {
                vacant.push(office.group.clone());
            }
        }
    }
}

fn cannot_ask(report: &mut StatusReport, what: &str, error: &RemoteError) {
    let (severity, todo) = match error {
        RemoteError::Refused(problem) => {
            let todo = way_out(problem);
            let todo = todo.strip_prefix("; ").unwrap_or("ask as an observer").to_owned();
            (Severity::Refused, todo)
        }
        RemoteError::Unavailable { .. } | RemoteError::Uncertain { .. } => {
            let todo = "start the silent servers again, or look at their logs";
            (Severity::Down, todo.to_owned())
        }
        RemoteError::Protocol { .. } => {
            (Severity::Down, "name a Regent server with --server".to_owned())
        }
    };
    report.find(severity, format!("{what} cannot be read: {error}"), todo);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(versions: &[Option<&str>]) -> StatusReport {
        let server = |version: &Option<&str>| ServerVersion {
            address: "http://a".to_owned(),
            version: version.map(str::to_owned),
            error: version.is_none().then(|| "refused".to_owned()),
        };
        let servers = versions.iter().map(server).collect();
        let mut report =
            StatusReport { servers, cluster: None, groups: None, findings: Vec::new() };
        judge_servers(&mut report);
        report
    }

    #[test]
    fn one_silent_server_is_a_warning_and_all_of_them_are_down() {
        assert_eq!(report(&[Some("1"), Some("1")]).worst(), None);
        assert_eq!(report(&[Some("1"), None]).worst(), Some(Severity::Warning));
        assert_eq!(report(&[None, None]).worst(), Some(Severity::Down));
        let mixed = report(&[Some("1"), Some("2")]);
        assert!(mixed.findings[0].what.contains("different versions: 1, 2"), "{mixed:?}");
    }
}
