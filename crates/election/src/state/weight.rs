//! How much memory the state takes, in bytes.
//!
//! Every part has a weight: a fixed number for its records and pointers, plus the bytes of its texts. The weights
//! are constants and not `size_of`, so that replicas built by different compilers count the same; a test compares
//! them with what the types take. The sum is kept as entries are applied and computed again when a state is read
//! from bytes, so equal states have equal sums.
//!
//! **Histories** grow by themselves, as leaders change, and no store can refuse that. So a group is counted with a full
//! history from the start, its leaders having names of usual length; only longer names and reasons add to it.
//!
//! Left to others: for whom a part is counted (`accounts`), and what would be too much (`budget`).
//!
//! The road not taken: the bytes of the encoded state. They are exact, but say little about memory: a short name
//! in a list takes three bytes there and eighty here.

use super::accounts::Payer;
use super::group::{GroupState, Office, Standby, Tenure};
use super::session::Session;
use super::{Requests, State};
use crate::access::Principal;
use crate::door::Door;
use crate::limits::HISTORY_PER_GROUP;
use crate::name::{Group, Metadata, Node, Resource};
use crate::outcome::Change;
use crate::policy::{NodePattern, Policy};

/// A group without anything in it: its slot, its name's block, its place in the order of names and in the index.
const GROUP: u64 = 480;
/// A leader or standby: its place in the line and in its session's list.
pub(super) const CANDIDATE: u64 = 192;
/// A session without requests: its record, its secret's place, its deadline.
const SESSION: u64 = 512;
/// The account of a principal: its record, and the block of its name.
const ACCOUNT: u64 = 128;
/// A remembered request id.
pub(super) const REQUEST: u64 = 112;
/// The print of an ended session.
const ENDED: u64 = 32;
/// A line of a history, without the name of its leader.
pub(super) const CHANGE: u64 = 72;
/// A full history, with names of 32 bytes.
const HISTORY: u64 = HISTORY_PER_GROUP as u64 * (CHANGE + 32);
/// A policy without lists.
const POLICY: u64 = 160;
/// A pattern in a list of a policy.
const PATTERN: u64 = 48;
/// An entry of metadata, and the block that holds all of them.
const METADATA_ENTRY: u64 = 64;
/// A fence.
const FENCE: u64 = 64;
/// A proposal, with the longest names, and the wait for its end.
pub(super) const PROPOSAL: u64 = 1024;
/// A door that is closed.
pub(super) const DOOR: u64 = 64;
/// Where a group came from, if it did.
const ORIGIN: u64 = 32;

pub(super) const fn texts(text: &str) -> u64 {
    text.len() as u64
}

pub(super) fn metadata(metadata: &Metadata) -> u64 {
    metadata.iter().map(|(key, value)| METADATA_ENTRY + texts(key) + texts(value)).sum()
}

fn pattern(pattern: &NodePattern) -> u64 {
    PATTERN + texts(pattern.as_str())
}

pub(super) fn policy(policy: &Policy) -> u64 {
    let priorities = policy.priorities.iter().map(|(one, _)| pattern(one));
    POLICY + policy.allow.iter().map(pattern).chain(priorities).sum::<u64>()
}

pub(super) fn own_policy(of: Option<&Policy>) -> u64 {
    of.map_or(0, policy)
}

/// A standby in its line.
pub(super) fn standby(standby: &Standby) -> u64 {
    CANDIDATE + metadata(&standby.metadata)
}

pub(super) fn tenure(tenure: &Tenure) -> u64 {
    CANDIDATE + metadata(&tenure.metadata)
}

fn change(change: &Change) -> u64 {
    let leader = change.leader.as_ref().map_or(0, |node| texts(node.as_str()));
    let reason = change.reason.as_ref().map_or(0, |reason| texts(reason.as_str()));
    CHANGE + leader + reason
}

pub(super) fn door(door: &Door) -> u64 {
    match door {
        Door::Open | Door::Stopped { .. } => DOOR,
        Door::Expected { from, .. } => DOOR + texts(from.as_str()),
        Door::Moved { to } => DOOR + texts(to.as_str()),
    }
}

/// A fence with the name of its resource.
pub(super) fn fence(resource: &Resource) -> u64 {
    FENCE + texts(resource.as_str())
}

/// A group in which nothing has happened.
pub(super) fn new_group(name: &Group) -> u64 {
    GROUP + texts(name.as_str()) + HISTORY
}

/// What a history with these lines weighs.
fn history(lines: &[Change]) -> u64 {
    HISTORY.max(lines.iter().map(change).sum())
}

