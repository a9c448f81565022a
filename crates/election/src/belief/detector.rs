//! Finds out that somebody acts under a term which is not the one in office. Pure: it reads no clock and asks nobody.
//!
//! ```text
//!            heartbeat                    contradicted for a ttl,
//!   unseen ------------> agrees <-----+   or it says itself that its time is over
//!                          |          |        |
//!                          v          |        v
//!                     contradicted ---+    suspected --- the quorum says so too ---> accused, once
//! ```
//!
//! **Nobody is accused on hearsay.** What a server knows from its watch may be old, and so may be the claim: it was
//! sent before it was read. So a claim must stand against the office for a whole ttl of its believer, in one heartbeat
//! after another, and then a linearizable read must still say the same ([`Answered::Ask`]). Only one that *says itself*
//! that its time is over, because its work did not stop, is asked about at once.
//!
//! The roads not taken: comparing revisions that claims are "as of" (those of a store without a log count causes, not
//! time, so a message under way could look newer than what ended it); and accusing by what two claims say of each
//! other alone (the office knows which of them is wrong, and a lone claimant may be wrong too).
//!
//! Memory is bounded by [`BELIEVERS_MAX`]; who is not heard for three ttls, or a ttl and a minute, is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::ops::Bound;
use std::time::Duration;

use super::Beliefs;
use crate::limits::{
    BELIEVERS_MAX, CLAIMS_PER_HEARTBEAT_MAX, STRANGERS_MAX, TTL_MS_CEILING, TTL_MS_FLOOR,
};
use crate::moment::Moment;
use crate::name::{Digest, Group, Node, SessionId};
use crate::term::Term;

/// How long at most a claim must stand against the office: nothing is under way for longer.
const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// How often those that are gone are forgotten at most: a table that is full must not be searched at every heartbeat.
const FORGET_EVERY: Duration = Duration::from_secs(1);

/// How often one office is read at most.
const READ_EVERY: Duration = Duration::from_secs(1);

/// What is wrong with a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimFault {
    /// Its term is over: a later one was granted, or nobody leads.
    Over,
    /// Its term is in office, and another node holds it.
    Another,
    /// Its term was never granted here.
    NeverGranted,
}

impl ClaimFault {
    /// The word for wires and people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Over => "over",
            Self::Another => "another",
            Self::NeverGranted => "never_granted",
        }
    }
}

/// How a claim stands against the office.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStanding {
    /// Nobody has asked yet who leads.
    Unchecked,
    /// It is the office's.
    Agrees,
    /// It is not, which a message under way explains.
    Contradicted(ClaimFault),
    /// It is not, for certain.
    Accused(ClaimFault),
}

impl ClaimStanding {
    /// Whether the claim is not the office's.
    #[must_use]
    pub const fn is_disputed(self) -> bool {
        matches!(self, Self::Contradicted(_) | Self::Accused(_))
    }

    /// The word for wires and people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unchecked => "unchecked",
            Self::Agrees => "agrees",
            Self::Contradicted(_) => "contradicted",
            Self::Accused(_) => "accused",
        }
    }

    /// What is wrong with it, if anything.
    #[must_use]
    pub const fn fault(self) -> Option<ClaimFault> {
        match self {
            Self::Unchecked | Self::Agrees => None,
            Self::Contradicted(fault) | Self::Accused(fault) => Some(fault),
        }
    }
}

/// One claim, as it was last heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Believer {
    pub node: Node,
    /// Under which term.
    pub term: Term,
    /// How long it held itself entitled to.
    pub left_ms: u64,
    /// What its state looks like.
    pub digest: Option<Digest>,
    /// The ttl it counts by.
    pub ttl_ms: u64,
    /// When it was heard.
    pub heard_at: Moment,
    /// How it stands.
    pub standing: ClaimStanding,
}

/// A group, its office as far as it is known, and who claims it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedGroup {
    pub group: Group,
    /// The term in office or the last one granted, and who leads.
    pub office: Option<(Term, Option<Node>)>,
    /// Who acts there.
    pub believers: Vec<Believer>,
}

