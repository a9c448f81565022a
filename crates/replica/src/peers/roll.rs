//! Who is listened to: members, and those who may be members without this replica knowing it yet.
//!
//! Everybody else is refused before anything of Raft is read, and remembered nowhere. Three replicas
//! may not know their own peers:
//! - one that joins knows nobody until the leader has sent it the list;
//! - one that has just started knows the list of its last snapshot, and of later changes only what
//!   its log says, which is applied once a leader says how far it is committed;
//! - one that was away while others were added knows none of those. Numbers only rise, so these are
//!   above all that were ever used as far as it knows, and it has no leader among its members, or it
//!   would hear of the change.
//!
//! None of these three counts such a peer in a quorum: that takes a member. So such a peer is heard
//! on trial, and its incarnation is written down when it turns out to be a member. Until then it may lead
//! and ask for votes, and nothing else of it is heard (`core/admission.rs`).

use std::collections::BTreeSet;

use raft::eraftpb::Entry;

use crate::core::Status;
use crate::member::{MemberChange, Members, ReplicaId};
use crate::replicated::{Payload, payload};

/// What a peer is to this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is a member, or still counts in a change of members that is half done.
    Member,
    /// It may be a member for all this replica knows.
    OnTrial,
    /// It is nobody.
    Stranger,
}

/// What this replica knows of who is in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Roll {
    pub(super) members: Members,
    /// Members, and those that a half-done change still counts.
    counted: BTreeSet<ReplicaId>,
    /// The highest number that any member has ever had, as far as this replica has applied.
    highest: u64,
    /// Whom the log on the disk adds, until it is applied.
    awaited: BTreeSet<ReplicaId>,
    /// Where that log ends.
    replayed_at: u64,
}

impl Roll {
    /// What a replica knows that starts with this status, and with these entries on its disk.
    pub(super) fn new(status: &Status, entries: &[Entry]) -> Self {
        let mut roll = Self {
            members: Members::new(),
            counted: BTreeSet::new(),
            highest: 0,
            awaited: awaited(entries, status.committed),
            replayed_at: entries.last().map_or(0, |entry| entry.index),
        };
        roll.follow(status);
        roll
    }

    /// Takes over what the replica knows now.
    pub(super) fn follow(&mut self, status: &Status) {
        self.members.clone_from(&status.members);
        let in_raft = status.progress.iter().map(|(id, ..)| *id);
        self.counted = status.members.keys().copied().chain(in_raft).collect();
        self.highest = status.highest;
        if status.applied >= self.replayed_at {
            self.awaited.clear();
        }
    }

    pub(super) fn is_member(&self, id: ReplicaId) -> bool {
        self.counted.contains(&id)
    }

    /// Whether a number was a member's and is none's any more. Numbers are never used again, so this stays true.
    pub(super) fn has_removed(&self, id: ReplicaId) -> bool {
        !self.is_member(id) && id.get() <= self.highest
    }

    /// Whether this replica is the whole cluster: nobody has a reason to dial it.
    pub(super) fn is_alone(&self, own: ReplicaId) -> bool {
        self.counted.len() == 1 && self.is_member(own)
    }

    /// What a peer is. `led_by` is the leader if it was heard lately, `has_met` says whether the number
    /// has been a member's before.
    pub(super) fn standing(
        &self,
        id: ReplicaId,
        led_by: Option<ReplicaId>,
        has_met: bool,
    ) -> Standing {
        if self.is_member(id) {
            return Standing::Member;
        }
        let knows_nobody = self.counted.is_empty();
        let is_led_by_member = led_by.is_some_and(|leader| self.is_member(leader));
        let highest = self.counted.last().map_or(0, |last| last.get()).max(self.highest);
        let is_later = id.get() > highest && !has_met;
        if knows_nobody || self.awaited.contains(&id) || (is_later && !is_led_by_member) {
            Standing::OnTrial
        } else {
            Standing::Stranger
        }
    }
}

