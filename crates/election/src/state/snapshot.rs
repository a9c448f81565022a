//! The whole state as bytes, and back.
//!
//! ```text
//! version        u8: 1; or 2 if some group has a door, and then every group has `door?`; or 3 if some
//!                group has fences, and then every group has `door?` and `fences?`; or 4, like 3, if some group
//!                is stopped for recovery; or 5, like 4, if there are bindings, tokens or sessions with an
//!                owner, and then every session has `owner?` and the state ends with the table of access; or 6,
//!                like 5, if some policy asks for two principals, and then the proposals follow; or 7, like 6, if
//!                some group came from another store, and then every group has `came from?`, or if a group has
//!                several proposals, or is not known and has one; or 8, like 7, if somebody is charged for a group, a
//!                policy or a fence, and then the payers are listed and every group ends with `charges`
//! settings       ttl ceiling, auto-create, most groups, default policy
//! revision       number
//! term floor     number
//! sessions       list of: number, id, node, ttl, longest ttl, passing, epoch, requests, owner?
//! payers?        list of the principals that are charged for groups, policies and fences, in order
//! groups         list of: name, term, policy?, office, line, heir?, doomed, door?, fences?,
//!                came from?, history, charges?
//! charges        who is charged for the group, for its policy, and for each of its fences in order: a place in the
//!                list of payers, counted from 1, or 0 for nobody
//! requests       list of those without a session, oldest first; forgotten revision?
//! ended          list of 64-bit prints of ended session ids, oldest first
//! access?        version of the bindings, bindings, list of tokens by their ids
//! proposals?     list of: group, who, SHA-256 of the command, revision
//! ```
//! What is charged to whom is written where it is made, and added up when the bytes are read. Who leads and stands where is written once, in the groups; a session's own lists and the index
//! are computed when the bytes are read, so they cannot disagree. Lists are in order and name nothing
//! twice, so that equal states have equal bytes; others are refused, as is a state that breaks what
//! must be true of every group and session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::accounts::{Dues, Payer};
use super::fences::{Fences, Mark};
use super::group::{GroupState, Marks, Office, Standby};
use super::repeat::Requests;
use super::session::Session;
use super::{Index, State, weight};
use crate::access::Principal;
use crate::codec::{CodecError, Input, Wire, malformed};
use crate::door::Door;
use crate::limits::TTL_MS_CEILING;
use crate::name::{Group, Resource, SessionNo};
use crate::policy::{Policy, Settings};
use crate::term::{Revision, Term};

/// The version that opens every encoded state.
pub const STATE_VERSION: u8 = 8;
/// The version without payers, the one without groups that came from elsewhere, the one without proposals, the one without access, the one
/// without stopped groups, the one without fences, and the one without doors either. Each is written as long as no group needs a later one, so that programs which know only that read what later ones
/// write.
const STATE_VERSION_UNPAID: u8 = 7;
const STATE_VERSION_NATIVE: u8 = 6;
const STATE_VERSION_ALONE: u8 = 5;
const STATE_VERSION_OPEN: u8 = 4;
const STATE_VERSION_STOPLESS: u8 = 3;
const STATE_VERSION_FENCELESS: u8 = 2;
const STATE_VERSION_DOORLESS: u8 = 1;