/// Somebody acts who must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accusation {
    pub group: Group,
    /// What is wrong.
    pub fault: ClaimFault,
    /// Who acts.
    pub believer: Believer,
    /// The term in office, or the last one granted.
    pub term: Term,
    /// Who leads.
    pub leader: Option<Node>,
    /// What the leader's state looks like, if it told.
    pub leader_digest: Option<Digest>,
}

impl Accusation {
    /// Whether both told what their state looks like, and it differs: it must be reconciled.
    #[must_use]
    pub fn has_diverged(&self) -> bool {
        matches!((&self.believer.digest, &self.leader_digest), (Some(a), Some(b)) if a != b)
    }

    /// What a command that is run about it is told, by names and values.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let text = |value: &dyn ToString| OsString::from(value.to_string());
        let or_none = |value: Option<&dyn ToString>| value.map_or_else(OsString::new, text);
        let Self { group, fault, believer, term, leader, leader_digest } = self;
        vec![
            ("REGENT_GROUP", text(group)),
            ("REGENT_FAULT", text(&fault.word())),
            ("REGENT_CLAIMANT", text(&believer.node)),
            ("REGENT_CLAIMANT_TERM", text(&believer.term)),
            ("REGENT_CLAIMANT_DIGEST", or_none(believer.digest.as_ref().map(|it| it as _))),
            ("REGENT_LEADER", or_none(leader.as_ref().map(|it| it as _))),
            ("REGENT_TERM", text(term)),
            ("REGENT_LEADER_DIGEST", or_none(leader_digest.as_ref().map(|it| it as _))),
            ("REGENT_DIVERGED", text(&self.has_diverged())),
        ]
    }
}

/// Which wish to read an office an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asked(u64);

/// What hearing a heartbeat asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    Nothing,
    /// Read linearizably who leads these groups, and tell it with its number to [`Detector::confirm`].
    Ask(Vec<(Group, Asked)>),
}

/// Everybody's claims, and what is known of the offices they are about.
#[derive(Debug, Default)]
pub struct Detector {
    groups: BTreeMap<Group, Watched>,
    /// Which groups a session claims.
    sessions: BTreeMap<SessionId, Claiming>,
    /// How many claims there are.
    believers: usize,
    /// How many of them by sessions that the store does not know.
    strangers: usize,
    /// When those that are gone were last forgotten.
    forgot_at: Option<Moment>,
    /// How many heartbeats were heard.
    heard: u64,
}

#[derive(Debug)]
struct Claiming {
    is_known: bool,
    /// How many heartbeats claimed any, one after another.
    heartbeats: u64,
    groups: BTreeSet<Group>,
}

#[derive(Debug, Default)]
struct Watched {
    /// Who leads under which term, as far as it was told.
    office: Option<(Term, Option<Node>)>,
    /// Somebody was sent to read it: how many heartbeats had been heard by then.
    asking: Option<Asked>,
    /// When it was last read.
    read_at: Option<Moment>,
    claims: BTreeMap<SessionId, Entry>,
}

impl Watched {
    /// The claims that were heard not long ago.
    fn alive(&self, now: Moment) -> impl Iterator<Item = &Believer> {
        self.claims.values().filter(move |entry| !entry.is_gone(now)).map(|entry| &entry.believer)
    }

    fn shown(&self, now: Moment, group: &Group, disputed: bool) -> Option<ClaimedGroup> {
        let is_meant = self.alive(now).any(|it| !disputed || it.standing.is_disputed());
        is_meant.then(|| ClaimedGroup {
            group: group.clone(),
            office: self.office.clone(),
            believers: self.alive(now).cloned().collect(),
        })
    }

    /// Takes what is told of the office, unless something later is known: under one term there is a leader first
    /// and nobody after.
    fn learn(&mut self, term: Term, leader: Option<&Node>) {
        let place = |term: Term, leader: Option<&Node>| (term, leader.is_none());
        let known = self.office.as_ref();
        if known.is_none_or(|(at, who)| place(*at, who.as_ref()) <= place(term, leader)) {
            self.office = Some((term, leader.cloned()));
        }
    }
}

