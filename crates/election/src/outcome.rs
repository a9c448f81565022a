//! What the state machine says: answers, refusals, events, and work for the driver.

use std::fmt;

use crate::access::{AccessError, CredentialFlaw, Denial, Principal, Right, TokenId};
use crate::command::WaitKind;
use crate::limits::PROPOSALS_PER_GROUP_MAX;
use crate::name::{Group, Home, Metadata, Node, Reason, Resource, SessionNo};
use crate::policy::PolicyError;
use crate::term::{Revision, Term};

/// Everything one entry brought about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The revision of this entry.
    pub revision: Revision,
    /// What its sender is told.
    pub answer: Result<Answer, Refusal>,
    /// What watchers are told, in order.
    pub events: Vec<Event>,
    /// What the driver must now time.
    pub effects: Vec<Effect>,
}

/// A definite yes, or a definite "not this time".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The session is open.
    Session {
        /// Its public handle.
        session: SessionNo,
        ttl_ms: u64,
    },
    /// The caller leads.
    Elected {
        /// Its public handle.
        session: SessionNo,
        ttl_ms: u64,
        term: Term,
    },
    /// The caller stands in line.
    Standing {
        /// Its public handle.
        session: SessionNo,
        ttl_ms: u64,
        /// Its place, the next one in line being 0.
        place: u32,
    },
    /// The caller lost and left nothing behind.
    Lost,
    /// It is done, or had been done by this request's first try.
    Done,
    /// The tenure is ending: its holder has been told, and has at most this long.
    Ending {
        /// The holder's ttl.
        within_ms: u64,
    },
    /// A forced end: the old holder may go on acting for this long.
    Forced {
        /// The holder's ttl.
        overlap_possible_ms: u64,
    },
    /// What was to happen had been overtaken. Only drivers see this.
    Overtaken,
}

impl Answer {
    /// The term, if the caller leads.
    #[must_use]
    pub const fn elected(&self) -> Option<Term> {
        match self {
            Self::Elected { term, .. } => Some(*term),
            Self::Session { .. }
            | Self::Standing { .. }
            | Self::Lost
            | Self::Done
            | Self::Ending { .. }
            | Self::Forced { .. }
            | Self::Overtaken => None,
        }
    }
}

