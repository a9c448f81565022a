//! What every replica says of itself, and what stands in the groups: one picture at a time.

use std::time::Duration;

use regent::remote::{Remote, Scope, Watching};
use regent_api::{ClusterResponse, GroupsQuery, Office};
use regent_replica::ReplicaId;
use regent_service::dev::DevCluster;

use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{MissedTickBehavior, interval};

use crate::failure::Failure;

/// Most groups that are shown.
const GROUPS_MAX: u32 = 20;
/// How long a replica may take to say how it is.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// The cluster at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    /// What each replica says; none if it says nothing.
    pub(super) replicas: Vec<(ReplicaId, Option<ClusterResponse>)>,
    /// Groups in the order of their names.
    pub(super) groups: Vec<Office>,
    /// Whether there are more.
    pub(super) has_more: bool,
}

impl Picture {
    /// Whether everybody answers and agrees that somebody leads.
    pub(super) fn is_complete(&self) -> bool {
        let leads = |(_, said): &(_, Option<ClusterResponse>)| {
            said.as_ref().is_some_and(|said| said.leader.is_some())
        };
        !self.replicas.is_empty() && self.replicas.iter().all(leads)
    }

    /// Who leads the log, by the highest Raft term anybody knows.
    pub(super) fn leader(&self) -> Option<(u64, u64)> {
        let said = self.replicas.iter().filter_map(|(_, said)| said.as_ref());
        let known = said.filter_map(|said| Some((said.raft_term, said.leader?)));
        known.max().map(|(raft_term, leader)| (leader, raft_term))
    }
}

/// Asks all replicas.
#[derive(Debug)]
pub(super) struct Looker {
    remotes: Vec<(ReplicaId, Remote)>,
    all: Remote,
}

impl Looker {
    pub(super) fn new(site: &DevCluster) -> Result<Self, Failure> {
        let of = |url: &str| -> Result<Remote, Failure> {
            Ok(Remote::new(url)?.with_timeout(ANSWERS_WITHIN))
        };
        let remotes = site
            .seats
            .iter()
            .map(|seat| Ok((seat.id, of(&seat.url())?)))
            .collect::<Result<_, Failure>>()?;
        Ok(Self { remotes, all: of(&site.servers())? })
    }

    /// Every change of who leads, from here on.
    pub(super) fn watch(&self) -> Watching {
        self.all.watch(Scope::Prefix(String::new()), None)
    }

    /// Looks again and again, beside whatever else is done: a replica that stands still must not hold
    /// up anything else.
    pub(super) fn pictures(self, every: Duration) -> Receiver<Picture> {
        let (send, pictures) = channel(1);
        let mut look_at = interval(every);
        look_at.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::spawn(async move {
            loop {
                look_at.tick().await;
                if send.send(self.look().await).await.is_err() {
                    return;
                }
            }
        });
        pictures
    }

    /// The cluster as it is. Whoever does not answer is left out.
    pub(super) async fn look(&self) -> Picture {
        let asked: Vec<_> = self
            .remotes
            .iter()
            .map(|(id, remote)| {
                let (id, remote) = (*id, remote.clone());
                (id, tokio::spawn(async move { remote.cluster().await.ok() }))
            })
            .collect();
        let mut picture = Picture::default();
        for (id, asked) in asked {
            picture.replicas.push((id, asked.await.ok().flatten()));
        }
        // Only the one that leads the log knows how long a leader is still valid.
        let leader = picture.leader().map(|(leader, _)| leader);
        let leading = self.remotes.iter().find(|(id, _)| Some(id.get()) == leader);
        if let Some((_, remote)) = leading {
            let query = GroupsQuery { count: Some(GROUPS_MAX), ..GroupsQuery::default() };
            if let Ok(page) = remote.list_groups(&query).await {
                picture.has_more = page.next.is_some();
                picture.groups = page.groups;
            }
        }
        picture
    }
}

#[cfg(test)]
pub(super) mod tests {
    use regent_api::ReplicaRole;

    use super::*;

    /// What a replica says of itself.
    pub(in super::super) fn said(
        replica: u64,
        raft_term: u64,
        leader: Option<u64>,
    ) -> ClusterResponse {
        ClusterResponse {
            cluster_id: "c".into(),
            replica,
            role: ReplicaRole::Follower,
            raft_term,
            leader,
            leader_address: None,
            leader_changes: 1,
            voters: 3,
            quorum: 2,
            failures_survived: 1,
            changing: false,
            last_index: 1,
            committed_index: 1,
            applied_index: 1,
            snapshot_index: 1,
            log_bytes: 1,
            snapshot_bytes: 1,
            members: Vec::new(),
            warnings: Vec::new(),
            tuning: None,
            auth: None,
        }
    }

    #[test]
    fn a_picture_is_complete_when_everybody_knows_a_leader() {
        let id = |number| ReplicaId::new(number).unwrap();
        let of = |said: [Option<ClusterResponse>; 2]| Picture {
            replicas: (1..).map(id).zip(said).collect(),
            ..Picture::default()
        };
        assert!(of([Some(said(1, 2, Some(2))), Some(said(2, 2, Some(2)))]).is_complete());
        assert!(!of([Some(said(1, 2, Some(2))), Some(said(2, 2, None))]).is_complete());
        assert!(!of([Some(said(1, 2, Some(2))), None]).is_complete());
        let split = of([Some(said(1, 2, Some(1))), Some(said(2, 3, Some(2)))]);
        assert_eq!(split.leader(), Some((2, 3)), "the higher Raft term is the later truth");
    }
}
