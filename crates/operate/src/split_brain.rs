//! Split-brain detection: which nodes act as leaders, as all servers have heard it, and which one may.

use std::collections::BTreeMap;

use regent::remote::Remote;
use regent_api::{BelieverBody, ClaimsQuery, Consistency, FencesQuery, LeaderResponse};
use regent_election::{Cause, Group};
use serde::{Serialize, Serializer};

/// Everything that was found.
#[derive(Debug, Serialize)]
pub struct SplitBrainReport {
    /// Whether a node acts that must not.
    pub split_brain: bool,
    /// Groups in which nodes act.
    pub groups: Vec<CombinedView>,
    /// Servers that could not be asked, and why.
    pub unasked: Vec<(String, String)>,
}

/// Looks at one group, or at every group that is disputed.
pub async fn survey(servers: &Servers, group: Option<&Group>) -> SplitBrainReport {
    let (found, unasked) = servers.believers(group).await;
    let mut groups = Vec::new();
    for (group, believers) in found {
        groups.push(servers.sight(group, believers).await);
    }
    let is_accused = |sight: &CombinedView| sight.believers.iter().any(Seen::is_accused);
    SplitBrainReport { split_brain: groups.iter().any(is_accused), groups, unasked }
}

/// One group, as all servers see it together.
#[derive(Debug, Serialize)]
pub struct CombinedView {
    #[serde(serialize_with = "text")]
    pub group: Group,
    /// What a quorum says; none if it could not be asked.
    pub office: Option<LeaderResponse>,
    /// The nodes that act.
    pub believers: Vec<Seen>,
    /// What its resources have admitted.
    pub fences: Vec<(String, u64)>,
    /// The findings in its history, with their reasons.
    pub findings: Vec<(&'static str, String)>,
}

fn text<S: Serializer>(group: &Group, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(group)
}

/// A node that acts, and the server that heard it.
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    pub server: String,
    /// What the node claims.
    #[serde(flatten)]
    pub believer: BelieverBody,
}

impl Seen {
    /// Whether it was heard within its ttl: a process that was killed says nothing more.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.believer.heard_ms_ago < self.believer.ttl_ms
    }

    /// Whether it acts and must not.
    #[must_use]
    pub fn is_accused(&self) -> bool {
        self.believer.standing == "accused"
    }
}

impl CombinedView {
    /// The summary, what resources have admitted, what the history says, and the way out if somebody is accused.
    #[must_use]
    pub fn told(&self) -> String {
        let mut text = self.summary();
        for (resource, term) in &self.fences {
            text.push_str(&format!("\n  resource {resource} has admitted term {term}"));
        }
        for (finding, reason) in &self.findings {
            text.push_str(&format!("\n  history: {finding}: {reason}"));
        }
        if self.believers.iter().any(Seen::is_accused) {
            let group = &self.group;
            text.push_str(&format!(
                "\n  the way out: regent doctor split-brain --group {group} --recover"
            ));
        }
        text
    }

    /// Whether two that act have told different states.
    #[must_use]
    pub fn has_diverged(&self) -> bool {
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

    /// The same with what resources admitted and what the history says.
    #[must_use]
    pub fn described(&self) -> String {
        let mut told = self.summary();
        for (resource, term) in &self.fences {
            told.push_str(&format!(
                "\n  resource {resource} has admitted term {term}, and no lower one since"
            ));
        }
        for (finding, reason) in &self.findings {
            told.push_str(&format!("\n  history: {finding}: {reason}"));
        }
        if self.fences.is_empty() {
            told.push_str(
                "\n  no resource is fenced by this service: look at what was written where",
            );
        }
        told
    }

    /// What it comes to, in a sentence.
    #[must_use]
    pub fn summary(&self) -> String {
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

/// All servers of a store. Each reports what it has heard itself, so all of them are asked.
#[derive(Debug)]
pub struct Servers {
    all: Vec<(String, Remote)>,
    pub(crate) any: Remote,
}

impl Servers {
    /// These servers by their URLs, each with its own client, and one client for any of them.
    #[must_use]
    pub const fn new(any: Remote, all: Vec<(String, Remote)>) -> Self {
        Self { all, any }
    }

    /// The nodes that act, as all servers have heard it, and the servers that could not be asked.
    pub async fn believers(
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
    pub async fn sight(&self, group: Group, believers: Vec<Seen>) -> CombinedView {
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
        CombinedView { group, office, believers, fences, findings }
    }
}
