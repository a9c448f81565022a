//! What a participant remembers of one group.

use super::hand_over::{HandOver, Offered};
use super::request::Verb;
use super::words::{Attempt, Phase};
use crate::moment::Moment;
use crate::name::{Digest, Metadata, Node, RequestId};
use crate::policy::Priority;
use crate::store::{OfficeState, TenureView};
use crate::term::{Revision, Term};

/// One group's record.
#[derive(Clone, Debug)]
pub(super) struct Candidacy {
    pub(super) priority: Priority,
    pub(super) metadata: Metadata,
    /// Whether the application wants to stand. If not, the record goes once all is settled.
    pub(super) wants: bool,
    pub(super) seat: Seat,
    /// The highest term that is over here for good: nothing revives it (semantics 4).
    pub(super) over: Term,
    /// The revision at which the store last said that the seat is what it is. Lists that are older
    /// prove nothing.
    pub(super) known_at: Revision,
    /// What a list said while the outcome of an errand was not known. An answer that was made before
    /// it is old news, though it comes later.
    pub(super) listed: Option<Listed>,
    /// The application's work, from the moment it may begin until the word that it has ended.
    pub(super) work: Option<Work>,
    /// What the application says that its state looks like, and under which term.
    pub(super) digest: Option<(Term, Digest)>,
    /// The one request about this group that is under way. Its outcome is always learnt before the
    /// next one begins, so that two never race.
    pub(super) errand: Option<Errand>,
    /// A hand-over of the term it leads under that the application asked for.
    pub(super) hand_over: Option<HandOver>,
    /// The office that was offered to it while it stands by.
    pub(super) offered: Option<Offered>,
    /// Campaigns lost in a row.
    pub(super) tries: u32,
    /// When it began to lead, until a failure of the work was counted for this term.
    pub(super) led_since: Option<Moment>,
    /// No campaign before this moment, whoever leads: the work failed soon after earlier elections.
    pub(super) damped_until: Moment,
    /// Its place in the agenda.
    pub(super) due_at: Option<Moment>,
}

/// The phase of a group with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seat {
    Standby(StandbyState),
    Leading {
        term: Term,
    },
    Jeopardy {
        term: Term,
    },
    /// Validity ends at `by`, whatever is renewed.
    Stopping {
        term: Term,
        by: Moment,
        then: Then,
    },
    Stopped {
        term: Term,
        then: Then,
    },
    Lost {
        term: Term,
    },
}

/// What the store knows of a standby.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StandbyState {
    /// Nothing, as far as known. The next campaign is not before this moment.
    Out { campaign_at: Moment },
    /// It stands in line.
    Standing,
    /// It holds this term, but has no lease that is worth beginning on, or does not want it.
    Won { term: Term },
}

/// How a stopped leader gives its term up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Resign,
    Transfer(Node),
}

/// What a list said about one group.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) revision: Revision,
    pub(super) tenure: Option<TenureView>,
    pub(super) stands: bool,
    /// The attempt that asked for it; none if it came with the opening.
    pub(super) asked: Option<Attempt>,
}

/// The application's work under one term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) term: Term,
    /// When it must have ended, if it has been told.
    pub(super) stop_by: Option<Moment>,
    /// Whether the last resort has been called.
    pub(super) overran: bool,
}

/// One request about a group, through all its tries.
#[derive(Clone, Debug)]
pub(super) struct Errand {
    pub(super) what: What,
    /// The same for every try, so that it takes effect once.
    pub(super) request: RequestId,
    pub(super) tries: u32,
    /// The last few tries that were sent, the newest last.
    pub(super) attempts: Vec<Attempt>,
    pub(super) status: Status,
}

/// What an errand asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// With what was claimed when it began: a repeat must be the same request.
    Campaign {
        priority: Priority,
        metadata: Metadata,
    },
    Verb(Verb),
}

/// Where an errand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// To be sent as soon as there is room.
    Ready,
    /// Sent; not answered by `until` means not answered.
    InFlight { until: Moment },
    /// To be sent at `until`.
    Waiting { until: Moment },
}

impl Seat {
    pub(super) const fn phase(&self) -> Phase {
        match self {
            Self::Standby(_) => Phase::Standby,
            Self::Leading { .. } => Phase::Leading,
            Self::Jeopardy { .. } => Phase::Jeopardy,
            Self::Stopping { .. } => Phase::Stopping,
            Self::Stopped { .. } => Phase::Stopped,
            Self::Lost { .. } => Phase::Lost,
        }
    }