/// A definite no: nothing happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such session: it expired, was closed, or never was.
    #[error("this session is not open: it expired, was closed, or never was; open another one")]
    SessionUnknown,
    /// An id in use with another node or ttl. It does not say whose: the caller may not be its owner.
    #[error(
        "this session id is in use with another node or ttl; name both as when it was opened, or choose another id"
    )]
    SessionMismatch,
    /// A heartbeat that is not newer than the last: another process uses the same session.
    #[error(
        "heartbeat {given} is not above {last}, the last one seen of this session; if this was no late duplicate, another process is using the same session id"
    )]
    HeartbeatNotNewer {
        /// The number given.
        given: u64,
        /// The last number seen.
        last: u64,
    },
    /// The caller does not hold this office under this term.
    #[error("{}", not_leader(group, *given, *term, leader.as_ref()))]
    NotLeader {
        group: Group,
        /// The term the caller named.
        given: Term,
        /// The group's term.
        term: Term,
        /// Who leads, if anybody.
        leader: Option<Node>,
    },
    /// The tenure is ending: stop, then resign to confirm.
    #[error("term {term} of {group} is ending ({cause}): stop at once, then resign to confirm")]
    TenureEnding { group: Group, term: Term, cause: Cause },
    /// The session's ttl does not fit.
    #[error("ttl {ttl_ms} ms is outside {min} ms to {max} ms{}", for_group(group.as_ref()))]
    TtlOutOfBounds {
        /// The group whose policy says so; none for the store's own bounds.
        group: Option<Group>,
        ttl_ms: u64,
        /// Shortest allowed.
        min: u64,
        /// Longest allowed.
        max: u64,
    },
    /// The policy does not allow this node.
    #[error("{node} may not campaign in {group}: its policy allows other nodes")]
    NotAllowed { group: Group, node: Node },
    /// No such group, and it is not created by a campaign.
    #[error("there is no group {group}; create it first")]
    GroupUnknown { group: Group },
    /// The group is being deleted: its last tenure is ending.
    #[error("{group} is being deleted; try again when its last tenure has ended")]
    GroupEnding { group: Group },
    /// Nobody leads, so nobody can step down.
    #[error("nobody leads {group}")]
    NobodyLeads { group: Group },
    /// A bound of `limits.rs` or of a policy is reached.
    #[error("{what} is full: at most {max}")]
    Full {
        /// What is full.
        what: &'static str,
        /// How many fit.
        max: u64,
    },
    /// The state weighs as much as the store allows.
    #[error(
        "the store's state is full: {used} bytes are used and this adds {adds}, at most {max}; delete groups, close sessions, or raise state_mib_max"
    )]
    StateFull {
        /// What the state weighs, with what is proposed and not applied.
        used: u64,
        /// What the command may add.
        adds: u64,
        /// The most that it may weigh.
        max: u64,
    },
    /// One principal takes as much of the state as the store allows to one.
    #[error(
        "the share of {who} is full: it takes {used} bytes of the state and this adds {adds}, at most {max} for one principal; delete groups, policies and fences that it made, close its sessions, or raise state_percent_per_principal"
    )]
    ShareFull {
        /// Whose share it is.
        who: Box<Principal>,
        /// What is charged to it, with what is proposed and not applied.
        used: u64,
        /// What the command may add.
        adds: u64,
        /// The most that one principal may take.
        max: u64,
    },
    /// No standby of that name.
    #[error("{to} does not stand in {group}; it must campaign there first")]
    SuccessorUnknown { group: Group, to: Node },
    /// More than one standby of that name.
    #[error("{count} standbys of {group} call themselves {to}; a successor must be one session")]
    SuccessorAmbiguous { group: Group, to: Node, count: u32 },
    /// The standby has not been heard lately.
    #[error("{to} stands in {group} but has not been heard for half its ttl")]
    SuccessorSilent { group: Group, to: Node },
    /// No such offer.
    #[error("there is no offer to this session in {group}")]
    NoOffer { group: Group },
    /// The store has forgotten ids of that age: it may have run.
    #[error(
        "request ids made at revision {seen} are forgotten (all up to {forgotten} are): it may have run; read back, then use an id that opens with a fresh revision"
    )]
    RequestTooOld {
        /// The revision in the id.
        seen: Revision,
        /// The last revision whose ids are forgotten.
        forgotten: Revision,
    },
    /// The id claims to have seen a revision that is yet to come: it could never be told from old.
    #[error(
        "this request id opens with revision {seen}, but the store is at {revision}; use a revision from an answer of this store"
    )]
    RequestAhead {
        /// The revision in the id.
        seen: Revision,
        /// The store's.
        revision: Revision,
    },
    /// The same id came with another request.
    #[error("this request id was used for another request; choose a new one")]
    RequestReused,
    /// The policy contradicts itself or the store.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The group has moved to another store.
    #[error("{group} has moved to {to}; nobody is elected here any more")]
    Moved {
        group: Group,
        /// Where it went.
        to: Home,
    },
    /// The group is on its way here from another store.
    #[error("{group} is on its way here from {from}; finish its move, or turn it round, first")]
    OnItsWay {
        group: Group,
        /// Where it comes from.
        from: Home,
    },
    /// The group is not expected here, or not any more by this move.
    #[error("{group} is not expected here by the move that began at revision {since}")]
    NotExpected {
        group: Group,
        /// The revision that was named.
        since: Revision,
    },
    /// The group is stopped for recovery, by this stop.
    #[error(
        "{group} is stopped for recovery since revision {since}; finish that first (regent doctor split-brain --group {group} --recover)"
    )]
    Stopped {
        group: Group,
        /// The revision at which it was stopped.
        since: Revision,
    },
    /// A group that is led, or whose last tenure is ending, cannot arrive.
    #[error(
        "the office of {group} is not vacant (term {term}); wait for its end, or end it, first"
    )]
    StillLed { group: Group, term: Term },
    /// A higher term was granted, or was admitted at this resource: the caller has lost its office.
    #[error("{}", stale(group, resource.as_ref(), *given, *current))]
    StaleTerm {
        group: Group,
        /// Where it was to be admitted; none if it was compared with the term of the group itself.
        resource: Option<Resource>,
        given: Term,
        /// The higher one.
        current: Term,
    },
    /// Nobody holds the office under this term any more, and nobody has followed yet.
    #[error("term {given} of {group} is over, and nobody has followed yet; stop at once")]
    TermOver { group: Group, given: Term },
    /// A term that the group has not granted, or not yet.
    #[error("term {given} of {group} was never granted; the last one was {current}")]
    NeverGranted {
        group: Group,
        given: Term,
        /// The last one granted.
        current: Term,
    },
    /// No such fence.
    #[error("{group} has no fence for {resource}")]
    FenceUnknown { group: Group, resource: Resource },
    /// The caller lacks a right.
    #[error("{why}")]
    Denied {
        /// The missing right.
        right: Right,
        /// The group it is missing in, if the request named one.
        group: Option<Group>,
        /// The whole explanation, with the nearest binding.
        why: Box<str>,
    },
    /// The caller showed no credential, or one that the server does not know. No state says so: the server does.
    #[error("{why}")]
    Unauthenticated {
        /// The server's explanation.
        why: Box<str>,
    },
    /// The session was opened by another principal, which this one may not act for.
    #[error("this session belongs to another principal; open one of your own")]
    SessionOfAnother,
    /// The caller's credential is not good any more.
    #[error(
        "the credential is {flaw}: with it you can resign, withdraw and close your session, nothing else; get a new one"
    )]
    CredentialOver { flaw: CredentialFlaw },
    /// The bindings have changed since the caller read them.
    #[error(
        "the bindings are at version {version}, not {expected}: somebody changed them; read them again, then repeat"
    )]
    BindingsChanged { expected: u64, version: u64 },
    /// The bindings, or a token, break a bound.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// No such token.
    #[error("there is no token {token}")]
    TokenUnknown { token: TokenId },
    /// The id of a token that exists already.
    #[error("there is a token {token} already; choose another id")]
    TokenExists { token: TokenId },
    /// The group's policy wants two principals for this, and one has asked.
    #[error("{}", approval(group, *proposal, by, *is_other))]
    SecondApprovalNeeded {
        group: Group,
        /// The open proposal, or the oldest of them: the revision at which its maker took a place.
        proposal: Revision,
        /// Who made it.
        by: Box<Principal>,
        /// Whether it is for another request, and there is no place to propose this one.
        is_other: bool,
    },
    /// The group's policy wants two principals for this, and the caller is none.
    #[error(
        "{group} needs two operators for this (four_eyes), and callers have no names here; use servers with auth = \"required\""
    )]
    NobodyToApprove { group: Group },
    /// A term that an operator gave and no group can have reached.
    #[error(
        "term {given} is above {max}, half of all terms: {group} would soon have none left; name the last term that the old store granted"
    )]
    TermTooHigh {
        group: Group,
        given: Term,
        /// The highest that may be given.
        max: u64,
    },
    /// The group has used all terms.
    #[error("{group} has used every term below 2^53")]
    TermsExhausted { group: Group },
}

