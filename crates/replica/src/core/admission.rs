//! Which messages of a peer Raft may see.
//!
//! A member may be broken, or hostile with a stolen key. The library ends the process over many a message that cannot be
//! true, and believes others that no honest replica sends. So every message is looked at first, and passes only if our
//! own code could have sent it to a replica in this condition. One that honest replicas never send is refused, which ends
//! the link; one that they may send, but that came too late or to the wrong place, is ignored.
//!
//! What an entry of the log may hold is decided by the entry alone. A rule that also looked at this replica's state would
//! let one that is behind refuse what the others have committed, and it would never catch up.
//!
//! This keeps a process alive and the numbers usable. It is no Byzantine fault tolerance: a member that wins an election
//! decides what is in the log (`docs/security.md`).

use std::collections::BTreeSet;
use std::fmt;

use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType};
use regent_election::Revision;
use regent_election::mutant::{self, Mutant};

use crate::limits::{
    CONTEXT_BYTES_MAX, MEMBERS_LISTED_MAX, RAFT_NUMBER_MAX, READ_ROUNDS_PER_MEMBER_MAX,
    SNAPSHOT_LEAP_MAX,
};
use crate::member::MemberChange;
use crate::raft_codec::travels;
use crate::replicated::{RELEASE, ReplicatedState, payload};

/// What of the local Raft a message is judged by.
pub struct LocalRaft<'a> {
    /// This replica.
    pub id: u64,
    pub term: u64,
    pub is_leader: bool,
    /// Who leads this replica; zero is nobody.
    pub leader: u64,
    /// Whether it knows of any voter.
    pub has_voters: bool,
    /// Whether it knows the sender for a member.
    pub knows_sender: bool,
    /// The last entry, and the last one known to be committed.
    pub last: u64,
    pub committed: u64,
    /// Whether its disk has confirmed the whole log.
    pub is_durable: bool,
    /// Whether it may be called to campaign: it is not, while a snapshot is not durable, or it makes way.
    pub may_campaign: bool,
    /// Read rounds of the sender that wait here for a quorum.
    pub read_rounds: usize,
    /// The Raft term of an entry; zero if it is not known.
    pub term_of: &'a dyn Fn(u64) -> u64,
}

impl fmt::Debug for LocalRaft<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalRaft")
            .field("id", &self.id)
            .field("term", &self.term)
            .field("last", &self.last)
            .field("committed", &self.committed)
            .finish_non_exhaustive()
    }
}

/// What becomes of a message that an honest replica may have sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Raft may see it.
    Step,
    /// It is lost, as on any network.
    Ignore,
}

/// Why a message was refused: no honest replica sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub &'static str);

type Admitted = Result<Admission, Refused>;

/// Judges a message that the connection to `from` brought.
pub fn admit(local: &LocalRaft<'_>, from: u64, message: &Message) -> Admitted {
    check_shape(local.id, from, message)?;
    if !local.knows_sender && !is_heard_on_trial(message.msg_type) {
        return Ok(Admission::Ignore);
    }
    if (1..local.term).contains(&message.term) {
        // Of a leader that was replaced: it may well contradict what its successor has committed. Raft looks at nothing
        // but the term, and tells it so.
        return Ok(Admission::Step);
    }
    let is_of_a_leader =
        matches!(message.msg_type, MessageType::MsgAppend | MessageType::MsgHeartbeat);
    if is_of_a_leader && contradicts_leader(local, from, message.term) {
        return Ok(Admission::Ignore);
    }
    match message.msg_type {
        MessageType::MsgAppend => check_append(local, message)?,
        MessageType::MsgHeartbeat if message.commit > local.last => {
            return Err(Refused("a heartbeat commits entries that were never confirmed here"));
        }
        MessageType::MsgAppendResponse => {
            // An older or a later term is nothing to a leader of this one.
            let concerns_us = local.is_leader && message.term == local.term;
            if concerns_us && !message.reject && message.index > local.last {
                return Err(Refused("it confirms entries that this leader does not have"));
            }
        }
        // Whoever knows of no members was told nothing yet. If it is a voter, it lost its disk, and with it what it
        // promised: it must not vote (S10).
        MessageType::MsgRequestVote | MessageType::MsgRequestPreVote if !local.has_voters => {
            return Ok(Admission::Ignore);
        }
        // The request leaves when everything before it is durable, so an answer that is earlier answers nothing. The
        // library would lead with entries that its disk may forget.
        MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse
            if !local.is_durable =>
        {
            return Ok(Admission::Ignore);
        }
        MessageType::MsgTimeoutNow => {
            let is_called = from == local.leader && message.term == local.term;
            if !(is_called && local.may_campaign && local.is_durable) {
                return Ok(Admission::Ignore);
            }
        }
        // A follower would pass it on in the name of its sender.
        MessageType::MsgReadIndex
            if !local.is_leader || local.read_rounds >= READ_ROUNDS_PER_MEMBER_MAX =>
        {
            return Ok(Admission::Ignore);
        }
        // Only the leader knows what a quorum has confirmed.
        MessageType::MsgReadIndexResp if from != local.leader || message.term != local.term => {
            return Ok(Admission::Ignore);
        }
        _ => {}
    }
    Ok(Admission::Step)
}

