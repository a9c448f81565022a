//! What may go wrong, told by what the caller may do next.

use std::time::Duration;

use regent_election::participant::Why;
use regent_election::store::StoreError;
use regent_election::{BudgetError, Group, Home, NameError, Node, Refusal, Term};

use crate::driver::PermanentFailure;
use crate::fresh::NoRandomness;
use crate::leadership::Leadership;
use crate::remote::AddressError;

/// Why there is no connection. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No scheme of that name.
    #[error(
        "{url:?} has no known scheme; known are http://HOST:PORT[,HOST:PORT…], embedded, and with the feature `stores` memory:, file:///DIRECTORY and other people's stores"
    )]
    UnknownScheme {
        /// What was given.
        url: String,
    },
    /// A scheme that this build does not have.
    #[error(
        "{url:?} needs the feature {feature:?} of the crate `regent`; switch it on in Cargo.toml"
    )]
    FeatureMissing {
        /// What was given.
        url: String,
        feature: &'static str,
    },
    /// A scheme that needs more than a URL.
    #[error(
        "{url:?} needs a replica's name, members and directory; describe them with `regent::Embedded` and call its `connect`"
    )]
    NotByUrl {
        /// What was given.
        url: String,
    },
    /// An address that cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A context that cannot be used, or none where one is needed.
    #[error("{0}")]
    Context(String),
    /// Timers that do not fit.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// A name that cannot be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Not called within a Tokio runtime.
    #[error(
        "there is no Tokio runtime here to be probed; connect within one, or switch the probe off with runtime_probe(false)"
    )]
    NoRuntime,
    /// The system gave no thread, or no randomness.
    #[error("the session's thread could not be started: {0}")]
    System(String),
    /// A group has moved, and this process was told not to follow.
    #[error("this process was told to stay where it is; connect it to the new store")]
    StaysHere,
    /// A group has moved to where this process may not follow.
    #[error(
        "it may follow only to the hosts that it was connected to; allow this place by follow_to, or by --follow-to of the command"
    )]
    NotAllowedThere,
    /// A group is said to have moved to a store that knows nothing of that.
    #[error(
        "the store there neither expects {group} from here nor received it from here, or from a store of another name at term {last} or above; move it by `regent migrate`, which tells the new store first, and by `--from-known-as` the address that processes know the old store by"
    )]
    NotExpectedThere {
        group: Group,
        /// The last term that was granted where it came from, as far as this process knows.
        last: Term,
    },
    /// Whether a store expects a group cannot be read at the moment. It is asked again.
    #[error("the store there does not say whether it expects the group: {0}")]
    NoWordThere(String),
    /// A store that cannot be opened.
    #[error("{0}")]
    Store(String),
}

impl From<NoRandomness> for ConnectError {
    fn from(error: NoRandomness) -> Self {
        Self::System(error.to_string())
    }
}

/// Why a campaign will never win. Whatever may pass by itself is waited for instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CampaignError {
    /// A name that no group can have.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The store will say the same every time: change the group's policy, the ttl or the node.
    #[error(transparent)]
    Refused(Refusal),
    /// The group has moved to a store that this process cannot be connected to.
    #[error("{group} has moved to {to}, and this process cannot follow: {why}")]
    CannotFollow {
        group: Group,
        /// Where it went.
        to: Home,
        why: String,
    },
    /// A store granted a term that is not above the last one of this process. Storage would refuse it, and
    /// another process may act under it: find out what the store has lost before anybody leads again.
    #[error(
        "term {term} of {group} is not above {last}, which this process was granted before: the store has lost terms, or is another one; it is given up"
    )]
    TermNotAbove {
        group: Group,
        /// What was granted now.
        term: Term,
        /// The highest that was granted before.
        last: Term,
    },
    /// This process stands in as many groups as one session may: use another process.
    #[error(
        "one session stands in at most {} groups; use another process",
        regent_election::limits::GROUPS_PER_SESSION_MAX
    )]
    TooManyGroups,
    /// This [`Regent`](crate::Regent) was closed: connect again.
    #[error("this session was closed; connect again")]
    Closed,
}

impl From<PermanentFailure> for CampaignError {
    fn from(why: PermanentFailure) -> Self {
        match why {
            PermanentFailure::Refused(refusal) => Self::Refused(refusal),
            PermanentFailure::TooManyGroups => Self::TooManyGroups,
            PermanentFailure::Left => Self::Closed,
        }
    }
}

/// This process does not lead any more under this term. Stop, and campaign again if you like.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("term {term} of {group} is over ({}); stop at once", .why.word())]
pub struct Lost {
    pub group: Group,
    pub term: Term,
    /// Why, as far as known: after a pause the clock knows first.
    pub why: Why,
}

/// The store did not hear of the resignation. The term is over here all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "term {term} of {group} is over here, but the store did not hear it; the office is free within {} ms",
    .free_within.as_millis()
)]
pub struct Untold {
    pub group: Group,
    pub term: Term,
    /// The session's ttl: by then the store knows without being told.
    pub free_within: Duration,
}

/// Why an office was not handed to the one named.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// Nothing happened: the caller leads on, under the same term.
    #[error("{to} cannot take over ({why}); this process leads on")]
    Refused {
        /// The leadership, given back.
        leadership: Box<Leadership>,
        /// Who was to lead.
        to: Node,
        why: StoreError,
    },
    /// Nothing happened: the one named did not get warm in time, and the caller leads on, under the
    /// same term. The offer stands, so that it comes first when this term ends.
    #[error("{to} was not warm within {} ms; this process leads on", .within.as_millis())]
    NotWarm {
        /// The leadership, given back.
        leadership: Box<Leadership>,
        /// Who was to lead.
        to: Node,
        /// How long it was waited for.
        within: Duration,
    },
    /// The work had stopped when the one named could not take over: whoever was next leads.
    #[error("{to} could not take over ({why}); the office was resigned to whoever is next")]
    Resigned {
        /// Who was to lead.
        to: Node,
        why: StoreError,
    },
    /// The term was lost before the hand-over was done.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The store did not hear of it in time.
    #[error(transparent)]
    Untold(#[from] Untold),
}