    /// The term under which a check may pass.
    pub(super) const fn held(&self) -> Option<Term> {
        match self {
            Self::Leading { term } | Self::Jeopardy { term } | Self::Stopping { term, .. } => {
                Some(*term)
            }
            Self::Standby(_) | Self::Stopped { .. } | Self::Lost { .. } => None,
        }
    }

    /// The term it leads under, not yet told to stop.
    pub(super) const fn led(&self) -> Option<Term> {
        match self {
            Self::Leading { term } | Self::Jeopardy { term } => Some(*term),
            Self::Standby(_) | Self::Stopping { .. } | Self::Stopped { .. } | Self::Lost { .. } => {
                None
            }
        }
    }

    /// The term that a list or an event may be about.
    pub(super) const fn term(&self) -> Term {
        match self {
            Self::Leading { term }
            | Self::Jeopardy { term }
            | Self::Stopping { term, .. }
            | Self::Stopped { term, .. }
            | Self::Lost { term }
            | Self::Standby(StandbyState::Won { term }) => *term,
            Self::Standby(StandbyState::Out { .. } | StandbyState::Standing) => Term::NONE,
        }
    }
}

impl Candidacy {
    pub(super) fn new(priority: Priority, metadata: Metadata, now: Moment) -> Self {
        Self {
            priority,
            metadata,
            wants: true,
            seat: Seat::Standby(StandbyState::Out { campaign_at: now }),
            over: Term::NONE,
            known_at: Revision::default(),
            listed: None,
            work: None,
            digest: None,
            errand: None,
            hand_over: None,
            offered: None,
            tries: 0,
            led_since: None,
            damped_until: Moment::ZERO,
            due_at: None,
        }
    }

    /// What the store knows of a standby has changed. Leaving any other phase is a transition that
    /// the application must be told of, so it cannot be done here.
    pub(super) fn set_line(&mut self, line: StandbyState) {
        match &mut self.seat {
            Seat::Standby(known) => *known = line,
            Seat::Leading { .. }
            | Seat::Jeopardy { .. }
            | Seat::Stopping { .. }
            | Seat::Stopped { .. }
            | Seat::Lost { .. } => panic!("{:?} is no standby, yet got {line:?}", self.seat),
        }
    }

    /// Whether a request is under way whose outcome may change what the store knows of this
    /// candidate. That it is warm changes nothing about its place.
    pub(super) fn is_deciding(&self) -> bool {
        self.errand.as_ref().is_some_and(|errand| !matches!(errand.what, What::Verb(Verb::Warm(_))))
    }

    /// What a list said that overrules an answer made at `answered` that this session holds `term`,
    /// or stands in line. A tenure that was seen ending never recovers, whatever the order.
    pub(super) fn overruled_by(&self, answered: Revision, term: Term) -> Option<Listed> {
        let is_ending =
            |tenure: &TenureView| tenure.state == OfficeState::Ending && tenure.term == term;
        let listed = self.listed.as_ref()?;
        let overrules =
            answered <= listed.revision || listed.tenure.as_ref().is_some_and(is_ending);
        overrules.then(|| listed.clone())
    }

    /// When it next needs attention without being asked. `may_campaign` says whether a campaign
    /// could begin at all.
    pub(super) fn next_at(&self, may_campaign: bool) -> Option<Moment> {
        let stop_at = match (&self.seat, self.work) {
            (Seat::Stopping { by, .. }, _) => Some(*by),
            (_, Some(Work { stop_by: Some(by), overran: false, .. })) => Some(by),
            (_, Some(_) | None) => None,
        };
        let errand_at = match (self.errand.as_ref().map(|errand| errand.status), &self.seat) {
            (Some(Status::InFlight { until } | Status::Waiting { until }), _) => Some(until),
            (Some(Status::Ready), _) => None,
            (None, Seat::Standby(StandbyState::Out { campaign_at }))
                if may_campaign && self.wants =>
            {
                Some(self.damped_until.max(*campaign_at))
            }
            (None, _) => None,
        };
        let hand_over_at = self.hand_over.as_ref().and_then(HandOver::next_at);
        [stop_at, errand_at, hand_over_at].into_iter().flatten().min()
    }
}
