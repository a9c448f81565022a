//! What a participant is told, and what it says.

use std::fmt;
use std::time::Duration;

use super::request::{Reply, Request};
use crate::limits::GROUPS_PER_SESSION_MAX;
use crate::moment::Moment;
use crate::name::{Digest, Group, Metadata, Node, SessionId};
use crate::policy::Priority;
use crate::store::{StoreError, StoreResult};
use crate::term::Term;

/// Numbers one sending of a request; its answer comes back under the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u64);

/// Where a candidate stands in one group. The header of this module draws the ways between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// It wants to lead, or is on its way out, and no work runs.
    Standby,
    /// It leads; the work runs.
    Leading,
    /// It leads, but renewals are failing. How long the lease still runs is known.
    Jeopardy,
    /// It leads for the last moments: the work has been told to stop.
    Stopping,
    /// The work has ended and the term is given up; the store is being told.
    Stopped,
    /// The term is gone, whatever anybody says later.
    Lost,
}

impl Phase {
    /// The word for logs and people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Standby => "standby",
            Self::Leading => "leading",
            Self::Jeopardy => "jeopardy",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Why a candidate's phase changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It won the office, or its acceptance was acknowledged.
    Elected,
    /// A renewal that was due was not acknowledged within its time-out.
    RenewalsFail,
    /// A renewal was acknowledged after all.
    Renewed,
    /// The lease ends within the stop grace.
    LeaseNearlyOver,
    /// The lease is over.
    LeaseOver,
    /// The application asked.
    Asked,
    /// The application leaves the group.
    Withdrawn,
    /// The office is handed to a named standby.
    HandOver,
    /// The store says that the tenure is ending.
    Ending,
    /// The store says that the tenure is ending because its group moves to another store.
    Moving,
    /// The store extends the session no more: its principal lost the right to stand, or its credential was revoked.
    AccessLost,
    /// The process cannot do its job.
    Unhealthy,
    /// The work has ended.
    WorkEnded,
    /// The work did not end in time.
    StopOverrun,
    /// The store does not know the session any more.
    SessionGone,
    /// Another process uses the same session.
    SessionShared,
    /// The store's list does not show the tenure any more.
    TenureGone,
    /// Somebody leads with a higher term.
    Superseded,
    /// A resource has admitted a higher term.
    FenceRefused,
    /// The last term is settled with the store; the next campaign may begin.
    Settled,
}

impl Why {
    /// For people, as the end of a sentence.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Elected => "elected",
            Self::RenewalsFail => "renewals fail",
            Self::Renewed => "renewed",
            Self::LeaseNearlyOver => "the lease is nearly over",
            Self::LeaseOver => "the lease is over",
            Self::Asked => "asked",
            Self::Withdrawn => "withdrawn",
            Self::HandOver => "handed over",
            Self::Ending => "told to stop",
            Self::Moving => "the group moves to another store",
            Self::AccessLost => "the right to lead was withdrawn",
            Self::Unhealthy => "unhealthy",
            Self::WorkEnded => "the work has ended",
            Self::StopOverrun => "the work did not end in time",
            Self::SessionGone => "the session is gone",
            Self::SessionShared => "another process uses the same session",
            Self::TenureGone => "the tenure is gone",
            Self::Superseded => "somebody leads with a higher term",
            Self::FenceRefused => "a fence refused the term",
            Self::Settled => "settled",
        }
    }
}

/// One change of phase in one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    pub group: Group,
    /// The phase before.
    pub from: Phase,
    /// The phase after.
    pub to: Phase,
    /// The term it is about; zero between standby and stopped.
    pub term: Term,
    pub why: Why,
    /// How long the lease still runs; zero if there is none to speak of.
    pub remaining: Duration,
}

/// A proof of leadership at one moment, good for as long as it says and no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeadershipProof {
    /// The fencing token.
    pub term: Term,
    /// How long the lease still runs, if nothing is renewed.
    pub remaining: Duration,
}

