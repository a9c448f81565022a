//! What every replica must agree on: the state of elections, the members, and which proposals of
//! each replica have been applied.
//!
//! A proposal is named by the replica it came from, that replica's boot, and a rising number. It is
//! applied only if boot and number are above the last ones of that replica: a message that the
//! network delivered twice, even to two leaders in turn, takes effect once (S9).

use std::collections::BTreeMap;

use raft::eraftpb::{Entry as LogEntry, EntryType};
use regent_election::codec::{CodecError, Input, Wire, decode_entry, encode_entry, put_block};
use regent_election::mutant::{self, Mutant};
use regent_election::{Entry, Settings, State};

use crate::limits::{BOOT_LEAP_MAX, MEMBERS_LISTED_MAX, PROPOSAL_LEAP_MAX};
use crate::member::{Member, MemberChange, Members, ReplicaId, put_member, take_id, take_member};

/// The version that opens every encoded [`ReplicatedState`].
///
/// 2 added [`ReplicatedState::has_no_state`], 3 [`ReplicatedState::highest`], 4 [`ReplicatedState::pause_ms`]. Earlier ones
/// are read, and 3 is written where there is nothing of 4: builds that know only that read all but such a restore.
pub const REPLICATED_VERSION: u8 = 4;

/// Where a proposal came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The replica whose client asked.
    pub replica: ReplicaId,
    /// Which run of that replica: counted on its disk, so a later run has a higher number.
    pub boot: u64,
    /// Rises with every proposal of that run.
    pub number: u64,
}

/// What a log entry carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Nothing: the first entry of a Raft leader.
    Empty,
    /// Something for the state of elections.
    Proposal(Origin, Entry),
    /// A change of members.
    Members(MemberChange),
    /// The hold after a restore is over.
    Release,
}

/// What marks the entry that ends the hold after a restore.
pub const RELEASE: &[u8] = b"release";

/// Whether a replica whose last known proposal has boot and number `last` cannot have come this far. Applied, such a
/// proposal would make every later one of that replica an old one.
#[must_use]
pub const fn leaps(last: (u64, u64), boot: u64, number: u64) -> bool {
    let numbered_from = if boot == last.0 { last.1 } else { 0 };
    boot.saturating_sub(last.0) > BOOT_LEAP_MAX
        || number.saturating_sub(numbered_from) > PROPOSAL_LEAP_MAX
}

/// The bytes of a proposal.
#[must_use]
pub fn encode_proposal(origin: Origin, entry: &Entry) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    origin.replica.get().put(&mut out);
    origin.boot.put(&mut out);
    origin.number.put(&mut out);
    out.extend(encode_entry(entry));
    out
}

/// What a log entry carries, or why its bytes make no sense.
pub fn payload(entry: &LogEntry) -> Result<Payload, CodecError> {
    match entry.entry_type {
        EntryType::EntryNormal if &*entry.context == RELEASE => Ok(Payload::Release),
        EntryType::EntryNormal if entry.data.is_empty() => Ok(Payload::Empty),
        EntryType::EntryNormal => {
            let mut input = Input::new(&entry.data);
            let origin = Origin {
                replica: take_id(&mut input)?,
                boot: u64::take(&mut input)?,
                number: u64::take(&mut input)?,
            };
            Ok(Payload::Proposal(origin, decode_entry(input.rest())?))
        }
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
            let mut input = Input::new(&entry.context);
            let change = MemberChange::take(&mut input)?;
            input.end()?;
            Ok(Payload::Members(change))
        }
    }
}

/// Everything that replicas agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicatedState {
    pub state: State,
    pub members: Members,
    /// Whether nobody may be granted anything because leases of an earlier life may still run. The
    /// Raft leader ends it when the longest of them is over.
    pub grants_paused: bool,
    /// For how long they are paused, in milliseconds, if an operator said that no lease of the earlier life was longer
    /// (semantics 23); none for the longest ttl that the settings allow.
    pub pause_ms: Option<u64>,
    /// Whether there is no state in it: a witness keeps none. It travels with the bytes, so that nobody
    /// ever takes the state that a witness does not have for one in which nothing has happened.
    pub has_no_state: bool,
    /// The highest number that any replica of this cluster has ever had; zero if there was none. Numbers are never used
    /// again: the disk and the certificate of whoever had one may still be there.
    pub highest: u64,
    /// For each replica: its boot and the number of its last proposal that was applied.
    applied: BTreeMap<ReplicaId, (u64, u64)>,
}

impl AsRef<State> for ReplicatedState {
    fn as_ref(&self) -> &State {
        &self.state
    }
}

