//! What a participant asks of a store, and the one place that turns it into calls of the port.

use crate::name::{Group, Node, RequestId, SessionId};
use crate::store::{Campaign, Campaigned, Heard, Heartbeat, Open, SessionView, Store, StoreResult};
use crate::term::Term;

/// One request.
#[derive(Clone, Debug)]
pub enum Request {
    /// Opens the session.
    Open(Open),
    /// Keeps it alive.
    Heartbeat(Heartbeat),
    /// Reads what it holds.
    List(SessionId),
    /// Ends it.
    Close(SessionId),
    /// Campaigns.
    Campaign(Campaign),
    /// Does something else about one group.
    Group(GroupRequest),
}

/// One request about one group, by its session.
#[derive(Clone, Debug)]
pub struct GroupRequest {
    /// Where.
    pub group: Group,
    /// Who.
    pub session: SessionId,
    /// Makes a repeat take effect once.
    pub request: RequestId,
    /// What.
    pub verb: Verb,
}

/// What a session does in a group, campaigns aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Leaves the line.
    Withdraw,
    /// Takes the office it was promoted to.
    Accept(Term),
    /// Gives the office up.
    Resign(Term),
    /// Asks a standby to get warm.
    Offer(Term, Node),
    /// Says that it is warm.
    Warm(Term),
    /// Hands the office over.
    Transfer(Term, Node),
}

/// What a store answers when it does not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To an opening, or to a look at the list.
    Session(SessionView),
    /// To a heartbeat or an acceptance.
    Heard(Heard),
    /// To a campaign.
    Campaigned(Campaigned),
    /// To everything else.
    Done,
}

impl Request {
    /// Asks the store. It awaits and chooses nothing; a driver adds only the time-out.
    pub async fn perform(self, store: &dyn Store) -> StoreResult<Reply> {
        match self {
            Self::Open(open) => store.open(open).await.map(Reply::Session),
            Self::Heartbeat(heartbeat) => store.heartbeat(heartbeat).await.map(Reply::Heard),
            Self::List(session) => store.session(session).await.map(Reply::Session),
            Self::Close(session) => store.close(session).await.map(|()| Reply::Done),
            Self::Campaign(campaign) => store.campaign(campaign).await.map(Reply::Campaigned),
            Self::Group(request) => request.perform(store).await,
        }
    }
}

impl GroupRequest {
    async fn perform(self, store: &dyn Store) -> StoreResult<Reply> {
        let Self { group, session, request, verb } = self;
        let request = Some(request);
        match verb {
            Verb::Accept(term) => {
                return store.accept(&group, session, term, request).await.map(Reply::Heard);
            }
            Verb::Withdraw => store.withdraw(&group, session, request).await?,
            Verb::Resign(term) => store.resign(&group, session, term, request).await?,
            Verb::Offer(term, to) => store.offer(&group, session, term, &to, request).await?,
            Verb::Warm(term) => store.warm(&group, session, term, request).await?,
            Verb::Transfer(term, to) => store.transfer(&group, session, term, &to, request).await?,
        }
        Ok(Reply::Done)
    }
}