impl From<Box<Denial>> for Refusal {
    fn from(denial: Box<Denial>) -> Self {
        let why = denial.to_string().into_boxed_str();
        Self::Denied { right: denial.right, group: denial.group, why }
    }
}

fn approval(group: &Group, proposal: Revision, by: &Principal, is_other: bool) -> String {
    if is_other {
        format!(
            "{group} needs two operators for this (four_eyes), and {PROPOSALS_PER_GROUP_MAX} other requests wait for their second one, the oldest of them proposal {proposal} by {by}; let another operator send one of those very requests, or ask again 10 minutes after it was made"
        )
    } else {
        format!(
            "{group} needs two operators for this (four_eyes): proposal {proposal} by {by} is noted; another operator must send the very same request within 10 minutes of it"
        )
    }
}

fn for_group(group: Option<&Group>) -> String {
    group.map_or_else(
        || ", the bounds of this store".into(),
        |group| format!(", the bounds of {group}"),
    )
}

fn stale(group: &Group, resource: Option<&Resource>, given: Term, current: Term) -> String {
    match resource {
        Some(resource) => {
            format!("term {given} < current {current} at {resource} of {group}; stop at once")
        }
        None => format!("term {given} < current {current} of {group}; stop at once"),
    }
}

fn not_leader(group: &Group, given: Term, term: Term, leader: Option<&Node>) -> String {
    match leader {
        Some(leader) if given < term => {
            format!("term {given} < current {term}: {leader} leads {group}; stop at once")
        }
        Some(leader) => format!(
            "this session does not hold term {given} of {group}: {leader} leads with term {term}; stop at once"
        ),
        None => format!(
            "this session does not hold term {given} of {group}: nobody leads, the last term was {term}; stop at once"
        ),
    }
}

/// Why the leader of a group changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The office was vacant and a candidate won it.
    Elected,
    /// The leader gave the office up.
    Resigned,
    /// The leader handed the office to a named standby.
    Transferred,
    /// The leader's session was not heard for its whole ttl.
    Expired,
    /// An administrator ended the tenure and the holder had time to stop.
    SteppedDown,
    /// An administrator ended the tenure at once; two may have acted.
    Forced,
    /// The leader withdrew its candidacy.
    Withdrawn,
    /// The policy no longer allows the leader.
    Policy,
    /// The group was deleted.
    Deleted,
    /// A promoted standby did not accept in time.
    PassedOver,
    /// The group moved to another store, or came from one.
    Moved,
    /// A finding: somebody acts under a term that is not the one in office.
    SplitBrain,
    /// A finding: a fence refused a term that was over.
    StaleAttempt,
    /// A finding: the leader's renewal came when little of its term was left.
    NearMiss,
    /// A finding: the leader's renewals are about to come too late.
    Failing,
}