impl State {
    /// The whole state as bytes. Equal states give equal bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.work.is_none(), "a state between two revisions has no bytes");
        let version = self.version();
        let mut out = vec![version];
        self.settings.put(&mut out);
        self.revision.put(&mut out);
        self.term_floor.put(&mut out);
        (self.sessions.len() as u64).put(&mut out);
        for (no, session) in &self.sessions {
            no.put(&mut out);
            put_session(session, &mut out);
            if version >= STATE_VERSION_ALONE {
                session.owner.as_deref().cloned().put(&mut out);
            }
        }
        let payers = Payers::of(self);
        if version >= STATE_VERSION {
            payers.put(&mut out);
        }
        (self.groups.len() as u64).put(&mut out);
        for (name, group) in self.groups.iter() {
            name.put(&mut out);
            put_group(group, version, &mut out);
            if version >= STATE_VERSION {
                payers.put_charges(group, &mut out);
            }
        }
        self.requests.parts().put(&mut out);
        self.ended.prints().collect::<Vec<u64>>().put(&mut out);
        if version >= STATE_VERSION_ALONE {
            self.access.put(&mut out);
        }
        if version >= STATE_VERSION_NATIVE {
            self.put_proposals(&mut out);
        }
        out
    }

    /// The earliest version that can tell all of this state.
    fn version(&self) -> u8 {
        if self.groups.iter().any(|(_, group)| payers_of(group).any(Option::is_some)) {
            return STATE_VERSION;
        }
        let came = |(_, group): (&Group, &GroupState)| group.came_from.is_some();
        if !self.has_plain_proposals() || self.groups.iter().any(came) {
            return STATE_VERSION_UNPAID;
        }
        if self.wants_two() || !self.proposals.is_empty() {
            return STATE_VERSION_NATIVE;
        }
        let is_owned = |session: &Session| session.owner.is_some();
        if !self.access.is_untouched() || self.sessions.values().any(is_owned) {
            return STATE_VERSION_ALONE;
        }
        let needed = |(_, group): (&Group, &GroupState)| match (&group.fences, &group.door) {
            (_, Some(door)) if matches!(**door, Door::Stopped { .. }) => STATE_VERSION_OPEN,
            (Some(_), _) => STATE_VERSION_STOPLESS,
            (None, Some(_)) => STATE_VERSION_FENCELESS,
            (None, None) => STATE_VERSION_DOORLESS,
        };
        self.groups.iter().map(needed).max().unwrap_or(STATE_VERSION_DOORLESS)
    }

    /// The state that [`State::encode`] wrote, or why these bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut input = Input::new(bytes);
        let version = u8::take(&mut input)?;
        if !(STATE_VERSION_DOORLESS..=STATE_VERSION).contains(&version) {
            return Err(CodecError::Unknown { what: "state version", tag: version.into() });
        }
        let settings = Settings::take(&mut input)?;
        let mut state = Self::new(settings.check().map_err(malformed("settings"))?);
        state.revision = Revision::take(&mut input)?;
        state.term_floor = Term::take(&mut input)?;
        for _ in 0..u64::take(&mut input)? {
            let no = SessionNo::take(&mut input)?;
            let mut session = take_session(&mut input)?;
            if version >= STATE_VERSION_ALONE {
                let owner: Option<Principal> = Wire::take(&mut input)?;
                session.owner = owner.map(|owner| state.accounts.intern(owner));
            }
            state.by_secret.insert(session.id, no);
            in_order("sessions", state.sessions.keys().next_back(), &no)?;
            let bytes = weight::session(&session);
            state.sessions_bytes += bytes;
            state.accounts.charge(&session.owner, bytes);
            state.sessions.insert(no, session);
        }
        let mut payers = Payers::default();
        if version >= STATE_VERSION {
            payers = Payers::take(&mut input, &state)?;
        }
        for _ in 0..u64::take(&mut input)? {
            let name = Group::take(&mut input)?;
            let mut group = take_group(&mut input, version)?;
            if version >= STATE_VERSION {
                payers.take_charges(&mut group, &mut input)?;
            }
            in_order("groups", state.groups.last_name(), &name)?;
            state.adopt(name, group)?;
        }
        payers.check_used()?;
        state.requests = Requests::without_session().restored(Wire::take(&mut input)?)?;
        let prints = Vec::<u64>::take(&mut input)?;
        for print in &prints {
            state.ended.push(*print);
        }
        if state.ended.prints().len() != prints.len() {
            return Err(malformed("ended sessions")("too many of them, or one is named twice"));
        }
        if version >= STATE_VERSION_ALONE {
            state.access = Arc::new(Wire::take(&mut input)?);
        }
        if version >= STATE_VERSION_NATIVE {
            state.take_proposals(&mut input)?;
        }
        input.end()?;
        state.groups.weigh(&mut state.accounts);
        if state.version() != version {
            return Err(malformed("a state")("an earlier version would have told all of it"));
        }
        for (no, session) in &state.sessions {
            state.check_session(*no, session).map_err(malformed("a session"))?;
        }
        for (name, group) in state.groups.iter() {
            state.check_group(name, group).map_err(malformed("a group"))?;
        }
        Ok(state)
    }

    /// Takes a group that was read, and tells its sessions and the index about it.
    fn adopt(&mut self, name: Group, mut group: GroupState) -> Result<(), CodecError> {
        let no_such = |session: SessionNo| CodecError::Malformed {
            what: "a group",
            why: format!("{name} names session {session}, which is not open"),
        };
        if let Some(tenure) = group.office.tenure_mut() {
            let session = tenure.session;
            let record = self.sessions.get_mut(&session).ok_or_else(|| no_such(session))?;
            tenure.payer = record.owner.clone();
            record.leads.insert(name.clone());
        }
        for standby in &mut group.line {
            let session = standby.session;
            let record = self.sessions.get_mut(&session).ok_or_else(|| no_such(session))?;
            standby.payer = record.owner.clone();
            group.line_dues.charge(&standby.payer, weight::standby(standby));
            if !record.stands.insert(name.clone()) {
                let why = format!("{session} stands twice in {name}");
                return Err(CodecError::Malformed { what: "a group", why });
            }
        }
        self.groups.insert(name.clone(), group);
        self.mark(&name);
        Ok(())
    }
}