/// By how much a history grows by one more line, whose texts have this many bytes.
pub(super) fn line(lines: &[Change], texts: u64) -> u64 {
    let oldest = lines.first().filter(|_| lines.len() >= HISTORY_PER_GROUP).map_or(0, change);
    let after = lines.iter().map(change).sum::<u64>() - oldest + CHANGE + texts;
    HISTORY.max(after).saturating_sub(history(lines))
}

/// Everything in a group but its line: who is charged for it, and how much.
pub(super) fn parts(name: &Group, state: &GroupState, mut each: impl FnMut(&Payer, u64)) {
    let reason = match &state.office {
        Office::Vacant | Office::Delayed { .. } | Office::Held { .. } => None,
        Office::Ending { reason, .. } => reason.as_ref(),
    };
    each(
        &state.creator,
        GROUP
            + texts(name.as_str())
            + state.door.as_deref().map_or(0, door)
            + state.came_from.as_deref().map_or(0, |from| ORIGIN + texts(from.as_str()))
            + reason.map_or(0, |reason| texts(reason.as_str()))
            + history(&state.history),
    );
    if let Some(own) = state.policy.as_deref() {
        each(&state.policy_payer, policy(own));
    }
    if let Some(held) = state.office.tenure() {
        each(&held.payer, tenure(held));
    }
    for (resource, mark) in state.fences.iter().flat_map(|fences| &fences.marks) {
        each(&mark.payer, fence(resource));
    }
}

/// A session; what it leads and stands for is weighed with the groups.
pub(super) fn session(session: &Session) -> u64 {
    new_session(&session.node) + requests(&session.requests)
}

/// A session that has asked for nothing yet.
pub(super) fn new_session(node: &Node) -> u64 {
    SESSION + texts(node.as_str())
}

/// The account of a principal.
pub(super) fn account(who: &Principal) -> u64 {
    ACCOUNT + who.own_name().map_or(0, texts)
}

fn requests(requests: &Requests) -> u64 {
    requests.len() as u64 * REQUEST
}

impl State {
    /// What everything that is remembered weighs.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.groups.bytes()
            + self.sessions_bytes
            + requests(&self.requests)
            + self.ended.prints().len() as u64 * ENDED
            + policy(&self.settings.default_policy)
            + self.proposals.len() as u64 * PROPOSAL
            + self.accounts.bytes()
    }

    /// The same, added up from scratch.
    pub(super) fn bytes_recomputed(&self) -> u64 {
        let mut groups = 0;
        for (name, state) in self.groups.iter() {
            groups += state.line_bytes;
            parts(name, state, |_, bytes| groups += bytes);
        }
        let lines_fit = self
            .groups
            .iter()
            .all(|(_, state)| state.line_bytes == state.line.iter().map(standby).sum::<u64>());
        assert!(lines_fit, "the weight of a line has drifted");
        groups
            + self.sessions.values().map(session).sum::<u64>()
            + requests(&self.requests)
            + self.ended.prints().len() as u64 * ENDED
            + policy(&self.settings.default_policy)
            + self.proposals.len() as u64 * PROPOSAL
            + self.accounts_recomputed().bytes()
    }

    /// The record of a session is gone.
    pub(super) fn session_weighs_nothing(&mut self, record: &Session) {
        let bytes = session(record);
        self.sessions_bytes -= bytes;
        self.accounts.release(&record.owner, bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use super::super::fences::Mark;
    use super::super::repeat::Remembered;
    use super::*;
    use crate::name::{SessionId, SessionNo};
    use crate::policy::Priority;

    /// A record never weighs less than it takes, so that the sum does not fall behind the memory.
    #[test]
    fn weights_cover_the_records() {
        let text = 2 * size_of::<usize>() as u64;
        let record = |bytes: usize| bytes as u64;
        assert!(GROUP >= record(size_of::<Option<(Group, GroupState)>>()) + 3 * text);
        assert!(CANDIDATE >= record(size_of::<Standby>() + size_of::<Group>()) + text);
        assert!(
            SESSION
                >= record(size_of::<Session>() + 2 * size_of::<(SessionId, SessionNo)>()) + text
        );
        assert!(REQUEST >= record(size_of::<Remembered>() + 2 * size_of::<u64>()));
        assert!(ACCOUNT >= record(size_of::<Principal>() + 4 * size_of::<u64>()) + 2 * text);
        assert!(FENCE >= record(size_of::<(Resource, Mark)>()) + text);
        assert!(CHANGE >= record(size_of::<Change>()) + text);
        assert!(POLICY >= record(size_of::<Policy>()));
        assert!(PATTERN >= record(size_of::<(NodePattern, Priority)>()) + text);
    }
}