/// Whether `from` says that it leads in the term in which another one leads this replica. A term has one leader; with
/// entries of two, this replica would take those of one for those of the other. Which of them lies is not known, so
/// neither is refused: the true leader would lose its link to whoever heard the liar first. Who is led by the liar hears
/// nothing from the true one, campaigns when the liar falls silent, and is led by nobody then.
const fn contradicts_leader(local: &LocalRaft<'_>, from: u64, term: u64) -> bool {
    term == local.term && local.leader != 0 && from != local.leader
}

/// What is heard of a peer that may be a member without this replica knowing it: it was away while the cluster was
/// replaced, or knows nobody yet. Such a peer may lead it and answer its rounds, and a candidate may ask for its vote.
const fn is_heard_on_trial(kind: MessageType) -> bool {
    matches!(
        kind,
        MessageType::MsgAppend
            | MessageType::MsgHeartbeat
            | MessageType::MsgReadIndexResp
            | MessageType::MsgRequestVote
            | MessageType::MsgRequestPreVote
    )
}

/// Judges a snapshot that the connection to `from` brought whole. `revision` is that of the state here.
pub fn admit_snapshot(
    local: &LocalRaft<'_>,
    from: u64,
    message: &Message,
    replicated: &ReplicatedState,
    revision: Revision,
) -> Admitted {
    check_shape(local.id, from, message)?;
    if message.term < local.term || contradicts_leader(local, from, message.term) {
        return Ok(Admission::Ignore);
    }
    let place = message.get_snapshot().get_metadata();
    if place.index <= local.committed {
        let known = (local.term_of)(place.index);
        if ![0, place.term].contains(&known) {
            return Err(Refused("the snapshot contradicts what is committed here"));
        }
        // Raft only tells the sender how far this replica is.
        return Ok(Admission::Step);
    }
    if local.last > 0 && place.index.saturating_sub(local.last) > SNAPSHOT_LEAP_MAX {
        return Err(Refused("the snapshot stands further ahead than a log can grow"));
    }
    if replicated.members.len() > MEMBERS_LISTED_MAX {
        return Err(Refused("a list of members is longer than any"));
    }
    if replicated.has_no_state {
        return Err(Refused("the snapshot of a witness holds no state and is sent to nobody"));
    }
    if replicated.state.revision() < revision {
        return Err(Refused("the snapshot holds an earlier state at a later place"));
    }
    Ok(Admission::Step)
}

/// Everything that can be said of a message without knowing anything of this replica.
pub(crate) fn check_shape(id: u64, from: u64, message: &Message) -> Result<(), Refused> {
    let kind = message.msg_type;
    // The library forwards a wish to transfer leadership; ours are told to the leader otherwise.
    if !travels(kind) || kind == MessageType::MsgTransferLeader {
        return Err(Refused("a local message came from outside"));
    }
    if message.from != from || message.to != id || from == 0 {
        return Err(Refused("the message names another sender or receiver than its connection"));
    }
    let is_read = matches!(kind, MessageType::MsgReadIndex | MessageType::MsgReadIndexResp);
    // A question bears no term, everything else does.
    if (message.term == 0) != (kind == MessageType::MsgReadIndex) {
        return Err(Refused(
            "the message must bear a Raft term and does not, or must not and does",
        ));
    }
    let numbers = [
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.reject_hint,
    ];
    if numbers.iter().any(|number| *number > RAFT_NUMBER_MAX) {
        return Err(Refused("no Raft term and no log gets this far"));
    }
    if !is_read && message.log_term.max(message.commit_term) > message.term {
        return Err(Refused("the message speaks of entries of a later term than its own"));
    }
    if message.request_snapshot != 0 {
        return Err(Refused("no replica asks for snapshots"));
    }
    if message.context.len() > CONTEXT_BYTES_MAX {
        return Err(Refused("the context is longer than any"));
    }
    if message.has_snapshot() != (kind == MessageType::MsgSnapshot) {
        return Err(Refused("only a snapshot message carries a snapshot"));
    }
    match kind {
        MessageType::MsgAppend => check_entries(message),
        MessageType::MsgReadIndex | MessageType::MsgReadIndexResp => check_round(from, message),
        MessageType::MsgSnapshot => check_snapshot(message),
        _ if !message.entries.is_empty() => Err(Refused("this message carries no entries")),
        _ => Ok(()),
    }
}