/// Whether a key comes after all that were read before it.
fn in_order<K: Ord>(what: &'static str, last: Option<&K>, next: &K) -> Result<(), CodecError> {
    if last.is_none_or(|last| last < next) {
        return Ok(());
    }
    Err(malformed(what)("they are out of order, or one is named twice"))
}

fn put_session(session: &Session, out: &mut Vec<u8>) {
    session.id.put(out);
    session.node.put(out);
    session.ttl_ms.put(out);
    session.ttl_ms_longest.put(out);
    session.passing.put(out);
    session.epoch.put(out);
    session.requests.parts().put(out);
}

fn take_session(input: &mut Input<'_>) -> Result<Session, CodecError> {
    Ok(Session {
        id: Wire::take(input)?,
        node: Wire::take(input)?,
        owner: None,
        ttl_ms: Wire::take(input)?,
        ttl_ms_longest: Wire::take(input)?,
        passing: Wire::take(input)?,
        epoch: Wire::take(input)?,
        gone: false,
        leads: Default::default(),
        stands: Default::default(),
        requests: Requests::of_session().restored(Wire::take(input)?)?,
    })
}

fn put_group(group: &GroupState, version: u8, out: &mut Vec<u8>) {
    group.term.put(out);
    group.policy.put(out);
    group.office.put(out);
    group.line.put(out);
    group.heir.put(out);
    group.doomed.put(out);
    if version != STATE_VERSION_DOORLESS {
        group.door.put(out);
    }
    if version >= STATE_VERSION_STOPLESS {
        group.fences.put(out);
    }
    if version >= STATE_VERSION_UNPAID {
        group.came_from.put(out);
    }
    group.history.put(out);
}

fn take_group(input: &mut Input<'_>, version: u8) -> Result<GroupState, CodecError> {
    let (term, policy) = (Wire::take(input)?, take_policy(input)?);
    let office = Office::take(input)?;
    let line = Vec::<Standby>::take(input)?;
    Ok(GroupState {
        creator: None,
        term,
        policy,
        policy_payer: None,
        office,
        line_bytes: line.iter().map(weight::standby).sum(),
        line,
        line_dues: Dues::default(),
        heir: Wire::take(input)?,
        doomed: Wire::take(input)?,
        door: if version == STATE_VERSION_DOORLESS { None } else { Wire::take(input)? },
        fences: if version >= STATE_VERSION_STOPLESS { Wire::take(input)? } else { None },
        came_from: if version >= STATE_VERSION_UNPAID { Wire::take(input)? } else { None },
        history: Wire::take(input)?,
        marks: Marks::default(),
        weight: 0,
    })
}

/// Everybody who may be charged for a part of a group, its offices and lines aside.
fn payers_of(group: &GroupState) -> impl Iterator<Item = &Payer> {
    let marks = group.fences.iter().flat_map(|fences| fences.marks.values());
    [&group.creator, &group.policy_payer].into_iter().chain(marks.map(|mark| &mark.payer))
}