/// Whom these entries add and do not remove again. A removal counts once it is committed: before that its replica
/// may lead.
fn awaited(entries: &[Entry], committed: u64) -> BTreeSet<ReplicaId> {
    let mut awaited = BTreeSet::new();
    for entry in entries {
        match payload(entry) {
            Ok(Payload::Members(MemberChange::Add { id, .. })) => {
                awaited.insert(id);
            }
            Ok(Payload::Members(MemberChange::Remove { id })) if entry.index <= committed => {
                awaited.remove(&id);
            }
            // What cannot be read stops the replica when it is applied.
            Ok(_) | Err(_) => {}
        }
    }
    awaited
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> ReplicaId {
        ReplicaId::new(number).unwrap()
    }

    fn roll(counted: &[u64], awaited: &[u64]) -> Roll {
        let ids = |numbers: &[u64]| numbers.iter().map(|number| id(*number)).collect();
        let (counted, awaited) = (ids(counted), ids(awaited));
        Roll { members: Members::new(), counted, highest: 0, awaited, replayed_at: 0 }
    }

    #[test]
    fn a_replica_that_is_led_hears_members_only() {
        let led = roll(&[1, 2, 3], &[]);
        assert_eq!(led.standing(id(2), Some(id(1)), true), Standing::Member);
        for stranger in [4, 5, u64::MAX] {
            assert_eq!(led.standing(id(stranger), Some(id(1)), false), Standing::Stranger);
        }
    }

    #[test]
    fn a_replica_without_a_leader_hears_later_numbers_but_nobody_who_was_removed() {
        let lost = roll(&[1, 3], &[]);
        assert_eq!(lost.standing(id(4), None, false), Standing::OnTrial);
        assert_eq!(lost.standing(id(4), None, true), Standing::Stranger, "it was removed");
        assert_eq!(lost.standing(id(2), None, false), Standing::Stranger, "it was removed");
        // Led by one of those on trial it still does not know them.
        assert_eq!(lost.standing(id(4), Some(id(4)), false), Standing::OnTrial);
    }

    #[test]
    fn a_number_that_was_ever_used_is_never_later() {
        let lost = Roll { highest: 7, ..roll(&[1, 3], &[]) };
        for used in [4, 7] {
            assert_eq!(lost.standing(id(used), None, false), Standing::Stranger, "{used}");
            assert!(lost.has_removed(id(used)), "{used}");
        }
        assert!(!lost.has_removed(id(3)) && !lost.has_removed(id(8)));
        assert_eq!(lost.standing(id(8), None, false), Standing::OnTrial);
    }

    #[test]
    fn one_that_joins_hears_whoever_leads_and_one_that_starts_whom_its_log_adds() {
        assert_eq!(roll(&[], &[]).standing(id(1), None, false), Standing::OnTrial);
        let started = roll(&[1, 2, 3], &[4]);
        assert_eq!(started.standing(id(4), None, true), Standing::OnTrial);
        assert_eq!(started.standing(id(5), None, true), Standing::Stranger);
    }

    /// An entry that changes the members.
    fn entry(index: u64, change: &MemberChange) -> Entry {
        let mut entry = Entry::default();
        entry.set_entry_type(raft::eraftpb::EntryType::EntryConfChangeV2);
        entry.index = index;
        let mut context = Vec::new();
        change.put(&mut context);
        entry.context = context.into();
        entry
    }

    #[test]
    fn one_that_starts_does_not_wait_for_a_replica_that_its_log_has_removed() {
        let member = crate::member::Member {
            peer_address: "127.0.0.1:1".into(),
            client_address: "127.0.0.1:2".into(),
            is_witness: false,
        };
        let added = entry(5, &MemberChange::Add { id: id(4), member });
        let removed = entry(6, &MemberChange::Remove { id: id(4) });
        let log = [added, removed];
        assert_eq!(awaited(&log[..1], 6), [id(4)].into());
        assert_eq!(awaited(&log, 6), BTreeSet::new());
        assert_eq!(awaited(&log, 5), [id(4)].into(), "the removal may be taken back");
    }

    #[test]
    fn only_one_that_is_the_whole_cluster_is_alone() {
        assert!(roll(&[1], &[]).is_alone(id(1)));
        assert!(!roll(&[1, 2], &[]).is_alone(id(1)));
        assert!(!roll(&[], &[]).is_alone(id(1)), "one that joins waits to be dialled");
        assert!(!roll(&[2], &[]).is_alone(id(1)));
    }
}
