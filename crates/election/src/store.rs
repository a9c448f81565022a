//! The Store port: what an election needs of whatever keeps its state.
//!
//! The port speaks of sessions, campaigns and reads rather than of keys and values, so that each
//! engine can use what it is best at. Every store passes the same contract suite.
//!
//! "No" and "perhaps" are never mixed: [`StoreError::Refused`] and [`StoreError::Unavailable`] mean
//! that nothing happened, [`StoreError::Uncertain`] that it may have.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::belief::Beliefs;
use crate::command::Finding;
use crate::door::{Door, Step};
pub use crate::fence::{FenceView, FencesPage};
use crate::name::{Group, Home, Metadata, Node, Reason, RequestId, Resource, SessionId};
use crate::outcome::{Cause, Change, Event, Refusal};
use crate::policy::{Policy, Priority};
use crate::term::{Cursor, Revision, Term};

/// Why a store gave no answer of the kind asked for, told by what the caller may do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A definite no, with its reason. Nothing happened.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Nothing happened. Try again when you like, or after the time named.
    #[error("the store is unavailable: {why}; nothing happened")]
    Unavailable {
        /// What is wrong.
        why: String,
        /// When to try again.
        retry_after: Option<Duration>,
    },
    /// It may have happened. Look before you decide anything.
    #[error("the outcome is unknown: {why}; it may have happened, look before you decide anything")]
    Uncertain {
        /// What is wrong.
        why: String,
    },
    /// This engine cannot do this at all.
    #[error("{store} cannot {what}")]
    Unsupported {
        /// Which store.
        store: &'static str,
        /// What was asked.
        what: &'static str,
    },
    /// What is stored could not have been written by us. Stop, call a person.
    #[error("the store holds what Regent cannot have written: {0}; stop and look")]
    Corrupt(String),
}

/// Short for what every verb of the port returns.
pub type StoreResult<T> = Result<T, StoreError>;

/// What a store claims; the contract suite fails one that claims too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Asynchronous replication or worse: never advertised as exclusive.
    BestEffort,
    /// Exclusive under the clock bound; terms rise only while the object lives.
    LeaseOnly,
    /// Linearizable, durable before acknowledged, terms rise for ever.
    Strict,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::BestEffort => "best-effort",
            Self::LeaseOnly => "lease-only",
            Self::Strict => "strict",
        })
    }
}

/// What a store says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its scheme, like `local`, `memory` or `etcd`.
    pub name: &'static str,
    /// Where it keeps its data, for people.
    pub place: String,
    /// What it claims.
    pub level: Level,
    /// Why not more, or what a restart costs; one sentence for people.
    pub caveat: Option<String>,
}

/// A wish to open a session.
#[derive(Clone, Debug)]
pub struct Open {
    /// The participant's label.
    pub node: Node,
    /// How long the session lives unheard.
    pub ttl_ms: u64,
    /// The secret chosen by the caller, so that a lost reply is safe.
    pub session: SessionId,
}

/// An open session, as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// The participant's label.
    pub node: Node,
    /// How long it lives unheard.
    pub ttl_ms: u64,
    /// Rises with every change to its tenures that it did not ask for.
    pub epoch: u64,
    /// Everything it holds or was promoted to. Those in which it merely stands are not listed.
    pub tenures: Vec<TenureView>,
    /// The groups in whose line it stands.
    pub standing: Vec<Group>,
    /// The offices that their leaders have offered to it.
    pub offers: Vec<OfferView>,
    /// The revision at which this was true.
    pub revision: Revision,
}

/// One tenure of a session, as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenureView {
    /// Where.
    pub group: Group,
    /// Which.
    pub term: Term,
    /// How it stands.
    pub state: OfficeState,
    /// The standby that was offered this office, if any.
    pub offered_to: Option<Node>,
    /// Whether that standby has said that it is warm.
    pub is_warm: bool,
    /// The store that the group moves to, if that is why the tenure ends.
    pub moves_to: Option<Home>,
}

/// An office that was offered to a standby, as that standby sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferView {
    /// Where.
    pub group: Group,
    /// The term of the leader that offers.
    pub term: Term,
    /// That leader.
    pub by: Node,
    /// Whether the standby has said that it is warm.
    pub is_warm: bool,
}