/// The same, to be filled in.
fn payers_of_mut(group: &mut GroupState) -> impl Iterator<Item = &mut Payer> {
    let marks = group.fences.iter_mut().flat_map(|fences| fences.marks.values_mut());
    let own = [&mut group.creator, &mut group.policy_payer];
    own.into_iter().chain(marks.map(|mark| &mut mark.payer))
}

/// Those who are charged, in order, and whether a group has named them.
#[derive(Default)]
struct Payers(Vec<(Arc<Principal>, bool)>);

impl Payers {
    fn of(state: &State) -> Self {
        let named = state.groups.iter().flat_map(|(_, group)| payers_of(group)).flatten();
        let all: BTreeSet<&Arc<Principal>> = named.collect();
        Self(all.into_iter().map(|who| (Arc::clone(who), true)).collect())
    }

    fn put(&self, out: &mut Vec<u8>) {
        (self.0.len() as u64).put(out);
        for (who, _) in &self.0 {
            (**who).put(out);
        }
    }

    fn take(input: &mut Input<'_>, state: &State) -> Result<Self, CodecError> {
        let mut payers: Vec<(Arc<Principal>, bool)> = Vec::new();
        for _ in 0..input.count("payers")? {
            let who = state.accounts.intern(Wire::take(input)?);
            in_order("payers", payers.last().map(|(last, _)| last), &who)?;
            payers.push((who, false));
        }
        Ok(Self(payers))
    }

    fn put_charges(&self, group: &GroupState, out: &mut Vec<u8>) {
        for payer in payers_of(group) {
            let place = payer.as_ref().map_or(0, |payer| {
                let place = self.0.binary_search_by(|(who, _)| who.cmp(payer));
                1 + place.expect("all payers of all groups are in the list") as u64
            });
            place.put(out);
        }
    }

    fn take_charges(
        &mut self,
        group: &mut GroupState,
        input: &mut Input<'_>,
    ) -> Result<(), CodecError> {
        for payer in payers_of_mut(group) {
            let Some(place) = u64::take(input)?.checked_sub(1) else { continue };
            let named = usize::try_from(place).ok().and_then(|place| self.0.get_mut(place));
            let (who, is_used) = named.ok_or_else(|| malformed("a payer")("it is not listed"))?;
            *is_used = true;
            *payer = Some(Arc::clone(who));
        }
        Ok(())
    }

    fn check_used(&self) -> Result<(), CodecError> {
        match self.0.iter().find(|(_, is_used)| !is_used) {
            None => Ok(()),
            Some((who, _)) => Err(malformed("payers")(format!("{who} pays for nothing"))),
        }
    }
}

impl Wire for Fences {
    fn put(&self, out: &mut Vec<u8>) {
        self.floor.put(out);
        (self.marks.len() as u64).put(out);
        for (resource, mark) in &self.marks {
            resource.put(out);
            mark.term.put(out);
        }
    }

    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let floor = Term::take(input)?;
        let mut marks = BTreeMap::new();
        for _ in 0..input.count("fences")? {
            let resource = Resource::take(input)?;
            in_order("fences", marks.keys().next_back(), &resource)?;
            marks.insert(resource, Mark { term: Term::take(input)?, payer: None });
        }
        Ok(Self { floor, marks })
    }
}

/// A policy in a state is valid, unlike one that an entry merely wishes for.
fn take_policy(input: &mut Input<'_>) -> Result<Option<Box<Policy>>, CodecError> {
    let policy: Option<Policy> = Wire::take(input)?;
    let Some(policy) = policy else { return Ok(None) };
    let policy = policy.check(TTL_MS_CEILING).map_err(malformed("a policy"))?;
    Ok(Some(Box::new(policy)))
}

impl Index {
    /// What this index would be if it were computed from scratch.
    pub(super) fn recomputed(state: &State) -> Self {
        let mut fresh = Self::default();
        for (name, group) in state.groups.iter() {
            fresh.note(name, Marks::default(), group.marks);
        }
        fresh
    }
}
