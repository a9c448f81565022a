//! What a store answers: views of sessions, offices, groups and of itself.

use std::time::Duration;

use crate::access::Principal;
use crate::door::Door;
use crate::elections::ElectionTimes;
pub use crate::fence::{FenceView, FencesPage};
use crate::name::{Group, Home, Metadata, Node};
use crate::outcome::Cause;
use crate::policy::{Policy, Priority};
use crate::term::{Cursor, Revision, Term};

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
    pub group: Group,
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
    pub group: Group,
    /// The term of the leader that offers.
    pub term: Term,
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

/// An acknowledged heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatView {
    /// The ttl that counts from the send of this heartbeat.
    pub ttl_ms: u64,
    /// A holder that has not processed this epoch extends nothing until it has read its list.
    pub epoch: u64,
    /// The revision at which the session was known to exist.
    pub revision: Revision,
}

/// Who leads a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderView {
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
    /// The store from which it arrived last, as the one who moved it called that store; none if it began here.
    pub came_from: Option<Home>,
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
    pub node: Node,
    /// The priority that counts.
    pub priority: Priority,
    /// Whether it has not been heard for half its ttl.
    pub silent: bool,
}

/// One page of groups in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupsPage {
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
    /// What the state weighs in bytes, and the most that it may; zero if the store does not count.
    pub state_bytes: u64,
    /// See [`Census::state_bytes`].
    pub state_bytes_max: u64,
    pub revision: Revision,
}

/// How groups are led, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfficesView {
    /// Those that were asked about, in that order; none for one that is not known.
    pub offices: Vec<Option<OfficeNote>>,
    /// How many groups have a leader that has accepted, of all.
    pub led: u64,
    /// How many have candidates (a leader or standbys), of all. Every group that is led is one of them.
    pub wanted: u64,
    /// How long elections took, as this process counted it; none if the store does not count.
    pub times: Option<ElectionTimes>,
}

/// How one group is led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfficeNote {
    /// Whether a leader leads that has accepted.
    pub is_led: bool,
    /// Whether it has candidates: a leader or standbys.
    pub is_wanted: bool,
    /// When its leader changed last, on the wall clock of the proposer: a note for people.
    pub changed_wall_ms: Option<u64>,
}

/// Who takes most of the state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharesView {
    /// The largest shares in bytes, at most [`SHARES_SHOWN_MAX`](crate::limits::SHARES_SHOWN_MAX), the largest first.
    pub largest: Vec<(Principal, u64)>,
    /// How many principals take anything.
    pub principals: u64,
    /// The most that one may take; none is no bound.
    pub share_bytes_max: Option<u64>,
    /// What the whole state weighs, what is charged to nobody included.
    pub state_bytes: u64,
}