impl Cause {
    /// All causes, for tables and metrics.
    pub const ALL: [Self; 15] = [
        Self::Elected,
        Self::Resigned,
        Self::Transferred,
        Self::Expired,
        Self::SteppedDown,
        Self::Forced,
        Self::Withdrawn,
        Self::Policy,
        Self::Deleted,
        Self::PassedOver,
        Self::Moved,
        Self::SplitBrain,
        Self::StaleAttempt,
        Self::NearMiss,
        Self::Failing,
    ];

    /// Whether this tells of something that was seen; who leads did not change.
    #[must_use]
    pub const fn is_finding(self) -> bool {
        match self {
            Self::SplitBrain | Self::StaleAttempt | Self::NearMiss | Self::Failing => true,
            Self::Elected
            | Self::Resigned
            | Self::Transferred
            | Self::Expired
            | Self::SteppedDown
            | Self::Forced
            | Self::Withdrawn
            | Self::Policy
            | Self::Deleted
            | Self::PassedOver
            | Self::Moved => false,
        }
    }

    /// The word for wires and people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Elected => "elected",
            Self::Resigned => "resigned",
            Self::Transferred => "transferred",
            Self::Expired => "expired",
            Self::SteppedDown => "stepped_down",
            Self::Forced => "forced",
            Self::Withdrawn => "withdrawn",
            Self::Policy => "policy",
            Self::Deleted => "deleted",
            Self::PassedOver => "passed_over",
            Self::Moved => "moved",
            Self::SplitBrain => "split_brain",
            Self::StaleAttempt => "stale_attempt",
            Self::NearMiss => "near_miss",
            Self::Failing => "failing",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What watchers are told: who leads now, and why that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub group: Group,
    /// The entry that did it.
    pub revision: Revision,
    /// Which of that entry's events.
    pub ordinal: u32,
    /// The group's term: the new leader's, or the last one granted if nobody leads.
    pub term: Term,
    /// Who leads now; none is an answer too.
    pub leader: Option<Node>,
    /// What the leader tells about itself.
    pub metadata: Metadata,
    pub cause: Cause,
}

/// One line of a group's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When, in the order of the store.
    pub revision: Revision,
    /// When, on the proposer's wall clock: a note for people.
    pub wall_ms: u64,
    /// The group's term after the change.
    pub term: Term,
    /// Who leads after the change.
    pub leader: Option<Node>,
    pub cause: Cause,
    /// What an administrator said, or what was found.
    pub reason: Option<Box<Reason>>,
}

/// What the driver must time from the moment an entry is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start to count this session's ttl.
    SessionOpened { session: SessionNo, ttl_ms: u64 },
    /// Count another ttl from now on; the larger holds for one old ttl (semantics 7).
    TtlChanged {
        session: SessionNo,
        /// The new ttl.
        ttl_ms: u64,
    },
    /// Forget this session.
    SessionEnded { session: SessionNo },
    /// Propose [`crate::Command::Elapsed`] with these after `for_ms`.
    Wait {
        group: Group,
        kind: WaitKind,
        /// The revision at which it began.
        since: Revision,
        for_ms: u64,
    },
    /// Stop to time this wait: what it was for is gone. Without it, the wait would be told as usual and find nothing.
    WaitDropped { group: Group, kind: WaitKind, since: Revision },
    /// Elections are timed by this; nothing is to be proposed.
    Office { group: Group, change: OfficeChange },
}

/// How an office changed, for the measurement of elections ([`crate::elections`]).
///
/// An office is *led* while a session holds it that has accepted, and *wanted* while a session holds it or stands in
/// its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfficeChange {
    /// The session that led leads no more.
    Vacated {
        session: SessionNo,
        cause: Cause,
        /// Whether the office is still wanted.
        is_wanted: bool,
    },
    /// A session was promoted and holds the office no more, without having accepted it.
    NotAccepted,
    /// An office that is not led is wanted now.
    Wanted,
    /// An office that is not led is not wanted any more.
    Unwanted,
    /// A session leads.
    Filled {
        /// Whether the office was wanted before this entry.
        was_wanted: bool,
    },
    /// The group is gone.
    Gone,
}
