//! A group's record: its term, its office, its line, its last changes.

use super::accounts::{Dues, Payer};
use super::fences::Fences;
use super::weight;
use crate::codec::{CodecError, Input, Wire, wire_enum, wire_struct};
use crate::door::Door;
use crate::limits::HISTORY_PER_GROUP;
use crate::name::{Home, Metadata, Reason, SessionNo};
use crate::outcome::{Cause, Change};
use crate::policy::{Policy, Priority};
use crate::term::{Revision, Term};

/// Everything remembered of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupState {
    /// Who is charged for the group itself.
    pub(super) creator: Payer,
    /// The last term granted. A tenure in office has exactly this one.
    pub(super) term: Term,
    /// The group's own policy; none means the store's default.
    pub(super) policy: Option<Box<Policy>>,
    /// Who is charged for that policy; nobody without one.
    pub(super) policy_payer: Payer,
    pub(super) office: Office,
    /// Who waits, the next one first: by priority, then by arrival.
    pub(super) line: Vec<Standby>,
    /// What the line weighs. It may be long, so it is not added up again with every change.
    pub(super) line_bytes: u64,
    /// What changes in the line have changed in accounts; empty whenever the table has looked, never written to bytes.
    pub(super) line_dues: Dues,
    /// Who comes before the whole line at the next vacancy, while it stands.
    pub(super) heir: Option<SessionNo>,
    /// The group goes when its last tenure has ended.
    pub(super) doomed: bool,
    /// Whether it lives here; none means that it does.
    pub(super) door: Option<Box<Door>>,
    /// The store from which it arrived last, as the one who moved it called that store; none if it began here.
    pub(super) came_from: Option<Box<Home>>,
    /// What its resources have admitted; none if no resource ever asked.
    pub(super) fences: Option<Box<Fences>>,
    pub(super) history: Vec<Change>,
    /// What the index of the state says of this group; never written to bytes.
    pub(super) marks: Marks,
    /// What the group weighed when its table last looked; never written to bytes.
    pub(super) weight: u64,
}

/// What the index counts of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) waiting: bool,
    pub(super) stranded: bool,
    pub(super) led: bool,
    pub(super) contended: bool,
}

/// Who holds the office, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Office {
    /// Nobody; the next candidate wins it.
    Vacant,
    /// Nobody until the lock delay that began at `since` is over.
    Delayed {
        since: Revision,
    },
    Held {
        tenure: Tenure,
    },
    /// A leader that was told to stop at `since`. The term stays taken, nobody is granted.
    Ending {
        tenure: Tenure,
        since: Revision,
        cause: Cause,
        reason: Option<Box<Reason>>,
    },
}

impl Office {
    /// The tenure in office, ending or not.
    pub(super) const fn tenure(&self) -> Option<&Tenure> {
        match self {
            Self::Held { tenure } | Self::Ending { tenure, .. } => Some(tenure),
            Self::Vacant | Self::Delayed { .. } => None,
        }
    }

    /// The same, to be changed.
    pub(super) const fn tenure_mut(&mut self) -> Option<&mut Tenure> {
        match self {
            Self::Held { tenure } | Self::Ending { tenure, .. } => Some(tenure),
            Self::Vacant | Self::Delayed { .. } => None,
        }
    }
}

/// A session's holding of the group's term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tenure {
    pub(super) session: SessionNo,
    /// The session's owner, who is charged; never written to bytes.
    pub(super) payer: Payer,
    pub(super) priority: Priority,
    /// What the candidate claimed, before the policy had its say.
    pub(super) claimed: Priority,
    /// When its candidacy began: a request made before is about another one.
    pub(super) arrived: Revision,
    pub(super) metadata: Metadata,
    /// The entry that began it; also names the wait for its acceptance.
    pub(super) since: Revision,
    /// Whether the holder knows, and so may act.
    pub(super) accepted: bool,
    pub(super) preemption_window: PreemptionWindow,
    pub(super) offer: Option<Offer>,
}

/// Whether a better candidate may be offered this tenure's office.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PreemptionWindow {
    /// Never: the policy prefers nobody.
    Never,
    /// Not before the minimum tenure, counted from `since`, is served.
    Waiting { since: Revision },
    /// At any time.
    Open,
}

/// A hand-over under preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) to: SessionNo,
    pub(super) warm: bool,
}

/// One who waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standby {
    pub(super) session: SessionNo,
    /// The session's owner, who is charged; never written to bytes.
    pub(super) payer: Payer,
    pub(super) priority: Priority,
    /// What the candidate claimed, before the policy had its say.
    pub(super) claimed: Priority,
    pub(super) arrived: Revision,
    pub(super) metadata: Metadata,
}

impl GroupState {
    /// A group in which nothing has happened, its terms starting above `floor`.
    pub(super) fn new(floor: Term, creator: Payer) -> Self {
        Self {
            creator,
            term: floor,
            policy: None,
            policy_payer: None,
            office: Office::Vacant,
            line: Vec::new(),
            line_bytes: 0,
            line_dues: Dues::default(),
            heir: None,
            doomed: false,
            door: None,
            came_from: None,
            fences: None,
            history: Vec::new(),
            marks: Marks::default(),
            weight: 0,
        }
    }

