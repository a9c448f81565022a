//! A cluster as its replicas describe it, and what stands in its groups: one picture at a time.
//!
//! `regent dev` shows these pictures. A replica that does not answer is part of a picture like any other.

use std::time::Duration;

use regent::remote::{AddressError, Remote, Scope, Watching};
use regent_api::{ClusterResponse, GroupsQuery, Office, ReplicaRole};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{MissedTickBehavior, interval};

/// Most groups in a picture.
const GROUPS_MAX: u32 = 20;
/// How long a replica may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// The cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct ClusterPicture {
    /// What each replica says of itself, by its number; none if it does not answer.
    pub replicas: Vec<(u64, Option<ClusterResponse>)>,
    /// Groups in the order of their names; at most 20. None if they are not known: no replica that answers can decide.
    pub groups: Option<Vec<Office>>,
    /// Whether there are more groups.
    pub has_more: bool,
}

/// How a picture differs from the one before, as far as replicas are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaNews {
    /// Another number of voters is heard, or a quorum was lost or is back: how the cluster is, in words.
    Health(String),
    /// It answered before and does not any more.
    Silent(u64),
    /// It answers, and did not before.
    Answers(u64),
    /// Another replica leads the log, or the same one in a later term.
    Leads {
        /// Its number.
        replica: u64,
        /// The Raft term in which it leads.
        raft_term: u64,
    },
}

impl std::fmt::Display for ReplicaNews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Health(health) => health.fmt(f),
            Self::Silent(replica) => write!(f, "replica {replica} does not answer"),
            Self::Answers(replica) => write!(f, "replica {replica} answers"),
            Self::Leads { replica, raft_term } => {
                write!(f, "replica {replica} leads the log, Raft term {raft_term}")
            }
        }
    }
}

impl ClusterPicture {
    /// Whether all replicas answer and know a leader.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let leads = |(_, said): &(_, Option<ClusterResponse>)| {
            said.as_ref().is_some_and(|said| said.leader.is_some())
        };
        !self.replicas.is_empty() && self.replicas.iter().all(leads)
    }

    /// What a replica says of itself, if it answers.
    #[must_use]
    pub fn replica(&self, number: u64) -> Option<&ClusterResponse> {
        self.replicas.iter().find(|(id, _)| *id == number).and_then(|(_, said)| said.as_ref())
    }

    /// The replica that leads the log and its term, by the highest Raft term that any replica knows.
    #[must_use]
    pub fn leader(&self) -> Option<(u64, u64)> {
        let said = self.replicas.iter().filter_map(|(_, said)| said.as_ref());
        let known = said.filter_map(|said| Some((said.raft_term, said.leader?)));
        known.max().map(|(raft_term, leader)| (leader, raft_term))
    }

    /// What the replica says that knows most: the one that leads, by the highest Raft term; if none leads, the one that
    /// hears most voters.
    #[must_use]
    pub fn best_informed(&self) -> Option<&ClusterResponse> {
        let said = self.replicas.iter().filter_map(|(_, said)| said.as_ref());
        said.max_by_key(|said| {
            let leads = said.role == ReplicaRole::Leader;
            (said.can_decide(), leads, said.raft_term, said.voters_heard)
        })
    }

    /// How the cluster is, in words: how many voters are heard and how many more may fail, or that there is no quorum.
    #[must_use]
    pub fn health(&self) -> String {
        match self.best_informed() {
            None => "no replica answers: groups unknown".to_owned(),
            Some(said) if said.can_decide() => said.health(),
            Some(said) => format!("{}: groups unknown", said.health()),
        }
    }

    /// What is different from an earlier picture.
    #[must_use]
    pub fn since(&self, before: &Self) -> Vec<ReplicaNews> {
        let mut news = Vec::new();
        for (id, said) in &self.replicas {
            match (before.replica(*id).is_some(), said.is_some()) {
                (true, false) => news.push(ReplicaNews::Silent(*id)),
                (false, true) => news.push(ReplicaNews::Answers(*id)),
                (true, true) | (false, false) => {}
            }
        }
        if let Some((replica, raft_term)) = self.leader()
            && before.leader() != Some((replica, raft_term))
        {
            news.push(ReplicaNews::Leads { replica, raft_term });
        }
        let health = self.health();
        if before.health() != health {
            news.push(ReplicaNews::Health(health));
        }
        news
    }
}

/// Asks all replicas of a cluster.
#[derive(Debug)]
pub struct ClusterObserver {
    remotes: Vec<(u64, Remote)>,
    all: Remote,
}