/// What a participant is told.
#[derive(Clone, Debug)]
pub enum Event {
    /// The application wants to lead this group. Told again, it changes priority and metadata for
    /// the next campaign.
    Stand {
        group: Group,
        /// Its claim in the line.
        priority: Priority,
        /// What it tells the world as leader.
        metadata: Metadata,
    },
    /// The application wants out of this group: its work stops, then the office is given up.
    Withdraw { group: Group },
    /// The application wants out of every group, and its session closed.
    Leave,
    /// The application gives this term up and stays a candidate: the work stops first.
    Resign { group: Group },
    /// The application hands the office to a named standby: offer, wait until it is warm, drain,
    /// transfer.
    Transfer {
        group: Group,
        to: Node,
        /// How long the standby may take to say that it is warm. Meanwhile, and after it, the work
        /// goes on.
        within: Duration,
    },
    /// The application is warm for an office that was offered to it, as told by
    /// [`Action::Offered`].
    Warm {
        group: Group,
        /// The term of the leader that offered.
        term: Term,
    },
    /// The work of this group has ended, asked or not. Nothing of it runs any more.
    Stopped { group: Group },
    /// A resource refused this term because it has admitted a higher one.
    FenceRefused {
        group: Group,
        /// The term that was refused.
        term: Term,
    },
    /// The work of this term failed by itself: it ended, hung or could not begin. What it means for the next campaign is
    /// in [`crate::damping`]; the term is given up by other events.
    Failed {
        group: Group,
        /// The term it worked under.
        term: Term,
    },
    /// The application says what its state looks like, for whoever compares two that act.
    Digest {
        group: Group,
        /// The term it works under.
        term: Term,
        digest: Digest,
    },
    /// The application wants its lease as long as it can be: the next heartbeat is due at once.
    Renew,
    /// The process can do its job.
    Healthy,
    /// The process cannot do its job: it must not lead.
    Unhealthy,
    /// A watch saw this. It is a hint: it may make the participant stop or ask, never lead.
    Watched {
        group: Group,
        /// The group's term.
        term: Term,
        /// Who leads, by name.
        leader: Option<Node>,
    },
    /// A fresh secret, as asked for by [`Action::NeedSession`].
    Session(SessionId),
    /// The answer to an attempt. A driver that gave up waiting says [`StoreError::Uncertain`].
    Answered {
        attempt: Attempt,
        /// What the store said.
        answer: StoreResult<Reply>,
    },
    /// Time has passed.
    Tick,
}

/// What must be done, in this order.
#[derive(Clone, Debug)]
pub enum Action {
    /// Send this; the validity that may come of it counts from the `now` of this very call.
    Send {
        /// The number of its answer.
        attempt: Attempt,
        /// What to ask.
        request: Request,
    },
    /// Tell the application. Never to be dropped or reordered.
    Transition(Transition),
    /// Tell the work to stop; whatever runs of it at `by` runs without a lease. Told again if the
    /// moment has moved closer.
    StopWork {
        group: Group,
        /// The term it worked under.
        term: Term,
        /// When it must have ended.
        by: Moment,
    },
    /// The work did not stop in time: end it by force, the process with it if need be.
    LastResort {
        group: Group,
        /// The term it worked under.
        term: Term,
    },
    /// The leader of a group offers its office to this standby: get ready, and say [`Event::Warm`].
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
    /// Draw 128 random bits and tell them as [`Event::Session`].
    NeedSession,
    /// Tell a person. The participant goes on by itself.
    Trouble {
        /// Where, if it is about one group.
        group: Option<Group>,
        trouble: Trouble,
    },
    /// Call again at this moment, or earlier; always the last action.
    WakeAt(Moment),
}

/// What a person should know although the participant goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Asked to give up or hand over what it does not hold.
    #[error("this process does not lead there, so there is nothing to give up")]
    NotLeading,
    /// One group too many.
    #[error("one session stands in at most {GROUPS_PER_SESSION_MAX} groups; use another process")]
    TooManyGroups,
    /// Another process uses the same session id.
    #[error(
        "heartbeat {last} was seen before our {given} was sent: another process uses the same session; its image was cloned or its id copied"
    )]
    SessionShared {
        /// The number we sent.
        given: u64,
        /// The number the store had seen.
        last: u64,
    },
    /// A hand-over was given up because the standby did not get ready.
    #[error("{to} did not say in time that it is warm; this process leads on")]
    NotWarm {
        /// Who was to take over.
        to: Node,
    },
    /// The work failed soon after the election, so the next campaign waits.
    #[error(
        "the work failed after {} ms as leader, {failures} in a row; this process stands again in {} ms",
        .led_for.as_millis(), .pause.as_millis()
    )]
    Damped {
        failures: u32,
        /// How long it had led.
        led_for: Duration,
        /// How long it does not stand.
        pause: Duration,
    },
    /// The store said no, or something worse.
    #[error(transparent)]
    Store(#[from] StoreError),
}
