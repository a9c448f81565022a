//! What a replica says about itself, and by that which changes of members keep a majority alive.

use std::time::Duration;

use regent_election::Moment;

use super::Core;
use crate::limits::PROMOTED_BEHIND_MAX;
use crate::member::{Members, ReplicaId};

/// After how many of the longest election time-outs without a word of its leader a replica is led no more.
const LED_WITHIN_ELECTIONS: u64 = 4;

/// What a replica is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It follows, or waits for somebody to follow.
    Follower,
    /// It asks for votes.
    Candidate,
    /// It leads the log.
    Leader,
}

/// A replica's condition, for operators and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Which one it is.
    pub id: ReplicaId,
    /// What it is.
    pub role: Role,
    /// Raft's own term; nothing to do with any group's.
    pub raft_term: u64,
    /// Who leads the log, if that is known.
    pub leader: Option<ReplicaId>,
    /// Whether it leads and may judge sessions.
    pub is_serving: bool,
    /// Whether a quorum stands behind it, as far as it knows: it leads and was answered by enough voters lately, or it
    /// was just elected, or it hears a leader.
    pub has_quorum: bool,
    /// When that was so last, at the latest turn at which it was; none if it never was.
    pub confirmed_at: Option<Moment>,
    /// Whether its disk has room for what clients write (semantics 29).
    pub has_room: bool,
    /// Whether it leads for less than the longest election time-out: who has not answered yet may still do so.
    pub is_newly_elected: bool,
    /// Who is in the cluster, if this replica was removed from it.
    pub removed_from: Option<Members>,
    /// For how long a restored cluster still grants nothing. A follower does not know when its leader began to count, and
    /// estimates.
    pub grants_paused_for: Option<Duration>,
    /// Whether it votes and keeps the log but no state.
    pub is_witness: bool,
    /// The last entry, the last committed one, the last applied one.
    pub last: u64,
    /// See [`Status::last`].
    pub committed: u64,
    /// See [`Status::last`].
    pub applied: u64,
    /// Where the newest snapshot stands.
    pub snapshot: u64,
    /// Bytes of log in memory.
    pub log_bytes: usize,
    pub members: Members,
    /// The highest number that any member has ever had; zero if it knows of none.
    pub highest: u64,
    pub voters: Vec<ReplicaId>,
    pub learners: Vec<ReplicaId>,
    /// Whether a change of members is half done.
    pub is_joint: bool,
    /// Sessions whose time is over and whose expiry is proposed but not applied; only the leader
    /// knows any.
    pub due_expiries: usize,
    /// As the leader sees it: up to where each replica's log agrees, and whether it was heard lately.
    pub progress: Vec<(ReplicaId, u64, bool)>,
}

impl Status {
    /// Whether the Raft leader was answered by a replica lately, or is it; none if it was elected so lately that the
    /// answer may still be on its way.
    #[must_use]
    pub fn heard(&self, id: ReplicaId) -> Option<bool> {
        match self.hears(id) {
            true => Some(true),
            false if self.is_newly_elected => None,
            false => Some(false),
        }
    }

    /// Why this learner must not vote yet, as the Raft leader sees it: as a voter it would only be missed, or it would be
    /// needed for a majority, and could take that away by leaving. Only where one voter becomes two, both are needed.
    #[must_use]
    pub fn objection_to_promoting(&self, id: ReplicaId) -> Option<String> {
        if !self.hears(id) {
            return Some(format!(
                "replica {id} was not heard lately, and as a voter it would only be missed; start it, or look at its network, and ask again"
            ));
        }
        let matched = self.progress.iter().find(|(other, ..)| *other == id).map_or(0, |at| at.1);
        let committed = self.committed;
        if matched == 0 {
            return Some(format!("replica {id} has not learned anything yet; ask again"));
        }
        if committed.saturating_sub(matched) > PROMOTED_BEHIND_MAX {
            return Some(format!(
                "replica {id} has {matched} of {committed} entries, and may vote when it lacks at most {PROMOTED_BEHIND_MAX}; let it catch up"
            ));
        }
        if self.voters.len() < 2 {
            return None;
        }
        let after: Vec<_> = self.voters.iter().copied().chain([id]).collect();
        let dead = self.objection_to_voters(&after, Some(id))?;
        Some(format!("with replica {id} {dead} start it again, or remove it first"))
    }

