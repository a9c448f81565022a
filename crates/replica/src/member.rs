//! Who is in the cluster: ids, addresses, roles, and changes of them.

use std::collections::BTreeMap;
use std::fmt;

use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};
use regent_election::codec::{CodecError, Input, Wire, put_block};

/// One replica of a cluster; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(u64);

impl ReplicaId {
    /// A replica's number, if it is not zero.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }

    /// The plain number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is known of one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where its peers reach it.
    pub peer_address: String,
    /// Where clients reach it.
    pub client_address: String,
    /// Whether it votes and keeps the log but no state.
    pub is_witness: bool,
}

/// All members, voters and learners.
pub type Members = BTreeMap<ReplicaId, Member>;

/// A change of members. One at a time, by joint consensus, left explicitly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// Takes a replica in as a learner: it receives everything and counts for nothing.
    Add { id: ReplicaId, member: Member },
    /// Makes a learner a voter.
    Promote { id: ReplicaId },
    /// Removes a replica, whatever it is.
    Remove { id: ReplicaId },
    /// Ends the joint configuration that another change began.
    LeaveJoint,
}

impl MemberChange {
    /// The change as the library knows it.
    #[must_use]
    pub fn to_raft(&self) -> ConfChangeV2 {
        let mut change = ConfChangeV2::default();
        change.set_transition(ConfChangeTransition::Explicit);
        let single = match self {
            Self::Add { id, .. } => Some((ConfChangeType::AddLearnerNode, *id)),
            Self::Promote { id } => Some((ConfChangeType::AddNode, *id)),
            Self::Remove { id } => Some((ConfChangeType::RemoveNode, *id)),
            Self::LeaveJoint => {
                change.set_transition(ConfChangeTransition::Auto);
                None
            }
        };
        if let Some((kind, id)) = single {
            let mut one = ConfChangeSingle::default();
            one.set_change_type(kind);
            one.node_id = id.get();
            change.set_changes(vec![one].into());
        }
        change
    }

    /// The change as bytes of our own.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Add { id, member } => {
                out.push(1);
                id.get().put(out);
                put_member(member, out);
            }
            Self::Promote { id } => {
                out.push(2);
                id.get().put(out);
            }
            Self::Remove { id } => {
                out.push(3);
                id.get().put(out);
            }
            Self::LeaveJoint => out.push(4),
        }
    }

    /// Reads what [`MemberChange::put`] wrote.
    pub fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        match u8::take(input)? {
            1 => Ok(Self::Add { id: take_id(input)?, member: take_member(input)? }),
            2 => Ok(Self::Promote { id: take_id(input)? }),
            3 => Ok(Self::Remove { id: take_id(input)? }),
            4 => Ok(Self::LeaveJoint),
            tag => Err(CodecError::Unknown { what: "a change of members", tag: tag.into() }),
        }
    }
}

/// Reads a replica's number.
pub fn take_id(input: &mut Input<'_>) -> Result<ReplicaId, CodecError> {
    ReplicaId::new(u64::take(input)?)
        .ok_or(CodecError::Malformed { what: "a replica's number", why: "zero is nobody".into() })
}

/// Appends a member.
pub fn put_member(member: &Member, out: &mut Vec<u8>) {
    put_block(member.peer_address.as_bytes(), out);
    put_block(member.client_address.as_bytes(), out);
    member.is_witness.put(out);
}

/// Reads what [`put_member`] wrote.
pub fn take_member(input: &mut Input<'_>) -> Result<Member, CodecError> {
    let mut address = |what| {
        let bytes = input.block(what)?.to_vec();
        String::from_utf8(bytes).map_err(|why| CodecError::Malformed { what, why: why.to_string() })
    };
    let peer_address = address("a peer address")?;
    let client_address = address("a client address")?;
    Ok(Member { peer_address, client_address, is_witness: Wire::take(input)? })
}

/// How many voters may fail before the rest can no longer decide.
#[must_use]
pub const fn failures_survived(voters: usize) -> usize {
    voters.saturating_sub(1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_survive_being_written_and_read() {
        let id = ReplicaId::new(4).unwrap();
        let member = Member {
            peer_address: "10.0.0.4:7401".into(),
            client_address: "10.0.0.4:7400".into(),
            is_witness: true,
        };
        for change in [
            MemberChange::Add { id, member },
            MemberChange::Promote { id },
            MemberChange::Remove { id },
            MemberChange::LeaveJoint,
        ] {
            let mut out = Vec::new();
            change.put(&mut out);
            assert_eq!(MemberChange::take(&mut Input::new(&out)), Ok(change));
            for cut in 0..out.len() {
                assert!(MemberChange::take(&mut Input::new(&out[..cut])).is_err());
            }
        }
    }

    #[test]
    fn odd_counts_survive_what_theory_says() {
        let survived = [1, 2, 3, 4, 5, 7, 9].map(failures_survived);
        assert_eq!(survived, [0, 0, 1, 1, 2, 3, 4]);
    }
}
