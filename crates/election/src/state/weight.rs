//! How much memory the state takes, in bytes, and what a command would add to it.
//!
//! Every part has a weight: a fixed number for its records and pointers, plus the bytes of its texts. The weights
//! are constants and not `size_of`, so that replicas built by different compilers count the same; a test compares
//! them with what the types take. The sum is kept as entries are applied and computed again when a state is read
//! from bytes, so equal states have equal sums.
//!
//! **Who decides.** No rule of `apply` looks at the sum: a bound that differs between replicas must not make their
//! states differ. A store asks [`State::check_budget`] before it proposes a command, and what is in the log is applied.
//!
//! The road not taken: the bytes of the encoded state. They are exact, but say little about memory: a short name
//! in a list takes three bytes there and eighty here.

use super::group::{GroupState, Office, Standby, Tenure};
use super::session::Session;
use super::{Requests, State};
use crate::access::Principal;
use crate::command::{Command, Grows};
use crate::door::{Door, Step};
use crate::limits::{HISTORY_PER_GROUP, STATE_BYTES_RESERVE_PART};
use crate::name::{Group, Metadata, Node, RequestId, SessionId};
use crate::outcome::{Change, Refusal};
use crate::policy::{NodePattern, Policy};

/// A group without anything in it: its slot, its name's block, its place in the order of names and in the index.
pub(super) const GROUP: u64 = 480;
/// A leader or standby: its place in the line and in its session's list.
const CANDIDATE: u64 = 176;
/// A session without requests: its record, its secret's place, its deadline.
const SESSION: u64 = 512;
/// Who opened a session, if that is known.
const OWNER: u64 = 48;
/// A remembered request id.
const REQUEST: u64 = 112;
/// The print of an ended session.
const ENDED: u64 = 32;
/// A line of a history.
const CHANGE: u64 = 96;
/// A policy without lists.
const POLICY: u64 = 160;
/// A pattern in a list of a policy.
const PATTERN: u64 = 48;
/// An entry of metadata, and the block that holds all of them.
const METADATA_ENTRY: u64 = 64;
/// A fence.
const FENCE: u64 = 64;
/// A proposal, with the longest names, and the wait for its end.
const PROPOSAL: u64 = 1024;
/// A door that is closed.
const DOOR: u64 = 64;
/// Where a group came from, if it did.
const ORIGIN: u64 = 32;

const fn texts(text: &str) -> u64 {
    text.len() as u64
}

fn metadata(metadata: &Metadata) -> u64 {
    metadata.iter().map(|(key, value)| METADATA_ENTRY + texts(key) + texts(value)).sum()
}

fn pattern(pattern: &NodePattern) -> u64 {
    PATTERN + texts(pattern.as_str())
}

fn policy(policy: &Policy) -> u64 {
    let priorities = policy.priorities.iter().map(|(one, _)| pattern(one));
    POLICY + policy.allow.iter().map(pattern).chain(priorities).sum::<u64>()
}

fn own_policy(of: Option<&Policy>) -> u64 {
    of.map_or(0, policy)
}

/// A standby in its line.
pub(super) fn standby(standby: &Standby) -> u64 {
    CANDIDATE + metadata(&standby.metadata)
}

fn tenure(tenure: &Tenure) -> u64 {
    CANDIDATE + metadata(&tenure.metadata)
}

fn change(change: &Change) -> u64 {
    let leader = change.leader.as_ref().map_or(0, |node| texts(node.as_str()));
    let reason = change.reason.as_ref().map_or(0, |reason| texts(reason.as_str()));
    CHANGE + leader + reason
}

fn door(door: &Door) -> u64 {
    match door {
        Door::Open | Door::Stopped { .. } => DOOR,
        Door::Expected { from, .. } => DOOR + texts(from.as_str()),
        Door::Moved { to } => DOOR + texts(to.as_str()),
    }
}

/// A group with everything in it.
pub(super) fn group(name: &Group, state: &GroupState) -> u64 {
    let office = match &state.office {
        Office::Vacant | Office::Delayed { .. } => 0,
        Office::Held { tenure: held } => tenure(held),
        Office::Ending { tenure: held, reason, .. } => {
            tenure(held) + reason.as_ref().map_or(0, |reason| texts(reason.as_str()))
        }
    };
    let marks = state.fences.as_ref().map(|fences| fences.marks.keys());
    let fences: u64 = marks.into_iter().flatten().map(|one| FENCE + texts(one.as_str())).sum();
    GROUP
        + texts(name.as_str())
        + own_policy(state.policy.as_deref())
        + office
        + state.line_bytes
        + state.door.as_deref().map_or(0, door)
        + state.came_from.as_deref().map_or(0, |from| ORIGIN + texts(from.as_str()))
        + fences
        + state.history.iter().map(change).sum::<u64>()
}