    /// Why this replica must not be removed, as the Raft leader sees it: the rest would have no majority that is
    /// alive. While a majority is heard, one that is not heard can always go. A Raft leader that was elected a moment
    /// ago has heard nobody yet: it must not take a voter for dead that the rest needs.
    #[must_use]
    pub fn objection_to_removing(&self, id: ReplicaId) -> Option<String> {
        if !self.voters.contains(&id) {
            return None;
        }
        let after: Vec<_> = self.voters.iter().copied().filter(|voter| *voter != id).collect();
        let dead = self.objection_to_voters(&after, None)?;
        Some(format!("without replica {id} {dead} start it again, or remove it first"))
    }

    /// Says that these voters could decide nothing without `newcomer`, and who of them is not heard; none if enough are.
    fn objection_to_voters(
        &self,
        voters: &[ReplicaId],
        newcomer: Option<ReplicaId>,
    ) -> Option<String> {
        let (all, needed) = (voters.len(), voters.len() / 2 + 1);
        let (heard, silent): (Vec<ReplicaId>, Vec<ReplicaId>) = voters
            .iter()
            .copied()
            .filter(|id| Some(*id) != newcomer)
            .partition(|id| self.hears(*id));
        let heard = heard.len();
        if heard >= needed {
            return None;
        }
        let of_them = if newcomer.is_some() { "of the others" } else { "of them" };
        let silent: Vec<String> = silent.iter().map(ToString::to_string).collect();
        Some(format!(
            "there would be {all} voters, which need {needed} to decide anything, and only {heard} {of_them} would be heard; not heard: replica {};",
            silent.join(", replica ")
        ))
    }

    /// Whether the Raft leader was answered by this replica lately, or is it.
    fn hears(&self, id: ReplicaId) -> bool {
        id == self.id || self.progress.iter().any(|(other, _, heard)| *other == id && *heard)
    }
}

impl Core {
    /// This replica's condition.
    #[must_use]
    pub fn status(&self) -> Status {
        let raft = &self.node.raft;
        let log = self.node.store();
        let ids = |numbers: &[u64]| numbers.iter().filter_map(|id| ReplicaId::new(*id)).collect();
        let progress = raft.prs().iter().filter_map(|(id, progress)| {
            let id = ReplicaId::new(*id)?;
            Some((id, progress.matched, self.was_heard_lately(id)))
        });
        let mut progress: Vec<_> = progress.collect();
        progress.sort_unstable();
        Status {
            id: self.config.id,
            role: self.role,
            raft_term: raft.term,
            leader: self.leader(),
            is_serving: self.ledger.is_serving(),
            has_quorum: self.has_quorum(),
            confirmed_at: self.confirmed_at,
            has_room: self.has_room,
            is_newly_elected: self.is_newly_elected(),
            removed_from: self.removed_from().cloned(),
            grants_paused_for: self.grants_paused_for(),
            is_witness: self.config.is_witness,
            last: raft.raft_log.last_index(),
            committed: raft.raft_log.committed,
            applied: self.applied,
            snapshot: log.snapshot_place().index,
            log_bytes: log.bytes(),
            members: self.ledger.kept().members.clone(),
            highest: self.ledger.kept().highest,
            voters: ids(&log.members().voters),
            learners: ids(&log.members().learners),
            is_joint: !log.members().voters_outgoing.is_empty(),
            due_expiries: self.ledger.expiring(),
            progress,
        }
    }

    /// Whether this replica was answered by another one within the longest election time-out. The library's own mark
    /// is wiped with every check of the quorum, and set for members that never said anything.
    fn was_heard_lately(&self, id: ReplicaId) -> bool {
        let within = Duration::from_millis(self.timing.election_ms_max());
        self.answered_at.get(&id).is_some_and(|at| self.now.since(*at) <= within)
    }

    /// Notes that a quorum stands behind this replica.
    pub(super) fn note_quorum(&mut self) {
        if self.has_quorum() {
            self.confirmed_at = Some(self.now);
        }
    }

    /// See [`Status::has_quorum`]. While members change, the voters before and after the change both have to be heard.
    fn has_quorum(&self) -> bool {
        match self.role {
            Role::Leader => {
                let members = self.node.store().members();
                let is_heard = |id: &&u64| {
                    let id = ReplicaId::new(**id);
                    id.is_some_and(|id| id == self.config.id || self.was_heard_lately(id))
                };
                let is_majority =
                    |of: &[u64]| of.is_empty() || of.iter().filter(is_heard).count() > of.len() / 2;
                let are_heard =
                    is_majority(&members.voters) && is_majority(&members.voters_outgoing);
                are_heard || self.is_newly_elected()
            }
            Role::Follower | Role::Candidate => self.is_led() && self.removed_from().is_none(),
        }
    }