/// A round bears exactly one context, and a question only that of its sender: in another's name it would keep the other's
/// own rounds from being confirmed.
fn check_round(from: u64, message: &Message) -> Result<(), Refused> {
    let [context] = message.entries.as_ref() else {
        return Err(Refused("a read round carries exactly one context"));
    };
    if context.data.len() > CONTEXT_BYTES_MAX || !context.context.is_empty() {
        return Err(Refused("the context is longer than any"));
    }
    let is_own = context.data.starts_with(&from.to_le_bytes());
    let is_asked = message.msg_type == MessageType::MsgReadIndex;
    if is_asked && !is_own && !mutant::is(Mutant::ContextReused) {
        return Err(Refused("it asks for a read round in the name of another replica"));
    }
    Ok(())
}

/// Entries that follow the place they name and one another, in terms that rise up to the message's own, each of which can
/// be read.
fn check_entries(message: &Message) -> Result<(), Refused> {
    // The library takes "no term" for the term of every entry that it does not have.
    if (message.index == 0) != (message.log_term == 0) {
        return Err(Refused("the entries follow an entry without a term"));
    }
    let mut before = (message.index, message.log_term);
    for entry in message.entries.iter() {
        if entry.index != before.0 + 1 || entry.term < before.1.max(1) || entry.term > message.term
        {
            return Err(Refused("the entries do not follow one another"));
        }
        check_entry(entry)?;
        before = (entry.index, entry.term);
    }
    if before.0 > RAFT_NUMBER_MAX {
        return Err(Refused("no Raft term and no log gets this far"));
    }
    Ok(())
}

/// An entry that our own code wrote, as far as that can be seen.
fn check_entry(entry: &Entry) -> Result<(), Refused> {
    let is_plain = match entry.entry_type {
        EntryType::EntryNormal if entry.data.is_empty() => {
            entry.context.is_empty() || &*entry.context == RELEASE
        }
        EntryType::EntryNormal => entry.context.is_empty(),
        EntryType::EntryConfChange => false,
        EntryType::EntryConfChangeV2 => true,
    };
    if !is_plain || payload(entry).is_err() {
        return Err(Refused("an entry cannot be read; all replicas must be of one build"));
    }
    Ok(())
}

/// Entries that others have committed differently are a lie, whoever is wrong.
fn check_append(local: &LocalRaft<'_>, message: &Message) -> Result<(), Refused> {
    let mut old = message.entries.iter().take_while(|entry| entry.index <= local.committed);
    // What is in a snapshot has no term any more.
    if old.all(|entry| [0, entry.term].contains(&(local.term_of)(entry.index))) {
        Ok(())
    } else {
        Err(Refused("the entries contradict what is committed here"))
    }
}

fn check_snapshot(message: &Message) -> Result<(), Refused> {
    let snapshot = message.get_snapshot();
    let place = snapshot.get_metadata();
    if !message.entries.is_empty() || !snapshot.data.is_empty() {
        return Err(Refused("a snapshot does not travel in its announcement"));
    }
    if place.index == 0
        || place.index > RAFT_NUMBER_MAX
        || !(1..=message.term).contains(&place.term)
    {
        return Err(Refused("the snapshot stands at no place in a log"));
    }
    check_members(place.get_conf_state())
}

/// Members that Raft can restore, and that the changes of [`crate::MemberChange`] can have led to.
pub(super) fn check_members(members: &ConfState) -> Result<(), Refused> {
    let unique = |ids: &[u64]| -> Result<BTreeSet<u64>, Refused> {
        if ids.len() > MEMBERS_LISTED_MAX {
            return Err(Refused("a list of members is longer than any"));
        }
        let set: BTreeSet<u64> = ids.iter().copied().collect();
        if set.len() == ids.len() && !set.contains(&0) {
            Ok(set)
        } else {
            Err(Refused("a list of members names a replica twice, or none"))
        }
    };
    let voters = unique(&members.voters)?;
    let learners = unique(&members.learners)?;
    let outgoing = unique(&members.voters_outgoing)?;
    let staged = unique(&members.learners_next)?;
    if voters.is_empty() {
        return Err(Refused("a list of members has no voters"));
    }
    let is_sound = learners.is_disjoint(&voters)
        && learners.is_disjoint(&outgoing)
        && staged.is_subset(&outgoing)
        && staged.is_disjoint(&voters)
        && !members.auto_leave;
    if is_sound { Ok(()) } else { Err(Refused("a list of members contradicts itself")) }
}

/// Whether Raft's list stays within [`MEMBERS_LISTED_MAX`] with this change. It follows from what was applied before, so
/// all replicas say the same.
pub(super) fn has_room_for(members: &ConfState, change: &MemberChange) -> bool {
    let is_full = members.voters.len() + members.learners.len() >= MEMBERS_LISTED_MAX;
    !(is_full && matches!(change, MemberChange::Add { .. }))
}

#[cfg(test)]
mod tests;