/// A session; what it leads and stands for is weighed with the groups.
pub(super) fn session(session: &Session) -> u64 {
    new_session(&session.node) + owner(session.owner.as_deref()) + requests(&session.requests)
}

fn new_session(node: &Node) -> u64 {
    SESSION + texts(node.as_str())
}

fn owner(owner: Option<&Principal>) -> u64 {
    owner.map_or(0, |owner| OWNER + owner.own_name().map_or(0, texts))
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
    }

    /// The same, added up from scratch.
    pub(super) fn bytes_recomputed(&self) -> u64 {
        let groups: u64 = self.groups.iter().map(|(name, state)| group(name, state)).sum();
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
    }

    /// Whether a store whose state may weigh `bytes_max` takes a command, `pending` bytes being proposed and not
    /// applied yet. Says how much the command may add.
    ///
    /// What ends something is always taken: a store that is over its budget must be able to shrink. What adds
    /// little, such as a hand-over or a step-down, may use a reserve above the budget. A campaign for an office that
    /// nobody else wants may use half of it: histories grow by themselves, and that must not leave a group without
    /// the leader that it had.
    pub fn check_budget(
        &self,
        command: &Command,
        request: Option<&RequestId>,
        pending: u64,
        bytes_max: u64,
    ) -> Result<u64, Refusal> {
        let reserve = bytes_max / STATE_BYTES_RESERVE_PART;
        let adds = self.adds(command, request);
        let max = match command.grows() {
            // A deletion may have to be proposed first. It is counted, and taken all the same.
            Grows::Nothing => return Ok(adds),
            Grows::Little => bytes_max.saturating_add(reserve),
            Grows::Freely if self.is_wanted(command) => bytes_max.saturating_add(reserve / 2),
            Grows::Freely => bytes_max,
        };
        let used = self.bytes().saturating_add(pending);
        if adds > 0 && used.saturating_add(adds) > max {
            return Err(Refusal::StateFull { used, adds, max });
        }
        Ok(adds)
    }

    /// What a command would add if it took effect, at most. What it frees is not counted, except where it
    /// replaces something.
    fn adds(&self, command: &Command, request: Option<&RequestId>) -> u64 {
        let session = command.session().and_then(|secret| self.find_session(secret));
        let record = session.and_then(|no| self.sessions.get(&no));
        let window = match command.session() {
            Some(_) => record.map(|record| &record.requests),
            None => Some(&self.requests),
        };
        if let (Some(request), Some(window)) = (request, window)
            && window.knows(request)
        {
            return 0;
        }
        let remembered = match (request, record) {
            (Some(_), Some(record)) if record.requests.is_full() => 0,
            (Some(_), Some(_)) => REQUEST,
            (Some(_), None) if command.session().is_some() => REQUEST,
            (Some(_) | None, _) => 0,
        };
        let state = command.group().and_then(|group| self.groups.get(group));
        let new_group = || match (command.group(), state) {
            (Some(group), None) => GROUP + texts(group.as_str()),
            (Some(_) | None, _) => 0,
        };
        let line = |text: &str| CHANGE + texts(text);
        let content = match command {
            Command::As { who, .. } => {
                let plain = command.plain();
                let adds = self.adds(plain, request);
                // What adds something may open a session, which keeps its owner.
                let owned = if adds == 0 { 0 } else { adds + owner(Some(who)) };
                return owned + if self.takes_place(who, plain) { PROPOSAL } else { 0 };
            }
            // Bounded by their own limits, and what an administrator needs to bring order.
            Command::PutBindings { .. }
            | Command::CreateToken { .. }
            | Command::RevokeToken { .. } => 0,
            Command::Open { session, node, .. } => self.new_session(*session, Some(node)),
            Command::Campaign { session: secret, opening, metadata: told, .. } => {
                let held = state.and_then(|state| {
                    let session = session?;
                    match &state.office {
                        // It keeps its term and what it told.
                        Office::Held { tenure } if tenure.session == session => Some(u64::MAX),
                        // A holder whose tenure is ending stands in line like any other.
                        Office::Held { .. }
                        | Office::Ending { .. }
                        | Office::Vacant
                        | Office::Delayed { .. } => {
                            state.place_of(session).map(|place| standby(&state.line[place]))
                        }
                    }
                });
                let opens = self.new_session(*secret, opening.as_ref().map(|told| &told.node));
                let candidate = CANDIDATE + metadata(told);
                let is_new_line = held != Some(u64::MAX)
                    && state.is_none_or(|state| state.history.len() < HISTORY_PER_GROUP);
                let node = record.map(|record| &record.node);
                let node = node.or(opening.as_ref().map(|told| &told.node));
                let told = node.filter(|_| is_new_line).map_or(0, |node| line(node.as_str()));
                opens + new_group() + candidate.saturating_sub(held.unwrap_or(0)) + told
            }
            // It ends a vacancy, once for a tenure. Whoever has accepted before only adds a request id.
            Command::Accept { .. } => {
                let is_again = state.is_some_and(|state| match &state.office {
                    Office::Held { tenure } => tenure.accepted && Some(tenure.session) == session,
                    Office::Ending { .. } | Office::Vacant | Office::Delayed { .. } => false,
                });
                return if is_again { remembered } else { 0 };
            }
            // Who leaves frees more than its request id. Who does not lead is refused, and its id is not kept.
            Command::Resign { .. } => return 0,
            // Who neither stands nor leads frees nothing, nor does a leader that has been told to stop before.
            Command::Withdraw { group, .. } => {
                let leads = || {
                    state.is_some_and(|state| match &state.office {
                        Office::Held { tenure } => Some(tenure.session) == session,
                        Office::Ending { .. } | Office::Vacant | Office::Delayed { .. } => false,
                    })
                };
                let is_concerned =
                    record.is_none_or(|record| record.stands.contains(group) || leads());
                return if is_concerned { 0 } else { remembered };
            }
            Command::PutPolicy { policy: wanted, .. } => {
                let present = state.map_or(0, |state| own_policy(state.policy.as_deref()));
                new_group() + own_policy(wanted.as_deref()).saturating_sub(present)
            }
            Command::Admit { resource, .. } => match state {
                Some(state) => {
                    let fences = state.fences.as_deref();
                    let is_known = fences.is_some_and(|it| it.marks.contains_key(resource));
                    if is_known { 0 } else { FENCE + texts(resource.as_str()) }
                }
                None => 0,
            },
            Command::Move { step, .. } => match (step, state) {
                // They open a door that keeps everybody from leading, and what closed it goes.
                (Step::Arrive { .. } | Step::Resume { .. }, Some(_)) => 0,
                // The office and the line end with it.
                (Step::Depart { to }, Some(state)) => {
                    let held = state.office.tenure().map_or(0, tenure);
                    let present = state.door.as_deref().map_or(0, door);
                    (DOOR + texts(to.as_str())).saturating_sub(held + state.line_bytes + present)
                }
                (Step::Expect { from: home } | Step::Depart { to: home }, _) => {
                    new_group() + DOOR + texts(home.as_str()) + CHANGE
                }
                (Step::Stop | Step::Arrive { .. } | Step::Resume { .. }, _) => {
                    new_group() + DOOR + CHANGE
                }
            },
            Command::StepDown { reason, .. }
            | Command::Report { reason, .. }
            | Command::Relieve { reason, .. } => line(reason.as_str()),
            Command::PutSettings { settings } => policy(&settings.default_policy)
                .saturating_sub(policy(&self.settings.default_policy)),
            Command::ChangeTtl { .. }
            | Command::Offer { .. }
            | Command::Warm { .. }
            | Command::Transfer { .. } => 0,
            Command::Close { .. }
            | Command::Delete { .. }
            | Command::ForgetFence { .. }
            | Command::Expire { .. }
            | Command::Elapsed { .. }
            | Command::Refill { .. } => return 0,
        };
        remembered + content
    }

    /// Whether an open session campaigns in a known group that would have no leader without it.
    fn is_wanted(&self, command: &Command) -> bool {
        let Command::Campaign { group, session, .. } = command else { return false };
        let is_vacant =
            |state: &GroupState| state.office == Office::Vacant && state.line.is_empty();
        self.find_session(*session).is_some() && self.groups.get(group).is_some_and(is_vacant)
    }

    fn new_session(&self, secret: SessionId, node: Option<&Node>) -> u64 {
        match node {
            Some(node) if self.find_session(secret).is_none() => new_session(node),
            Some(_) | None => 0,
        }
    }

    /// A session remembers one more request.
    pub(super) const fn note_request(&mut self, has_grown: bool) {
        if has_grown {
            self.sessions_bytes += REQUEST;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use super::super::repeat::Remembered;
    use super::*;
    use crate::name::SessionNo;
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
        assert!(CHANGE >= record(size_of::<Change>()) + text);
        assert!(POLICY >= record(size_of::<Policy>()));
        assert!(PATTERN >= record(size_of::<(NodePattern, Priority)>()) + text);
    }
}