/// How an office stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OfficeState {
    /// Nobody leads.
    Vacant,
    /// Nobody leads, and nobody will until the lock delay is over.
    Delayed,
    /// A standby was promoted and has not accepted yet; it may not act.
    Elected,
    /// The leader leads.
    Leading,
    /// The leader has been told to stop.
    Ending,
}

impl OfficeState {
    /// The word for wires and people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Vacant => "vacant",
            Self::Delayed => "delayed",
            Self::Elected => "elected",
            Self::Leading => "leading",
            Self::Ending => "ending",
        }
    }
}

/// A sign of life for all tenures of a session.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// Whose.
    pub session: SessionId,
    /// A rising number; a retry takes a new one. None is for callers that send no duplicates.
    pub sequence: Option<u64>,
    /// Terms the holder has declared lost: they are resigned (semantics 4).
    pub disowned: Vec<(Group, Term)>,
    /// What the node holds itself for: not for the store, but for whoever hears it on the way there.
    pub beliefs: Option<Box<Beliefs>>,
}

/// An acknowledged heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The ttl that counts from the send of this heartbeat.
    pub ttl_ms: u64,
    /// A holder that has not processed this epoch extends nothing until it has read its list.
    pub epoch: u64,
    /// The revision at which the session was known to exist.
    pub revision: Revision,
}

/// A campaign.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Where.
    pub group: Group,
    /// Who.
    pub node: Node,
    /// The caller's session. With one of its own the loser stands until it withdraws; without, it
    /// leaves nothing behind.
    pub session: CampaignSession,
    /// The ttl; with an open session it must equal that session's.
    pub ttl_ms: Option<u64>,
    /// How long to wait in line for the answer.
    pub wait: Option<Duration>,
    /// Its claim in the line.
    pub priority: Priority,
    /// What it tells the world as leader.
    pub metadata: Metadata,
    /// Makes a repeat take effect once.
    pub request: Option<RequestId>,
}

/// Whose session a campaign uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CampaignSession {
    /// The caller's own, open or yet to be opened.
    Own(SessionId),
    /// One made for this campaign alone, under this fresh secret.
    Passing(SessionId),
}

/// What became of a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Campaigned {
    /// Whether the caller leads, and under which term.
    pub elected: Option<Term>,
    /// Whether the caller stands in line after this answer.
    pub standing: bool,
    /// The office as it is.
    pub office: LeaderView,
    /// The caller's session, if one is open after this answer.
    pub session: Option<SessionId>,
    /// That session's ttl.
    pub ttl_ms: u64,
    /// When to try again, if neither elected nor standing.
    pub retry_after: Option<Duration>,
}

/// Who leads a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderView {
    /// Where.
    pub group: Group,
    /// Who leads; none is an answer too.
    pub leader: Option<Node>,
    /// The leader's term, or the last one granted.
    pub term: Term,
    /// How the office stands.
    pub state: OfficeState,
    /// What the leader tells about itself.
    pub metadata: Metadata,
    /// How long the leader's session lives if it is not heard again: a hint, never a permission.
    pub valid_for: Option<Duration>,
    /// The store that the group has moved to: ask there.
    pub moved_to: Option<Home>,
    /// The revision at which this was true.
    pub revision: Revision,
    /// Where a watch that misses nothing after this read begins.
    pub cursor: Cursor,
}

/// How a read is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// No older than any answer given before the read began.
    #[default]
    Linearizable,
    /// Whatever this server knows.
    Stale,
}

/// What to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One group.
    Group(Group),
    /// These groups.
    Groups(Vec<Group>),
    /// Every group whose name opens with this; the empty text means all.
    Prefix(String),
}

impl Scope {
    /// Whether events of `group` are meant.
    #[must_use]
    pub fn covers(&self, group: &Group) -> bool {
        match self {
            Self::Group(one) => one == group,
            Self::Groups(some) => some.contains(group),
            Self::Prefix(prefix) => group.as_str().starts_with(prefix.as_str()),
        }
    }
}

/// What a watch delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchItem {
    /// The leader of a group changed.
    Changed(Event),
    /// Changes after the cursor asked for are no longer known. What follows starts at `at`; the
    /// watcher must read the present state of what it watches.
    Gap {
        /// The oldest place from which a watch could still be resumed.
        oldest: Cursor,
        /// Where this watch goes on.
        at: Cursor,
    },
}