impl AsMut<State> for ReplicatedState {
    fn as_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl ReplicatedState {
    /// What a cluster starts with, the same on every founding member.
    #[must_use]
    pub fn found(settings: Settings, members: Members) -> Self {
        let (state, highest) = (State::new(settings), highest_of(members.keys()));
        let (grants_paused, applied) = (false, BTreeMap::new());
        let (pause_ms, has_no_state) = (None, false);
        Self { state, members, grants_paused, pause_ms, has_no_state, highest, applied }
    }

    /// What a restored cluster starts with: the state reborn, these members, and a hold.
    #[must_use]
    pub fn restored(state: State, members: Members) -> Self {
        let grants_paused = !mutant::is(Mutant::RestoreGrantsAtOnce);
        let (highest, applied) = (highest_of(members.keys()), BTreeMap::new());
        let (pause_ms, has_no_state) = (None, false);
        Self { state, members, grants_paused, pause_ms, has_no_state, highest, applied }
    }

    /// Ends the hold after a restore.
    pub const fn release(&mut self) {
        (self.grants_paused, self.pause_ms) = (false, None);
    }

    /// What a witness keeps of it: the members, and no state.
    #[must_use]
    pub fn without_state(self) -> Self {
        let settings = self.state.settings().clone();
        Self { state: State::new(settings), has_no_state: true, ..self }
    }

    /// Whether this proposal is to be applied, and notes that it is. False for a duplicate, for one that is numbered
    /// further ahead than its replica can have come, and for one of a replica that is no member: nobody remembers any
    /// more which of its proposals were applied.
    pub fn admit(&mut self, origin: Origin) -> bool {
        if !self.members.contains_key(&origin.replica) {
            return false;
        }
        let last = self.applied.entry(origin.replica).or_insert((0, 0));
        let is_fresh = (origin.boot, origin.number) > *last
            && !leaps(*last, origin.boot, origin.number)
            || mutant::is(Mutant::DuplicatesApplied);
        if is_fresh {
            *last = (origin.boot, origin.number);
        }
        is_fresh
    }

    /// The boot and the number of the last proposal of a replica that was applied.
    #[must_use]
    pub fn last_applied(&self, replica: ReplicaId) -> (u64, u64) {
        self.applied.get(&replica).copied().unwrap_or_default()
    }

    /// Whether this replica is a witness: as the members say, or because it has no state to serve
    /// from. One that is not named yet is what its operator says.
    #[must_use]
    pub fn makes_witness(&self, id: ReplicaId, is_said: bool) -> bool {
        self.has_no_state || self.members.get(&id).map_or(is_said, |member| member.is_witness)
    }

    /// Takes a change of members into account; whether it means anything. One that adds a replica beyond
    /// [`MEMBERS_LISTED_MAX`] does not, on any replica: it follows from what is replicated alone.
    pub fn change_members(&mut self, change: &MemberChange) -> bool {
        match change {
            MemberChange::Add { id, .. }
                if self.members.len() >= MEMBERS_LISTED_MAX && !self.members.contains_key(id) =>
            {
                return false;
            }
            MemberChange::Add { id, member } => {
                self.highest = self.highest.max(id.get());
                self.members.insert(*id, member.clone());
            }
            MemberChange::Remove { id } => {
                self.members.remove(id);
                self.applied.remove(id);
            }
            MemberChange::Promote { .. } | MemberChange::LeaveJoint => {}
        }
        true
    }

    /// The whole as bytes: version, members, applied numbers, hold, bareness, highest number, from version 4 on how long
    /// the hold is, state. Equal wholes give equal bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![if self.pause_ms.is_some() { REPLICATED_VERSION } else { 3 }];
        (self.members.len() as u64).put(&mut out);
        for (id, member) in &self.members {
            id.get().put(&mut out);
            put_member(member, &mut out);
        }
        (self.applied.len() as u64).put(&mut out);
        for (id, (boot, number)) in &self.applied {
            id.get().put(&mut out);
            boot.put(&mut out);
            number.put(&mut out);
        }
        self.grants_paused.put(&mut out);
        self.has_no_state.put(&mut out);
        self.highest.put(&mut out);
        if let Some(pause_ms) = self.pause_ms {
            pause_ms.put(&mut out);
        }
        put_block(&self.state.encode(), &mut out);
        out
    }