#[derive(Debug)]
struct Entry {
    /// Which of all heartbeats told it first.
    number: u64,
    believer: Believer,
    /// Since when it has stood against the office without a break.
    against_since: Option<Moment>,
    ttl: Duration,
    accused: Option<ClaimFault>,
}

impl Entry {
    fn is_gone(&self, now: Moment) -> bool {
        self.believer.heard_at + (self.ttl * 3).min(self.ttl + PATIENCE_MAX) <= now
    }
}

/// How a claim stands against an office.
fn fault(believer: &Believer, term: Term, leader: Option<&Node>) -> Option<ClaimFault> {
    if believer.term > term {
        Some(ClaimFault::NeverGranted)
    } else if believer.term < term || leader.is_none() {
        Some(ClaimFault::Over)
    } else if leader != Some(&believer.node) {
        Some(ClaimFault::Another)
    } else {
        None
    }
}

impl Detector {
    /// A heartbeat came. Who acts without a session that the store knows is heard too: it may be whom all this is
    /// about. But there is less room for such.
    pub fn heartbeat(
        &mut self,
        now: Moment,
        session: SessionId,
        is_known: bool,
        beliefs: &Beliefs,
    ) -> Answered {
        self.heard += 1;
        self.drop_unclaimed(session, is_known, beliefs);
        let ttl = Duration::from_millis(beliefs.ttl_ms.clamp(TTL_MS_FLOOR, TTL_MS_CEILING));
        let mut asks = Vec::new();
        for claim in beliefs.claims.iter().take(CLAIMS_PER_HEARTBEAT_MAX) {
            if !self.has_room(now, session, is_known, &claim.group) {
                continue;
            }
            let watched = self.groups.entry(claim.group.clone()).or_default();
            let before = watched.claims.remove(&session);
            let goes_on = before.filter(|had| had.believer.term == claim.term);
            let mut entry = Entry {
                number: goes_on.as_ref().map_or(self.heard, |had| had.number),
                believer: Believer {
                    node: beliefs.node.clone(),
                    term: claim.term,
                    left_ms: claim.left_ms,
                    digest: claim.digest.clone(),
                    ttl_ms: beliefs.ttl_ms,
                    heard_at: now,
                    standing: ClaimStanding::Unchecked,
                },
                against_since: goes_on.as_ref().and_then(|had| had.against_since),
                ttl,
                accused: goes_on.as_ref().and_then(|had| had.accused),
            };
            let must_ask = match &watched.office {
                None => true,
                Some((term, leader)) => weigh(&mut entry, now, *term, leader.as_ref()),
            };
            watched.claims.insert(session, entry);
            // A claim that no read settles must not make everybody read for ever.
            let is_soon = watched.read_at.is_some_and(|at| now < at + READ_EVERY);
            if must_ask && !is_soon && watched.asking.is_none() {
                let asked = Asked(self.heard);
                watched.asking = Some(asked);
                asks.push((claim.group.clone(), asked));
            }
        }
        if let Some(claiming) = self.sessions.get_mut(&session) {
            claiming.heartbeats += 1;
        }
        if asks.is_empty() { Answered::Nothing } else { Answered::Ask(asks) }
    }

    /// A heartbeat with room left tells everything its node acts under: what it does not tell is over.
    fn drop_unclaimed(&mut self, session: SessionId, is_known: bool, beliefs: &Beliefs) {
        let Some(claiming) = self.sessions.get_mut(&session) else { return };
        if claiming.is_known != is_known {
            claiming.is_known = is_known;
            let count = claiming.groups.len();
            self.strangers = if is_known { self.strangers - count } else { self.strangers + count };
        }
        if beliefs.claims.len() < CLAIMS_PER_HEARTBEAT_MAX {
            let is_told = |group: &Group| beliefs.claims.iter().any(|claim| claim.group == *group);
            self.drop_claims(session, is_told);
        }
    }