    /// Whether another replica leads this one and was heard lately. A voter stops believing in its leader by itself, after
    /// an election time-out; this is for those that never stand for election, so a busy machine may take its time.
    pub(super) fn is_led(&self) -> bool {
        let within = Duration::from_millis(LED_WITHIN_ELECTIONS * self.timing.election_ms_max());
        let is_heard = self.contact_at.is_some_and(|at| self.now.since(at) <= within);
        self.role != Role::Leader && self.leader().is_some() && is_heard
    }

    fn is_newly_elected(&self) -> bool {
        let within = Duration::from_millis(self.timing.election_ms_max());
        self.role == Role::Leader && self.now.since(self.led_since) <= within
    }

    /// What it is at the moment.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Whether it leads and may judge sessions.
    #[must_use]
    pub const fn is_serving(&self) -> bool {
        self.ledger.is_serving()
    }

    /// Raft's own term.
    #[must_use]
    pub fn raft_term(&self) -> u64 {
        self.node.raft.term
    }

    /// The last entry applied.
    #[must_use]
    pub const fn applied(&self) -> u64 {
        self.applied
    }

    /// Whether an entry is half applied: [`Core::replicated`] is then between two revisions.
    #[must_use]
    pub const fn is_between(&self) -> bool {
        self.applying.is_some()
    }

    /// What the replica has applied, for checks and stale reads.
    #[must_use]
    pub const fn replicated(&self) -> &crate::ReplicatedState {
        self.ledger.kept()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> ReplicaId {
        ReplicaId::new(number).unwrap()
    }

    /// A cluster led by replica 1, of which these were heard.
    fn status(voters: &[u64], learners: &[u64], heard: &[u64]) -> Status {
        let ids = |of: &[u64]| of.iter().map(|number| id(*number)).collect::<Vec<_>>();
        let all = voters.iter().chain(learners);
        Status {
            id: id(1),
            role: Role::Leader,
            raft_term: 1,
            leader: Some(id(1)),
            is_serving: true,
            has_quorum: true,
            confirmed_at: None,
            has_room: true,
            is_newly_elected: false,
            removed_from: None,
            grants_paused_for: None,
            is_witness: false,
            last: 10,
            committed: 10,
            applied: 10,
            snapshot: 0,
            log_bytes: 0,
            members: Members::new(),
            highest: 9,
            voters: ids(voters),
            learners: ids(learners),
            is_joint: false,
            due_expiries: 0,
            progress: all.map(|number| (id(*number), 10, heard.contains(number))).collect(),
        }
    }

    #[test]
    fn a_promotion_needs_a_majority_that_is_heard_without_the_new_voter() {
        let heard = status(&[1, 2, 3], &[4], &[2, 4]);
        assert!(heard.objection_to_promoting(id(4)).is_some(), "three of four, one of them new");
        let all = status(&[1, 2, 3], &[4], &[2, 3, 4]);
        assert_eq!(all.objection_to_promoting(id(4)), None, "three of four without it");
        assert_eq!(status(&[1, 2], &[3], &[2, 3]).objection_to_promoting(id(3)), None);
        let alone = status(&[1, 2, 3], &[4], &[4]);
        let why = alone.objection_to_promoting(id(4)).unwrap();
        assert!(why.contains("4 voters, which need 3"), "{why}");
        assert!(why.contains("not heard: replica 2, replica 3;"), "{why}");
        assert_eq!(
            status(&[1], &[2], &[2]).objection_to_promoting(id(2)),
            None,
            "one grows to two"
        );
        assert!(status(&[1], &[2], &[]).objection_to_promoting(id(2)).is_some());
    }

    #[test]
    fn a_removal_leaves_a_majority_that_is_heard_or_takes_one_that_is_not() {
        let one_dead = status(&[1, 2, 3], &[], &[2]);
        assert!(one_dead.objection_to_removing(id(2)).is_some());
        assert!(one_dead.objection_to_removing(id(1)).is_some(), "the leader itself");
        assert_eq!(one_dead.objection_to_removing(id(3)), None);
        let just_elected = status(&[1, 2, 3], &[], &[]);
        assert!(just_elected.objection_to_removing(id(2)).is_some(), "nobody was heard yet");
        let all = status(&[1, 2, 3], &[4], &[2, 3]);
        assert_eq!(all.objection_to_removing(id(1)), None);
        assert_eq!(all.objection_to_removing(id(4)), None, "a learner counts in no majority");
    }
}
