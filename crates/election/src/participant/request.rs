//! What a participant asks of a store, and the one place that turns it into calls of the port.

use crate::command::Command;
use crate::name::{Group, Node, RequestId, SessionId};
use crate::store::{
    Campaign, Campaigned, Heartbeat, HeartbeatView, Open, SessionView, Store, StoreResult,
};
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
    Campaign(Campaign),
    /// Does something else about one group.
    Group(GroupRequest),
}

/// One request about one group, by its session.
#[derive(Clone, Debug)]
pub struct GroupRequest {
    pub group: Group,
    pub session: SessionId,
    /// Makes a repeat take effect once.
    pub request: RequestId,
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
    Heartbeat(HeartbeatView),
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
            Self::Heartbeat(heartbeat) => store.heartbeat(heartbeat).await.map(Reply::Heartbeat),
            Self::List(session) => store.session(session).await.map(Reply::Session),
            Self::Close(session) => store.close(session).await.map(|()| Reply::Done),
            Self::Campaign(campaign) => store.campaign(campaign).await.map(Reply::Campaigned),
            Self::Group(request) => request.perform(store).await,
        }
    }
}

impl GroupRequest {
    /// The command to submit, with its request id.
    #[must_use]
    pub fn command(self) -> (Command, RequestId) {
        let Self { group, session, request, verb } = self;
        let command = match verb {
            Verb::Withdraw => Command::Withdraw { group, session },
            Verb::Accept(term) => Command::Accept { group, session, term },
            Verb::Resign(term) => Command::Resign { group, session, term },
            Verb::Offer(term, to) => Command::Offer { group, session, term, to },
            Verb::Warm(term) => Command::Warm { group, session, term },
            Verb::Transfer(term, to) => Command::Transfer { group, session, term, to },
        };
        (command, request)
    }

    /// Whether the answer is [`Reply::Heartbeat`], as for a heartbeat.
    #[must_use]
    pub const fn is_heard(&self) -> bool {
        matches!(self.verb, Verb::Accept(_))
    }

    async fn perform(self, store: &dyn Store) -> StoreResult<Reply> {
        let Self { group, session, request, verb } = self;
        if let Verb::Accept(term) = verb {
            return store.accept(&group, session, term, Some(request)).await.map(Reply::Heartbeat);
        }
        let (command, request) = Self { group, session, request, verb }.command();
        store.submit(command, Some(request), None).await?;
        Ok(Reply::Done)
    }
}