/// A running watch. Dropping it ends it.
#[async_trait]
pub trait Watch: Send + fmt::Debug {
    /// The next item, in order, none missing, none twice. `None` means that the store is shutting
    /// down: resume elsewhere from [`Watch::cursor`]. Dropping the future before it is ready loses
    /// nothing.
    async fn next(&mut self) -> Option<WatchItem>;

    /// The place up to which everything has been delivered.
    fn cursor(&self) -> Cursor;
}

/// What became of an administrator's step-down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteppedDown {
    /// The office is vacant or has its successor already.
    Over,
    /// The holder has been told and has at most this long.
    Ending(Duration),
    /// It was forced: the old holder may go on acting for this long; only fencing protects.
    Forced(Duration),
}

/// An administrator's step-down.
#[derive(Clone, Debug)]
pub struct StepDown {
    /// Where.
    pub group: Group,
    /// Why, for the history.
    pub reason: Reason,
    /// Who shall follow, if anybody in particular.
    pub to: Option<Node>,
    /// Whether to skip the wait for the holder.
    pub immediate: bool,
    /// Makes a repeat take effect once.
    pub request: Option<RequestId>,
}

/// A group as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// Who leads it.
    pub office: LeaderView,
    /// The policy that holds.
    pub policy: Policy,
    /// Whether that policy is the group's own.
    pub own_policy: bool,
    /// Whether it lives in this store.
    pub door: Door,
    /// Why the tenure is ending, if it is.
    pub ending: Option<Cause>,
    /// The line, next one first; at most a page of it.
    pub standbys: Vec<StandbyView>,
    /// How many stand in all.
    pub standbys_count: usize,
}

/// One standby as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandbyView {
    /// Who.
    pub node: Node,
    /// The priority that counts.
    pub priority: Priority,
    /// Whether it has not been heard for half its ttl.
    pub silent: bool,
}

/// One page of groups in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupsPage {
    /// The groups.
    pub groups: Vec<LeaderView>,
    /// Ask for the page after this name, if there is more.
    pub next: Option<Group>,
    /// The revision at which this was true.
    pub revision: Revision,
}

/// Counts that a store can tell about itself, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Open sessions.
    pub sessions: u64,
    /// Known groups.
    pub groups: u64,
    /// Groups with a leader that has accepted.
    pub led: u64,
    /// Groups that have candidates (a leader or standbys).
    pub contended: u64,
    /// Watches under way.
    pub watchers: u64,
    /// The revision.
    pub revision: Revision,
}