    /// Reads what [`ReplicatedState::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut input = Input::new(bytes);
        let version = u8::take(&mut input)?;
        if !(1..=REPLICATED_VERSION).contains(&version) {
            return Err(CodecError::Unknown { what: "snapshot version", tag: version.into() });
        }
        let mut members = BTreeMap::<ReplicaId, Member>::new();
        for _ in 0..input.count("members")? {
            members.insert(take_id(&mut input)?, take_member(&mut input)?);
        }
        let mut applied = BTreeMap::new();
        for _ in 0..input.count("applied numbers")? {
            let id = take_id(&mut input)?;
            applied.insert(id, (u64::take(&mut input)?, u64::take(&mut input)?));
        }
        let grants_paused = bool::take(&mut input)?;
        let has_no_state = version >= 2 && bool::take(&mut input)?;
        // Before it was written down, the highest that is known is the best guess. Whatever it says, no member is above.
        let known = highest_of(members.keys().chain(applied.keys()));
        let highest = if version >= 3 { u64::take(&mut input)?.max(known) } else { known };
        let pause_ms = if version >= 4 { Some(u64::take(&mut input)?) } else { None };
        let state = State::decode(input.block("a state")?)?;
        input.end()?;
        Ok(Self { state, members, grants_paused, pause_ms, has_no_state, highest, applied })
    }

    /// Applies a log entry as a whole, as a replica that only catches up does.
    pub fn replay(&mut self, entry: &LogEntry) -> Result<(), CodecError> {
        match payload(entry)? {
            Payload::Empty => {}
            Payload::Proposal(origin, proposal) => {
                if self.admit(origin) {
                    self.state.apply(proposal);
                }
            }
            Payload::Members(change) => {
                self.change_members(&change);
            }
            Payload::Release => self.release(),
        }
        Ok(())
    }
}

fn highest_of<'a>(ids: impl Iterator<Item = &'a ReplicaId>) -> u64 {
    ids.map(|id| id.get()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_number_outlives_its_replica_and_older_snapshots_are_read() {
        let member = |number: u64| Member {
            peer_address: format!("10.0.0.{number}:7401"),
            client_address: format!("10.0.0.{number}:7400"),
            is_witness: false,
        };
        let id = |number| ReplicaId::new(number).unwrap();
        let members = Members::from([(id(1), member(1)), (id(2), member(2))]);
        let mut replicated = ReplicatedState::found(Settings::default(), members);
        assert_eq!(replicated.highest, 2);
        replicated.change_members(&MemberChange::Add { id: id(7), member: member(7) });
        replicated.change_members(&MemberChange::Remove { id: id(7) });
        assert_eq!(replicated.highest, 7);
        let decoded = ReplicatedState::decode(&replicated.encode()).unwrap();
        assert_eq!(decoded, replicated);
        assert_eq!(replicated.encode()[0], 3, "builds before version 4 read it");
        let paused = ReplicatedState { pause_ms: Some(3_000), ..replicated.clone() };
        assert_eq!(ReplicatedState::decode(&paused.encode()).unwrap(), paused);

        // As version 2 wrote it: without the number before the state.
        let mut old = vec![2];
        2u64.put(&mut old);
        for number in [1, 2] {
            number.put(&mut old);
            put_member(&member(number), &mut old);
        }
        0u64.put(&mut old);
        false.put(&mut old);
        false.put(&mut old);
        put_block(&replicated.state.encode(), &mut old);
        let decoded = ReplicatedState::decode(&old).unwrap();
        assert_eq!((decoded.highest, decoded.members.len()), (2, 2));
    }

    #[test]
    fn a_proposal_numbered_further_than_its_replica_can_have_come_is_not_applied() {
        let honest = [(5, 8), (6, 1), (5, 7 + PROPOSAL_LEAP_MAX), (5 + BOOT_LEAP_MAX, 1)];
        assert!(honest.into_iter().all(|(boot, number)| !leaps((5, 7), boot, number)));
        let leaping = [(5, 8 + PROPOSAL_LEAP_MAX), (6 + BOOT_LEAP_MAX, 1), (6, u64::MAX)];
        assert!(leaping.into_iter().all(|(boot, number)| leaps((5, 7), boot, number)));
        let id = ReplicaId::new(1).unwrap();
        let member = Member {
            peer_address: "10.0.0.1:7401".into(),
            client_address: "10.0.0.1:7400".into(),
            is_witness: false,
        };
        let mut replicated = ReplicatedState::found(Settings::default(), [(id, member)].into());
        assert!(!replicated.admit(Origin { replica: id, boot: u64::MAX, number: 1 }));
        assert!(!replicated.admit(Origin { replica: id, boot: 1, number: u64::MAX }));
        assert!(replicated.admit(Origin { replica: id, boot: 1, number: 1 }), "it is not muted");
    }

    #[test]
    fn a_late_proposal_of_a_removed_replica_is_not_applied_again() {
        let id = ReplicaId::new(1).unwrap();
        let member = Member {
            peer_address: "10.0.0.1:7401".into(),
            client_address: "10.0.0.1:7400".into(),
            is_witness: false,
        };
        let mut replicated = ReplicatedState::found(Settings::default(), [(id, member)].into());
        let origin = Origin { replica: id, boot: 1, number: 7 };
        assert!(replicated.admit(origin));
        assert!(!replicated.admit(origin), "a duplicate");
        replicated.change_members(&MemberChange::Remove { id });
        assert!(!replicated.admit(origin), "the same, after it was forgotten");
    }
}
