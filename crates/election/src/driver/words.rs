//! What a driver is told, and what it says.

use std::time::Duration;

use crate::participant::{Attempt, Reply, Request, Transition, Trouble};
use crate::store::{StoreError, StoreResult};
use crate::{Digest, Group, Metadata, Moment, Node, Priority, Refusal, SessionId, Term};

/// Numbers one wish to lead a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(pub u64);

/// What a driver is told.
#[derive(Clone, Debug)]
pub enum Input {
    /// Somebody in this process wants to lead a group. The claims of one group are served in the
    /// order in which they came, one term each.
    Claim {
        claim: ClaimId,
        group: Group,
        /// Its claim in the store's line.
        priority: Priority,
        /// What it tells the world as leader.
        metadata: Metadata,
    },
    /// A claim is not wanted any more. If it has won meanwhile, [`Input::Idle`] says the rest.
    Unclaim { claim: ClaimId },
    /// Nobody wants this term any more, though something of its work may still run: it is not
    /// renewed, and given up when [`Input::Idle`] says that nothing runs.
    GiveUp { group: Group, term: Term },
    /// Hand this term to a named standby: offer, wait until it is warm, drain, transfer
    /// (semantics 15).
    HandOver {
        group: Group,
        term: Term,
        to: Node,
        /// How long it may take to get warm.
        within: Duration,
    },
    /// The application is warm for an office of [`Output::Offered`].
    Warm {
        group: Group,
        /// The term of the leader that offers.
        term: Term,
    },
    /// Nothing of the work of this term is alive: no handle, no permit, no guarded task.
    Idle { group: Group, term: Term },
    /// A resource refused this term because it has admitted a higher one.
    FenceRefused { group: Group, term: Term },
    /// The work of this term failed by itself: this process waits before it stands again.
    Failed { group: Group, term: Term },
    /// The application says what its state looks like under this term.
    Digest { group: Group, term: Term, digest: Digest },
    /// Somebody wants its lease as long as it can be: a heartbeat is due at once.
    Renew,
    /// This process can do its job, or cannot.
    Health {
        /// Whether it can.
        is_healthy: bool,
    },
    /// The application's runtime answered a probe.
    Alive {
        /// When it did so.
        at: Moment,
    },
    /// A watch saw this; it is a hint.
    Sighted {
        group: Group,
        /// The group's term.
        term: Term,
        /// Who leads, by name.
        leader: Option<Node>,
    },
    /// A fresh secret, as asked for by [`Output::NeedSession`].
    Session(SessionId),
    /// The answer to an attempt.
    Answered {
        attempt: Attempt,
        /// What the store said.
        answer: StoreResult<Reply>,
    },
    /// The application leaves: every claim fails, all work stops, the session is closed.
    Leave,
    /// Time has passed.
    Tick,
}

/// What must be done, in this order.
#[derive(Clone, Debug)]
pub enum Output {
    /// Send this; validity counts from the `now` of this very call.
    Send {
        /// The number of its answer.
        attempt: Attempt,
        /// What to ask.
        request: Request,
    },
    /// This claim leads. Whoever takes it must say [`Input::Idle`] when nothing of it is alive.
    Elected {
        claim: ClaimId,
        group: Group,
        /// The fencing token.
        term: Term,
    },
    /// This claim will never win.
    Failed { claim: ClaimId, why: PermanentFailure },
    /// A group changed its phase. Never to be dropped or reordered.
    Moved(Transition),
    /// Tell the work to stop; whatever runs of it at `by` runs without a lease.
    Stop {
        group: Group,
        term: Term,
        /// When it must have ended.
        by: Moment,
    },
    /// The work did not stop in time.
    LastResort { group: Group, term: Term },
    /// The leader of a group offers its office to a claim of this process. Whoever is ready for it says
    /// [`Input::Warm`].
    Offered {
        group: Group,
        /// The term of the leader that offers.
        term: Term,
        by: Node,
    },
    /// That offer is no more: withdrawn, lapsed, or carried out.
    OfferOver {
        group: Group,
        /// The term of the leader that offered.
        term: Term,
    },
    /// A hand-over did not come about. Before the work was told to stop, the term goes on; after, it is
    /// resigned to whoever is next.
    HandOverRefused { group: Group, term: Term, why: HandOverFault },
    /// This term is over and the store knows.
    Over { group: Group, term: Term },
    /// Watch this group and tell what is seen.
    Watch(Group),
    /// Watch it no more.
    Unwatch(Group),
    /// Ask the application's runtime for a sign of life.
    Probe,
    /// Draw 128 random bits and tell them as [`Input::Session`].
    NeedSession,
    /// Tell a person. The driver goes on by itself.
    Trouble {
        /// Where, if it is about one group.
        group: Option<Group>,
        trouble: Trouble,
    },
    /// Everything is settled after [`Input::Leave`].
    Done,
    /// Call again at this moment, or earlier.
    WakeAt(Moment),
}

/// Why a hand-over did not come about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandOverFault {
    /// The store said no.
    Refused(StoreError),
    /// The standby did not say in time that it is warm.
    NotWarm,
}

/// Why a claim will never win.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermanentFailure {
    /// The store will say the same every time.
    Refused(Refusal),
    /// This process stands in as many groups as one session may.
    TooManyGroups,
    /// The driver has left.
    Left,
}