    /// How many heartbeats of a session have claimed anything, one after another, up to the last one heard.
    #[must_use]
    pub fn heartbeats_claiming(&self, session: SessionId) -> u64 {
        self.sessions.get(&session).map_or(0, |claiming| claiming.heartbeats)
    }

    /// A session was closed by its owner: nobody acts for it.
    pub fn closed(&mut self, session: SessionId) {
        self.drop_claims(session, |_| false);
    }

    fn drop_claims(&mut self, session: SessionId, stays: impl Fn(&Group) -> bool) {
        let Some(claiming) = self.sessions.get_mut(&session) else { return };
        for group in claiming.groups.extract_if(.., |group| !stays(group)) {
            self.believers -= 1;
            self.strangers -= usize::from(!claiming.is_known);
            if let Some(watched) = self.groups.get_mut(&group) {
                watched.claims.remove(&session);
                if watched.claims.is_empty() {
                    self.groups.remove(&group);
                }
            }
        }
        if claiming.groups.is_empty() {
            self.sessions.remove(&session);
        }
    }

    /// Whether a claim can be remembered; if so, it is counted.
    fn has_room(&mut self, now: Moment, session: SessionId, is_known: bool, group: &Group) -> bool {
        if self.sessions.get(&session).is_some_and(|claiming| claiming.groups.contains(group)) {
            return true;
        }
        if !self.is_below(is_known) && self.forgot_at.is_none_or(|at| at + FORGET_EVERY <= now) {
            self.forget(now);
        }
        let has_room = self.is_below(is_known);
        if has_room {
            self.believers += 1;
            self.strangers += usize::from(!is_known);
            let fresh = || Claiming { is_known, heartbeats: 0, groups: BTreeSet::new() };
            self.sessions.entry(session).or_insert_with(fresh).groups.insert(group.clone());
        }
        has_room
    }

    const fn is_below(&self, is_known: bool) -> bool {
        self.believers < BELIEVERS_MAX && (is_known || self.strangers < STRANGERS_MAX)
    }

    /// A watch told who leads. Groups that nobody claims are not remembered.
    pub fn watched(&mut self, group: &Group, term: Term, leader: Option<&Node>) {
        if let Some(watched) = self.groups.get_mut(group) {
            watched.learn(term, leader);
        }
    }

    /// Changes went by untold: nothing is known of any office.
    pub fn blind(&mut self) {
        for watched in self.groups.values_mut() {
            watched.office = None;
        }
    }

    /// A linearizable read that began after [`Detector::heartbeat`] asked for it.
    pub fn confirm(
        &mut self,
        now: Moment,
        (group, asked): (&Group, Asked),
        term: Term,
        leader: Option<&Node>,
    ) -> Vec<Accusation> {
        let Some(watched) = self.groups.get_mut(group) else { return Vec::new() };
        // The answer to an earlier question knows less than the claims that this one is about.
        if watched.asking != Some(asked) {
            return Vec::new();
        }
        (watched.asking, watched.read_at) = (None, Some(now));
        if term == Term::NONE {
            // Nobody knows this group: it was deleted, or never was. Its past terms are not known either.
            return Vec::new();
        }
        watched.learn(term, leader);
        let leader_digest = watched
            .claims
            .values()
            .map(|entry| &entry.believer)
            .find(|other| other.term == term && Some(&other.node) == leader)
            .and_then(|other| other.digest.clone());
        let mut accusations = Vec::new();
        // A claim that was first made after the read began may know more than it.
        for entry in watched.claims.values_mut().filter(|entry| entry.number <= asked.0) {
            if !weigh(entry, now, term, leader) || entry.is_gone(now) {
                continue;
            }
            let Some(fault) = fault(&entry.believer, term, leader) else { continue };
            entry.accused = Some(fault);
            entry.believer.standing = ClaimStanding::Accused(fault);
            accusations.push(Accusation {
                group: group.clone(),
                fault,
                believer: entry.believer.clone(),
                term,
                leader: leader.cloned(),
                leader_digest: leader_digest.clone(),
            });
        }
        accusations
    }

