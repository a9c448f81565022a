//! The office: where a driver's requests go, and where it is seen who leads.
//!
//! Three verbs are all that a participant needs of the world: perform a request, read who leads, and
//! watch. A service over HTTP has them, a store in this process has them, and so can a simulated one;
//! the thread that drives a session does not know which it talks to.

mod direct;
mod http;
#[cfg(feature = "grpc")]
mod stream;

use std::fmt;

use async_trait::async_trait;
use regent_election::participant::{Reply, Request};
use regent_election::store::{Consistency, GroupView, LeaderView, Scope, StoreError, StoreResult};
use regent_election::{Group, Metadata, Node, Resource, Revision, SessionId, Term};
use tokio::sync::mpsc;

pub use direct::DirectBackend;
pub use http::HttpBackend;
#[cfg(feature = "grpc")]
pub use stream::StreamBackend;

/// Wherever elections are held.
#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug + 'static {
    /// Asks once, and gives up in time: an answer that may have been lost is
    /// [`StoreError::Uncertain`].
    async fn perform(&self, request: Request) -> StoreResult<Reply>;

    /// Who leads.
    async fn leader(&self, group: &Group, consistency: Consistency) -> StoreResult<LeaderView>;

    /// A group as it is: whether it lives there, above all. It is asked where a process follows a group to.
    async fn group(&self, group: &Group) -> StoreResult<GroupView> {
        let _ = group;
        Err(StoreError::Unsupported {
            store: "this office",
            what: "groups that come from elsewhere",
        })
    }

    /// Admits a term at a resource and raises its fence, in one step: after it no lower term is admitted there.
    /// An office that keeps no fences says so.
    async fn admit(&self, group: &Group, resource: &Resource, term: Term) -> StoreResult<()> {
        let _ = (group, resource, term);
        Err(StoreError::Unsupported { store: "this office", what: "fences" })
    }

    /// The term of a group, signed for the session that holds it; none if that is another, or nobody signs here.
    async fn signed_term(
        &self,
        group: &Group,
        session: SessionId,
    ) -> StoreResult<Option<(Term, String)>> {
        let _ = (group, session);
        Ok(None)
    }

    /// Tells who leads in these groups, first as it is and then with every change, for ever: it
    /// mends itself and returns only if nobody listens, or if it can never work.
    async fn watch(&self, scope: Scope, sights: ObservedLeaders);
}

/// Somebody was seen leading, or nobody was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedLeader {
    pub group: Group,
    /// Who leads.
    pub leader: Option<Node>,
    /// The leader's term, or the last one granted.
    pub term: Term,
    /// What the leader tells about itself.
    pub metadata: Metadata,
    /// The revision at which this was true.
    pub revision: Revision,
}

impl From<LeaderView> for ObservedLeader {
    fn from(view: LeaderView) -> Self {
        let LeaderView { group, leader, term, metadata, revision, .. } = view;
        Self { group, leader, term, metadata, revision }
    }
}

/// Where sights go.
#[derive(Clone, Debug)]
pub struct ObservedLeaders(mpsc::UnboundedSender<ObservedLeader>);

impl ObservedLeaders {
    /// The two ends of a way for sights.
    #[must_use]
    pub fn channel() -> (Self, mpsc::UnboundedReceiver<ObservedLeader>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Tells one; false if nobody listens any more.
    pub fn tell(&self, sight: ObservedLeader) -> bool {
        self.0.send(sight).is_ok()
    }
}
