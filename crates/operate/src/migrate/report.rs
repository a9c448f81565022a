//! What a move reports: how far it is, what became of it, and why it stopped.

use std::fmt;

use regent_api::{Code, Problem};
use regent_election::store::Level;
use regent_election::{Group, Home, Node, Term};
use serde::Serialize;

/// What happens on the way. Its text is a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrateProgress {
    /// The new store claims less than the old one, and that is allowed.
    Weaker(Weaker),
    /// The old store does not know the group; it is closed there all the same.
    UnknownGroup {
        /// The old store.
        home: Home,
        group: Group,
    },
    /// The move was finished before.
    MovedAlready { group: Group },
    /// The group never left the new store.
    NotLeftYet {
        group: Group,
        /// The new store.
        home: Home,
    },
    /// The old leader was told to stop.
    LeaderToldToStop { group: Group, leader: Node, term: Term },
    /// The old leader did not come to the new store in time.
    HeirAbsent {
        /// The new store.
        home: Home,
    },
}

impl fmt::Display for MigrateProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weaker(weaker) => write!(f, "warning: {weaker}"),
            Self::UnknownGroup { home, group } => {
                write!(f, "{home} knows no {group} yet; it is closed there all the same")
            }
            Self::MovedAlready { group } => write!(f, "{group} had moved already"),
            Self::NotLeftYet { group, home } => write!(f, "{group} had not left {home} yet"),
            Self::LeaderToldToStop { group, leader, term } => {
                write!(f, "{leader} was told to stop leading {group} (term {term})")
            }
            Self::HeirAbsent { home } => {
                write!(f, "the old leader has not come to {home}; the first candidate leads")
            }
        }
    }
}

/// A new store that claims less than the old one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{to} claims {new}, which is less than the {old} of {from}")]
pub struct Weaker {
    /// The old store.
    pub from: Home,
    /// What it claims.
    pub old: Level,
    /// The new store.
    pub to: Home,
    /// What it claims.
    pub new: Level,
}

/// What became of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Moved {
    pub group: String,
    /// The old store.
    pub from: String,
    /// Where participants are told to go.
    pub to: String,
    /// The last term of the old store.
    pub last_term: u64,
    /// The node that led there.
    pub led_by: Option<String>,
    /// The node that leads now, if one was elected while the move waited for it.
    pub leader: Option<String>,
    /// The term in the new store.
    pub term: u64,
    /// For how long no node led, as far as the mover could see.
    pub leaderless_ms: Option<u64>,
}

/// How far a move has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// Nothing was changed.
    Nothing,
    /// The new store expects it; the old one is as it was.
    Expected,
    /// The old store has told its leader to stop, or may have.
    Departed,
}

/// Why a move cannot begin, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The two URLs are the same.
    #[error("the old and the new store are the same")]
    SameStore,
    /// A store cannot be asked. Nothing was changed.
    #[error("{0}")]
    Unready(Problem),
    /// The new store claims less than the old one. Nothing was changed.
    #[error(transparent)]
    Weaker(#[from] Weaker),
    /// A group's move stopped halfway; repeated, it goes on.
    #[error(transparent)]
    Stopped(Box<Stopped>),
}

/// A move that stopped, and where.
#[derive(Debug)]
pub struct Stopped {
    pub group: Group,
    /// The old store.
    pub from: Home,
    /// The new store.
    pub to: Home,
    /// How far it came.
    pub reached: Reached,
    pub problem: Problem,
}

impl std::error::Error for Stopped {}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, from, to, reached, problem } = self;
        let way_out = "say the same again to finish, or the opposite to turn round";
        match reached {
            Reached::Nothing if problem.code == Code::BadRequest => f.write_str(&problem.detail),
            Reached::Nothing => write!(f, "{group} has not moved: {problem}"),
            Reached::Expected => write!(
                f,
                "{group} is in {from} as before, and {to} elects no leader for it: {problem}; {way_out}"
            ),
            Reached::Departed => write!(
                f,
                "{group} is on its way from {from} to {to}, and no leader is elected until it arrives: \
                 {problem}; {way_out}"
            ),
        }
    }
}