    /// The read that was asked for failed; it is asked for again with the next heartbeat.
    pub fn failed(&mut self, group: &Group, asked: Asked) {
        if let Some(watched) = self.groups.get_mut(group).filter(|it| it.asking == Some(asked)) {
            watched.asking = None;
        }
    }

    /// Who claims a group, as last heard.
    #[must_use]
    pub fn believers(&self, now: Moment, group: &Group) -> Vec<Believer> {
        self.groups
            .get(group)
            .map(|watched| watched.alive(now).cloned().collect())
            .unwrap_or_default()
    }

    /// One group and its claims, if there are any; with `disputed`, only if not every claim agrees with the office.
    #[must_use]
    pub fn of(&self, now: Moment, group: &Group, disputed: bool) -> Option<ClaimedGroup> {
        self.groups.get(group)?.shown(now, group, disputed)
    }

    /// The claimed groups after `after` with all their claims, until there are `count` claims; with `disputed`, only
    /// groups in which not every claim agrees with the office.
    #[must_use]
    pub fn page(
        &self,
        now: Moment,
        after: Option<&Group>,
        disputed: bool,
        count: usize,
    ) -> Vec<ClaimedGroup> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut told = 0;
        let mut page = Vec::new();
        for (group, watched) in self.groups.range::<Group, _>((start, Bound::Unbounded)) {
            if told >= count {
                break;
            }
            if let Some(claimed) = watched.shown(now, group, disputed) {
                told += claimed.believers.len();
                page.push(claimed);
            }
        }
        page
    }

    /// How many act, as far as is heard, and how many of them are accused in which groups.
    #[must_use]
    pub fn count(&self, now: Moment) -> (u64, BTreeMap<Group, u64>) {
        let (mut all, mut accused) = (0, BTreeMap::new());
        for (group, watched) in &self.groups {
            for entry in watched.claims.values().filter(|entry| !entry.is_gone(now)) {
                all += 1;
                if entry.accused.is_some() {
                    *accused.entry(group.clone()).or_default() += 1;
                }
            }
        }
        (all, accused)
    }

    /// Forgets whoever was not heard for long.
    pub fn forget(&mut self, now: Moment) {
        self.forgot_at = Some(now);
        let sessions = &mut self.sessions;
        self.groups.retain(|group, watched| {
            watched.claims.retain(|session, entry| {
                if entry.is_gone(now)
                    && let Some(claiming) = sessions.get_mut(session)
                {
                    claiming.groups.remove(group);
                }
                !entry.is_gone(now)
            });
            !watched.claims.is_empty()
        });
        self.sessions.retain(|_, claiming| !claiming.groups.is_empty());
        let count = |is_meant: fn(&Claiming) -> bool| {
            let meant = self.sessions.values().filter(|claiming| is_meant(claiming));
            meant.map(|claiming| claiming.groups.len()).sum()
        };
        self.believers = count(|_| true);
        self.strangers = count(|claiming| !claiming.is_known);
    }
}

/// Judges a claim by what is known of its office; says whether the office must be read for it.
fn weigh(entry: &mut Entry, now: Moment, term: Term, leader: Option<&Node>) -> bool {
    let Some(fault) = fault(&entry.believer, term, leader) else {
        entry.against_since = None;
        entry.accused = None;
        entry.believer.standing = ClaimStanding::Agrees;
        return false;
    };
    if let Some(accused) = entry.accused {
        entry.believer.standing = ClaimStanding::Accused(accused);
        return false;
    }
    entry.believer.standing = ClaimStanding::Contradicted(fault);
    if fault == ClaimFault::NeverGranted {
        // A term above those known is news, until a read says that it is not. No time counts against it.
        return true;
    }
    let since = *entry.against_since.get_or_insert(now);
    let confesses = entry.believer.left_ms == 0;
    confesses || since + entry.ttl.min(PATIENCE_MAX) <= entry.believer.heard_at
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