impl ClusterObserver {
    /// Asks each replica at its own URL, and watches groups through any of them.
    ///
    /// # Errors
    /// A URL is none of a Regent server.
    pub fn new(
        replicas: impl IntoIterator<Item = (u64, String)>,
        all: &str,
    ) -> Result<Self, AddressError> {
        let of = |url: &str| Ok(Remote::new(url)?.with_timeout(ANSWERS_WITHIN));
        let remotes = replicas.into_iter().map(|(id, url)| Ok((id, of(&url)?)));
        Ok(Self { remotes: remotes.collect::<Result<_, AddressError>>()?, all: of(all)? })
    }

    /// Every change of who leads, from here on.
    #[must_use]
    pub fn watch(&self) -> Watching {
        self.all.watch(Scope::Prefix(String::new()), None)
    }

    /// Takes a picture again and again, in a task of its own: a replica that does not answer must not
    /// delay the caller. The task ends when the receiver is dropped.
    #[must_use]
    pub fn pictures(self, every: Duration) -> Receiver<ClusterPicture> {
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

    /// The cluster as it is now.
    pub async fn look(&self) -> ClusterPicture {
        let asked: Vec<_> = self
            .remotes
            .iter()
            .map(|(id, remote)| {
                let (id, remote) = (*id, remote.clone());
                (id, tokio::spawn(async move { remote.cluster().await.ok() }))
            })
            .collect();
        let mut picture = ClusterPicture::default();
        for (id, asked) in asked {
            picture.replicas.push((id, asked.await.ok().flatten()));
        }
        // Only the replica that leads the log knows how long a leader is still valid.
        let can_decide = picture.best_informed().is_some_and(ClusterResponse::can_decide);
        let leader = picture.leader().map(|(leader, _)| leader).filter(|_| can_decide);
        let leading = self.remotes.iter().find(|(id, _)| Some(*id) == leader);
        if let Some((_, remote)) = leading {
            let query = GroupsQuery { count: Some(GROUPS_MAX), ..GroupsQuery::default() };
            if let Ok(page) = remote.list_groups(&query).await {
                picture.has_more = page.next.is_some();
                picture.groups = Some(page.groups);
            }
        }
        picture
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a replica says of itself.
    fn said(replica: u64, raft_term: u64, leader: Option<u64>) -> ClusterResponse {
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
            voters_heard: Some(3),
            has_quorum: Some(true),
            failures_survived: 1,
            removed: false,
            grants_paused_for_ms: None,
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
            caller: None,
        }
    }

    fn picture(said: [Option<ClusterResponse>; 2]) -> ClusterPicture {
        ClusterPicture { replicas: (1..).zip(said).collect(), ..ClusterPicture::default() }
    }

    #[test]
    fn a_picture_is_complete_when_all_replicas_know_a_leader() {
        assert!(picture([Some(said(1, 2, Some(2))), Some(said(2, 2, Some(2)))]).is_complete());
        assert!(!picture([Some(said(1, 2, Some(2))), Some(said(2, 2, None))]).is_complete());
        assert!(!picture([Some(said(1, 2, Some(2))), None]).is_complete());
        let split = picture([Some(said(1, 2, Some(1))), Some(said(2, 3, Some(2)))]);
        assert_eq!(split.leader(), Some((2, 3)), "the higher Raft term is the later truth");
    }

    #[test]
    fn a_silent_replica_and_its_successor_are_reported_once() {
        let before = picture([Some(said(1, 2, Some(1))), Some(said(2, 2, Some(1)))]);
        let after = picture([None, Some(said(2, 3, Some(2)))]);
        let news = [ReplicaNews::Silent(1), ReplicaNews::Leads { replica: 2, raft_term: 3 }];
        assert_eq!(after.since(&before), news);
        assert!(after.since(&after).is_empty());
        assert_eq!(before.since(&after)[0], ReplicaNews::Answers(1));
    }

    #[test]
    fn health_is_what_the_leading_replica_hears_and_without_a_quorum_groups_are_unknown() {
        let leads = ClusterResponse { role: ReplicaRole::Leader, ..said(1, 2, Some(1)) };
        let all = picture([Some(leads.clone()), Some(said(2, 2, Some(1)))]);
        assert_eq!(all.health(), "3 of 3 heard, survives 1 failure");
        let heard = ClusterResponse { voters_heard: Some(2), failures_survived: 0, ..leads };
        let one_lost = picture([Some(heard), None]);
        assert_eq!(one_lost.health(), "2 of 3 heard, survives no further failure");
        let alone = ClusterResponse {
            voters_heard: Some(1),
            has_quorum: Some(false),
            failures_survived: 0,
            ..said(1, 2, None)
        };
        let minority = picture([Some(alone), None]);
        assert_eq!(minority.health(), "1 of 3 heard, no quorum: groups unknown");
        assert_eq!(picture([None, None]).health(), "no replica answers: groups unknown");
        let news = ReplicaNews::Health(minority.health());
        assert!(minority.since(&one_lost).contains(&news));
    }
}
