//! Hooks for an application's own metrics.
//!
//! The library counts nothing itself: which metrics system to use is the application's choice. Every
//! method is called on the session's thread or beside it and must return at once.

use std::fmt;
use std::time::Duration;

use regent_election::participant::{Request, Transition, Trouble};
use regent_election::store::StoreError;
use regent_election::{Group, Term};

/// What was asked of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestKind {
    /// A session was opened.
    Open,
    /// A session was kept alive.
    Heartbeat,
    /// A session's list was read.
    List,
    /// A session was closed.
    Close,
    Campaign,
    /// Anything else about one group.
    Errand,
}

impl RequestKind {
    pub(crate) const fn of(request: &Request) -> Self {
        match request {
            Request::Open(_) => Self::Open,
            Request::Heartbeat(_) => Self::Heartbeat,
            Request::List(_) => Self::List,
            Request::Close(_) => Self::Close,
            Request::Campaign(_) => Self::Campaign,
            Request::Group(_) => Self::Errand,
        }
    }
}

/// What an application may count. Every method does nothing by default.
pub trait Metrics: Send + Sync + fmt::Debug + 'static {
    /// A request was answered, or failed, after so long.
    fn answered(&self, kind: RequestKind, took: Duration, error: Option<&StoreError>) {
        let _ = (kind, took, error);
    }

    /// A group changed its phase.
    fn moved(&self, transition: &Transition) {
        let _ = transition;
    }

    /// Something a person should know.
    fn trouble(&self, group: Option<&Group>, trouble: &Trouble) {
        let _ = (group, trouble);
    }

    /// Work under this term did not stop in time.
    fn overran(&self, group: &Group, term: Term) {
        let _ = (group, term);
    }
}

/// Counts nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NoMetrics;

impl Metrics for NoMetrics {}