    /// Puts a standby into its place: higher priority first, then first come.
    pub(super) fn enqueue(&mut self, standby: Standby) {
        let before = |other: &Standby| {
            (other.priority, std::cmp::Reverse(other.arrived))
                > (standby.priority, std::cmp::Reverse(standby.arrived))
        };
        let place = self.line.partition_point(before);
        let bytes = weight::standby(&standby);
        self.line_bytes += bytes;
        self.line_dues.charge(&standby.payer, bytes);
        self.line.insert(place, standby);
    }

    /// Puts a session that stands already into the place its claim deserves. It keeps whatever it
    /// was promised.
    pub(super) fn requeue(&mut self, place: usize, standby: Standby) {
        let before = self.line.remove(place);
        self.has_left(&before);
        self.enqueue(standby);
    }

    /// Takes a session out of the line, and with it whatever it was promised.
    pub(super) fn dequeue(&mut self, session: SessionNo) -> Option<Standby> {
        let place = self.place_of(session)?;
        let standby = self.line.remove(place);
        self.has_left(&standby);
        if self.line.is_empty() {
            self.line = Vec::new();
        }
        if self.heir == Some(session) {
            self.heir = None;
        }
        if let Some(tenure) = self.office.tenure_mut()
            && tenure.offer.is_some_and(|offer| offer.to == session)
        {
            tenure.offer = None;
        }
        Some(standby)
    }

    /// Takes everybody out of the line who may not stay, in one pass however long it is, and with
    /// them whatever they were promised.
    pub(super) fn dismiss(&mut self, stays: impl Fn(SessionNo) -> bool) -> Vec<SessionNo> {
        let line = std::mem::take(&mut self.line).into_iter();
        let (stay, leave): (Vec<_>, Vec<_>) = line.partition(|standby| stays(standby.session));
        self.line = stay;
        for standby in &leave {
            self.has_left(standby);
        }
        self.heir = self.heir.filter(|heir| stays(*heir));
        if let Some(tenure) = self.office.tenure_mut() {
            tenure.offer = tenure.offer.filter(|offer| stays(offer.to));
        }
        leave.into_iter().map(|standby| standby.session).collect()
    }

    /// Whether anybody is charged for a part of it, the line aside.
    pub(super) fn has_payers(&self) -> bool {
        let is_led_for = |tenure: &Tenure| tenure.payer.is_some();
        self.creator.is_some()
            || self.policy_payer.is_some()
            || self.fences.is_some()
            || self.office.tenure().is_some_and(is_led_for)
    }

    /// A standby that is not in the line any more weighs nothing.
    fn has_left(&mut self, standby: &Standby) {
        let bytes = weight::standby(standby);
        self.line_bytes -= bytes;
        self.line_dues.release(&standby.payer, bytes);
    }

    /// Who holds the office, if it has offered it to somebody.
    pub(super) fn offered_by(&self) -> Option<SessionNo> {
        self.office.tenure().filter(|tenure| tenure.offer.is_some()).map(|tenure| tenure.session)
    }

    /// The place of a session in the line.
    pub(super) fn place_of(&self, session: SessionNo) -> Option<usize> {
        self.line.iter().position(|standby| standby.session == session)
    }

    /// Whether an office may be granted here.
    pub(super) fn is_open(&self) -> bool {
        self.door.as_ref().is_none_or(|door| door.is_open())
    }

    /// Remembers a change, forgetting the oldest beyond the bound.
    pub(super) fn remember(&mut self, change: Change) {
        if self.history.len() >= HISTORY_PER_GROUP {
            self.history.remove(0);
        } else {
            // Most groups change once or twice: do not reserve for more.
            self.history.reserve_exact(1);
        }
        self.history.push(change);
    }
}

wire_struct!(Offer { to, warm });

impl Wire for Standby {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { session, payer: _, priority, claimed, arrived, metadata } = self;
        session.put(out);
        priority.put(out);
        claimed.put(out);
        arrived.put(out);
        metadata.put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            session: Wire::take(input)?,
            payer: None,
            priority: Wire::take(input)?,
            claimed: Wire::take(input)?,
            arrived: Wire::take(input)?,
            metadata: Wire::take(input)?,
        })
    }
}

/// A tenure opens like a standby.
impl Wire for Tenure {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { session, payer: _, priority, claimed, arrived, metadata, .. } = self;
        session.put(out);
        priority.put(out);
        claimed.put(out);
        arrived.put(out);
        metadata.put(out);
        let Self { since, accepted, preemption_window, offer, .. } = self;
        since.put(out);
        accepted.put(out);
        preemption_window.put(out);
        offer.put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let Standby { session, payer, priority, claimed, arrived, metadata } = Wire::take(input)?;
        Ok(Self {
            session,
            payer,
            priority,
            claimed,
            arrived,
            metadata,
            since: Wire::take(input)?,
            accepted: Wire::take(input)?,
            preemption_window: Wire::take(input)?,
            offer: Wire::take(input)?,
        })
    }
}

wire_enum!(PreemptionWindow "a season" { 1 = Never, 2 = Waiting { since }, 3 = Open });
wire_enum!(Office "an office" {
    1 = Vacant,
    2 = Delayed { since },
    3 = Held { tenure },
    4 = Ending { tenure, since, cause, reason },
});