/// Whatever keeps the state of elections linearizably.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// What this store is and claims.
    fn describe(&self) -> Description;

    /// Whether the store can serve now; the error says why not.
    async fn ready(&self) -> StoreResult<()>;

    /// Opens a session. Repeated with the same secret, node and ttl it answers the same session.
    async fn open(&self, open: Open) -> StoreResult<SessionView>;

    /// Keeps a session and all its tenures alive. An expiring session is never revived.
    async fn heartbeat(&self, heartbeat: Heartbeat) -> StoreResult<Heard>;

    /// What a session holds; processing it is what [`Heard::epoch`] asks for.
    async fn session(&self, session: SessionId) -> StoreResult<SessionView>;

    /// Ends a session: its tenures end as resigned, its standbys are withdrawn. Ending one that is
    /// not open is done already.
    async fn close(&self, session: SessionId) -> StoreResult<()>;

    /// Campaigns; with `wait` it answers the moment the caller is elected, or when the wait is over.
    ///
    /// A future dropped before its answer leaves no standby behind unless the session is the
    /// caller's own.
    async fn campaign(&self, campaign: Campaign) -> StoreResult<Campaigned>;

    /// Leaves the line. Who leads is told to stop and confirms by resigning: a withdrawal names no
    /// term, so a late duplicate must not end a later office. Done already if the session is open
    /// and neither stands nor leads.
    async fn withdraw(
        &self,
        group: &Group,
        session: SessionId,
        request: Option<RequestId>,
    ) -> StoreResult<()>;

    /// A promoted session accepts its office and may act once this is answered.
    async fn accept(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        request: Option<RequestId>,
    ) -> StoreResult<Heard>;

    /// A heartbeat that also proves the tenure of one group; `extend_by_ms` other than the
    /// session's ttl changes that ttl.
    async fn renew(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        extend_by_ms: Option<u64>,
    ) -> StoreResult<Heard>;

    /// Gives the office up; the caller has stopped before it asks.
    async fn resign(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        request: Option<RequestId>,
    ) -> StoreResult<()>;

    /// First step of a hand-over: asks a standby to get warm while the caller goes on leading.
    async fn offer(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        to: &Node,
        request: Option<RequestId>,
    ) -> StoreResult<()>;

    /// The standby of an offer says that it is warm.
    async fn warm(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        request: Option<RequestId>,
    ) -> StoreResult<()>;

    /// Hands the office to a named standby; the caller has stopped before it asks.
    async fn transfer(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        to: &Node,
        request: Option<RequestId>,
    ) -> StoreResult<()>;

    /// Who leads. A group that nobody ever named has no leader and term 0.
    async fn leader(&self, group: &Group, consistency: Consistency) -> StoreResult<LeaderView>;

    /// Watches from just after `cursor`, or from now. A cursor that is too old, or of another life
    /// of the store, gets a [`WatchItem::Gap`] first; one in the future waits.
    async fn watch(&self, scope: Scope, cursor: Option<Cursor>) -> StoreResult<Box<dyn Watch>>;

    /// An administrator ends a tenure.
    async fn step_down(&self, step_down: StepDown) -> StoreResult<SteppedDown>;

    /// Creates a group or changes its policy; `None` returns it to the default policy.
    async fn put_policy(
        &self,
        group: &Group,
        policy: Option<Policy>,
        request: Option<RequestId>,
    ) -> StoreResult<GroupView>;

    /// One step of a group's move between two stores. Repeated, it changes nothing.
    async fn move_group(
        &self,
        group: &Group,
        step: Step,
        request: Option<RequestId>,
    ) -> StoreResult<GroupView>;

    /// Deletes a group; its terms never come back. Answers how long the last tenure may still end.
    async fn delete(&self, group: &Group, request: Option<RequestId>) -> StoreResult<SteppedDown>;

    /// A group as an operator sees it.
    async fn group(&self, group: &Group) -> StoreResult<GroupView>;

    /// Groups whose names open with `prefix`, after `after`, at most `count` of them.
    async fn groups(
        &self,
        prefix: &str,
        after: Option<&Group>,
        count: usize,
    ) -> StoreResult<GroupsPage>;

    /// The last changes of a group, oldest first.
    async fn history(&self, group: &Group) -> StoreResult<Vec<Change>>;

    /// Admits a term at a resource and raises its fence, in one step: after it no lower term is admitted there.
    /// Repeated, it changes nothing.
    async fn admit(&self, group: &Group, resource: &Resource, term: Term) -> StoreResult<()>;

    /// Forgets a fence. What it refused is refused for ever, there and at every other resource of the group.
    async fn forget_fence(&self, group: &Group, resource: &Resource) -> StoreResult<()>;

    /// Notes what was found out about a group: for its watchers and its history. The same finding is noted once a
    /// term; who leads does not change.
    async fn report(&self, group: &Group, finding: Finding, reason: Reason) -> StoreResult<()>;

    /// Asks the holder of a term to hand over to a standby, for a reason that watchers and the history are told. It
    /// leads on until the standby is warm and its own work has stopped. Nothing happens if its office is on offer already.
    async fn relieve(
        &self,
        group: &Group,
        term: Term,
        to: &Node,
        reason: Reason,
    ) -> StoreResult<()>;

    /// The fences of a group whose names open with `prefix`, after `after`, at most `count` of them.
    async fn fences(
        &self,
        group: &Group,
        prefix: &str,
        after: Option<&Resource>,
        count: usize,
    ) -> StoreResult<FencesPage>;

    /// Counts for metrics.
    async fn census(&self) -> StoreResult<Census>;

    /// Ends all watches with `None` and all waiting campaigns as lost; later calls are refused as
    /// unavailable.
    async fn shut_down(&self);
}
